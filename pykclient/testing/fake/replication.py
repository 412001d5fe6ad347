"""Replication: followers that copy, lag and catch up; leaders that change.

A follower copies the leader's records `delay_ms` after they are appended, unless it is stalled or
its broker is stopped. The high watermark is the smallest end offset of the in-sync replicas (ISR).
A follower that lags for longer than `LAG_MS_MAX` leaves the ISR, and rejoins it when it has caught
up.

Owner: the cluster.
Source: KIP-101, KIP-497; Java classes ``Partition``, ``ReplicaManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.base import UsageError
from pykclient.testing.fake.topics import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.testing.fake.timers import Purgatory, TimingWheel
    from pykclient.testing.fake.topics import Partition

LAG_MS_MAX = 30_000


class Replication:
    """The replication of a cluster. `alive` is the set of running brokers, kept by the cluster.

    `on_leader(partition, now_ms)` is called when a partition gets another leader, or none.
    """

    def __init__(
        self,
        alive: set[int],
        timers: TimingWheel,
        purgatory: Purgatory,
        *,
        delay_ms: int,
        on_leader: Callable[[Partition, int], None],
    ) -> None:
        self.delay_ms = delay_ms
        self._alive = alive
        self._stalled: set[int] = set()
        self._watched: set[tuple[Partition, int]] = set()
        """Lagging followers that have a timer."""
        self._timers = timers
        self._purgatory = purgatory
        self._on_leader = on_leader

    # Events of a partition.

    def on_append(self, partition: Partition, now_ms: int) -> None:
        """Replicate what the leader has just appended."""
        partition.replica_ends[partition.leader_id] = partition.log.log_end_offset
        if self.delay_ms:
            self._timers.add(now_ms + self.delay_ms, lambda then_ms: self.copy(partition, then_ms))
            self._update(partition, now_ms)
        else:
            self.copy(partition, now_ms)

    def copy(self, partition: Partition, now_ms: int) -> None:
        """Copy the whole log to every follower that can copy, and watch those that lag."""
        if partition.leader_id == NO_LEADER:
            return
        end_offset = partition.log.log_end_offset
        for follower in partition.followers:
            if self._is_copying(follower):
                partition.replica_ends[follower] = end_offset
                if follower not in partition.isr:
                    partition.isr.append(follower)
            elif follower in partition.isr and partition.replica_ends[follower] < end_offset:
                self._watch_lag(partition, follower, now_ms)
        self._update(partition, now_ms)

    def move_leader(self, partition: Partition, broker_id: int | None, now_ms: int) -> None:
        """Make `broker_id` the leader; None picks the next in-sync replica.

        A leader that was not in sync truncates the log to its own end (unclean election).

        Raises:
            UsageError: the broker has no replica, or does not run.
        """
        if broker_id is None:
            candidates = [each for each in partition.isr if each in self._alive]
            others = [each for each in candidates if each != partition.leader_id]
            broker_id = next(iter(others or candidates), NO_LEADER)
        elif broker_id not in partition.replicas or broker_id not in self._alive:
            raise UsageError(
                f"broker {broker_id} cannot lead {partition.name}: it has no replica of it "
                f"({', '.join(map(str, partition.replicas))} have one), or is not running"
            )
        partition.leader_epoch += 1
        partition.leader_id = broker_id
        if broker_id != NO_LEADER:
            self._take_over(partition, broker_id)
        self._purgatory.check(partition.name, now_ms)
        self.copy(partition, now_ms)
        self._on_leader(partition, now_ms)

    def shrink_isr(self, partition: Partition, broker_id: int, now_ms: int) -> None:
        """Remove a follower from the ISR; it rejoins when it next copies.

        Raises:
            UsageError: the broker leads the partition.
        """
        if broker_id == partition.leader_id:
            raise UsageError(f"broker {broker_id} leads {partition.name}: move the leader first")
        if broker_id in partition.isr:
            partition.isr.remove(broker_id)
            self._update(partition, now_ms)

    # Events of a broker.

    def stall(self, broker_id: int) -> None:
        """Stop the copying of a broker's followers until `resume`."""
        self._stalled.add(broker_id)

    def resume(self, broker_id: int) -> None:
        """Undo `stall`; the cluster then calls `copy` for each partition."""
        self._stalled.discard(broker_id)

    def on_stopped(self, partition: Partition, broker_id: int, now_ms: int) -> None:
        """Handle a stopped broker; the others notice at once."""
        if broker_id == partition.leader_id:
            self.move_leader(partition, None, now_ms)
        # The last in-sync replica stays in the ISR while it is down: only it has all records.
        if broker_id in partition.isr and len(partition.isr) > 1:
            partition.isr.remove(broker_id)
            self._update(partition, now_ms)

    def on_started(self, partition: Partition, broker_id: int, now_ms: int) -> None:
        """Handle a started broker: it leads what only it can lead, and copies the rest."""
        if partition.leader_id == NO_LEADER and broker_id in partition.isr:
            self.move_leader(partition, broker_id, now_ms)
        self.copy(partition, now_ms)

    def _is_copying(self, broker_id: int) -> bool:
        return broker_id in self._alive and broker_id not in self._stalled

    def _take_over(self, partition: Partition, broker_id: int) -> None:
        """Truncate all replicas to the new leader's end offset."""
        partition.log.truncate(partition.replica_ends[broker_id])
        partition.log.begin_epoch(partition.leader_epoch)
        end_offset = partition.log.log_end_offset
        if broker_id not in partition.isr:
            partition.isr = [broker_id]
        for replica in partition.replicas:
            partition.replica_ends[replica] = min(partition.replica_ends[replica], end_offset)

    def _watch_lag(self, partition: Partition, follower: int, now_ms: int) -> None:
        if (partition, follower) in self._watched:
            return
        self._watched.add((partition, follower))
        behind_at = partition.replica_ends[follower]

        def look(then_ms: int) -> None:
            self._watched.discard((partition, follower))
            is_behind = partition.replica_ends[follower] == behind_at
            if is_behind and follower != partition.leader_id and follower in partition.isr:
                self.shrink_isr(partition, follower, then_ms)

        self._timers.add(now_ms + LAG_MS_MAX, look)

    def _update(self, partition: Partition, now_ms: int) -> None:
        """Raise the high watermark, never lower it, and notify waiting operations."""
        if partition.leader_id == NO_LEADER:
            return
        partition.replica_ends[partition.leader_id] = partition.log.log_end_offset
        copied = min(partition.replica_ends[replica] for replica in partition.isr)
        partition.log.high_watermark = max(partition.log.high_watermark, copied)
        self._purgatory.check(partition.name, now_ms)
