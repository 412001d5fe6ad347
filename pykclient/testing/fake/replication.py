"""Replicas: followers that copy, fall behind and come back; leaders that move.

A follower copies what the leader has `delay_ms` after it was appended, unless it is stalled or its
broker stopped. The high watermark is the least that all in-sync replicas have. A follower that is
behind for longer than `LAG_MS_MAX` leaves the in-sync replicas, and returns once it has caught up.

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
    """The copying between brokers. `alive` is the set of brokers that run, kept by the cluster.

    `on_leader(partition, now_ms)` is called whenever a partition has another leader, or none.
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
        """Followers that are behind, for each of which a timer runs."""
        self._timers = timers
        self._purgatory = purgatory
        self._on_leader = on_leader

    # What happens to a partition.

    def on_append(self, partition: Partition, now_ms: int) -> None:
        """Have the followers copy what the leader has just written."""
        partition.replica_ends[partition.leader_id] = partition.log.log_end_offset
        if self.delay_ms:
            self._timers.add(now_ms + self.delay_ms, lambda then_ms: self.copy(partition, then_ms))
            self._update(partition, now_ms)
        else:
            self.copy(partition, now_ms)

    def copy(self, partition: Partition, now_ms: int) -> None:
        """Have every follower that can copy all there is, and see which lag behind."""
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
        """Make `broker_id` the leader, None for the next of the in-sync replicas.

        A leader that is not in sync loses what it has not copied (an unclean election).

        Raises:
            UsageError: that broker has no replica, or does not run.
        """
        if broker_id is None:
            candidates = [each for each in partition.isr if each in self._alive]
            others = [each for each in candidates if each != partition.leader_id]
            broker_id = next(iter(others or candidates), NO_LEADER)
        elif broker_id not in partition.replicas or broker_id not in self._alive:
            raise UsageError(
                f"broker {broker_id} cannot lead {partition.name}: it has no replica of it "
                f"({', '.join(map(str, partition.replicas))} have one), or does not run"
            )
        partition.leader_epoch += 1
        partition.leader_id = broker_id
        if broker_id != NO_LEADER:
            self._take_over(partition, broker_id)
        self._purgatory.check(partition.name, now_ms)
        self.copy(partition, now_ms)
        self._on_leader(partition, now_ms)

    def shrink_isr(self, partition: Partition, broker_id: int, now_ms: int) -> None:
        """Take a follower out of the in-sync replicas; it returns when it next copies.

        Raises:
            UsageError: it is the leader.
        """
        if broker_id == partition.leader_id:
            raise UsageError(f"broker {broker_id} leads {partition.name}: move the leader first")
        if broker_id in partition.isr:
            partition.isr.remove(broker_id)
            self._update(partition, now_ms)

    # What happens to a broker.

    def stall(self, broker_id: int) -> None:
        """Have this broker's followers copy nothing until `resume`."""
        self._stalled.add(broker_id)

    def resume(self, broker_id: int) -> None:
        """Undo `stall`; the cluster has each partition copied again."""
        self._stalled.discard(broker_id)

    def on_stopped(self, partition: Partition, broker_id: int, now_ms: int) -> None:
        """A broker has stopped, which the others notice at once."""
        if broker_id == partition.leader_id:
            self.move_leader(partition, None, now_ms)
        # The last in-sync replica stays one while it is away: only it has everything.
        if broker_id in partition.isr and len(partition.isr) > 1:
            partition.isr.remove(broker_id)
            self._update(partition, now_ms)

    def on_started(self, partition: Partition, broker_id: int, now_ms: int) -> None:
        """A broker runs again: it leads what only it can lead, and copies the rest."""
        if partition.leader_id == NO_LEADER and broker_id in partition.isr:
            self.move_leader(partition, broker_id, now_ms)
        self.copy(partition, now_ms)

    def _is_copying(self, broker_id: int) -> bool:
        return broker_id in self._alive and broker_id not in self._stalled

    def _take_over(self, partition: Partition, broker_id: int) -> None:
        """Let all replicas have no more than the new leader has."""
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
        """Move the high watermark, which never goes back by this, and say so."""
        if partition.leader_id == NO_LEADER:
            return
        partition.replica_ends[partition.leader_id] = partition.log.log_end_offset
        copied = min(partition.replica_ends[replica] for replica in partition.isr)
        partition.log.high_watermark = max(partition.log.high_watermark, copied)
        self._purgatory.check(partition.name, now_ms)
