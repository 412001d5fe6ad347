"""A group member without sockets and clocks: a real consumer and an application that uses it.

The application polls or iterates, processes records for a while, and commits as its habits say;
meanwhile the heartbeat thread's step runs in the background. It may also be *paused* (its process
does nothing), *leaving*, or *gone*, possibly without a request. Assignments and records are
compared with its state.

Owner: the simulation.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import contextmanager
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from pykclient.consumer.config import ConsumerConfig
from pykclient.consumer.consumer import Consumer
from pykclient.consumer.core import ConsumerCore
from pykclient.consumer.group.classic.membership import ClassicMembership, ClassicState
from pykclient.consumer.group.rebalance import RebalanceListener
from pykclient.errors import KafkaError, RebalanceListenerError
from pykclient.network.manager import NEVER_MS
from pykclient.types import TopicPartition
from tests.simulation.simulated_clients import seed_all
from tests.simulation.simulated_network import SimulatedNetwork, WaitingPort
from tests.simulation.simulated_thread import SimulatedThread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pykclient.consumer.group.history import Rebalance
    from pykclient.consumer.record import ConsumerRecord
    from pykclient.types import OffsetAndMetadata

POLL_MS = 1_000
COMMIT_MS = 1_000
CLOSE_MS = 5_000
ERROR_MS = 100
"""Delay of an application after an error."""
BACKGROUND_INTERVAL_MS = 250


IN_BETWEEN = (ClassicState.SYNCING, ClassicState.ASSIGNING)
"""States in which a member has a new generation, but still the partitions of the last one."""


class Habits(NamedTuple):
    """Behaviour of an application."""

    reads: str = "poll"
    """``poll`` or ``iterate``."""
    commits: str = "automatically"
    """``automatically``, ``sync`` or ``async``."""
    fidgets: bool = False
    """True to pause, resume, seek back and unsubscribe at random."""
    pattern: str | None = None
    """Pattern that it subscribes to, instead of a topic."""
    polls_inside: bool = False
    """True to poll inside its loops at random, and then continue them."""
    may_lose: bool = True
    """True if it may lose partitions while it stays."""


class ProcessedRecords:
    """Records that the applications of a group have processed.

    It counts how often each was processed, and tracks up to where none is missing.
    """

    def __init__(self) -> None:
        self.count = 0
        self._counts: defaultdict[TopicPartition, Counter[int]] = defaultdict(Counter)
        self._ends: Counter[TopicPartition] = Counter()

    def add(self, records: Iterable[ConsumerRecord]) -> None:
        """Add records that an application has processed."""
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            counts = self._counts[partition]
            counts[record.offset] += 1
            self.count += 1
            while counts[self._ends[partition]]:
                self._ends[partition] += 1

    def end(self, partition: TopicPartition) -> int:
        """Return the first offset that no member has processed."""
        return self._ends[partition]

    @property
    def repeated_count(self) -> int:
        """Number of repeated processings."""
        return self.count - sum(len(+counts) for counts in self._counts.values())


class SimulatedConsumer(Consumer):
    """A consumer on a simulated port; the simulation runs the heartbeat thread's steps."""

    def __init__(self, network: SimulatedNetwork, port: WaitingPort, **settings: object) -> None:
        ConsumerCore.__init__(
            self,
            ConsumerConfig.from_settings(settings),
            port=port,
            wall_clock_ms=lambda: network.cluster.wall_ms,
        )
        self._wiring.heartbeats.watch = lambda: None  # type: ignore[method-assign]


class SimulatedMember:
    """A member. `did` lists what its application has done with the consumer."""

    def __init__(
        self,
        network: SimulatedNetwork,
        seed: int,
        random: Random,
        processed: ProcessedRecords,
        *,
        topic: str,
        habits: Habits,
        **settings: object,
    ) -> None:
        self._thread = SimulatedThread(self._run)
        self.port = WaitingPort(network, self._thread.pause)
        self.consumer = SimulatedConsumer(network, self.port, **settings)
        seed_all(self.consumer, seed)
        self.habits = habits
        self.errors: list[KafkaError] = []
        self.owned: set[TopicPartition] = set()
        """Partitions according to the listener's calls."""
        self.is_paused = self.is_leaving = self.is_calm = False
        self.busy_until_ms = 0
        self.did: set[str] = set()
        """Actions of its application other than reading."""
        self._topic = topic
        self._network = network
        self._random = random
        self._processed = processed
        self._group_id = str(settings["group_id"])
        self._in_hand: list[ConsumerRecord] = []
        self._resting: set[TopicPartition] = set()
        """Partitions that the application has paused."""
        self._begins: dict[TopicPartition, int] = {}
        """Committed offset of each new partition that was not read yet."""
        self._next_offset: dict[TopicPartition, int] = {}
        self._leaving = Random(seed)
        """Random numbers for leaving a batch early."""
        self._inside = Random(seed + 1)
        """Random numbers for polling inside a loop."""
        self._assigned_count: Counter[TopicPartition] = Counter()
        self._kept: Iterator[ConsumerRecord] | None = None
        """Iterator of a batch that was left early, kept until the next poll."""
        self._commit_count = self._called_back_count = 0
        self._was_paused = False

    # Called by the simulation.

    @property
    def is_gone(self) -> bool:
        """True once it has ended in any way."""
        return self._thread.is_done

    @property
    def generation(self) -> int:
        """Current generation; -1 without one."""
        assert self.consumer._wiring.group is not None
        return self.consumer._wiring.group.identity.generation

    @property
    def holds(self) -> frozenset[TopicPartition]:
        """Partitions it reads in its generation; empty before its first assignment."""
        group = self.consumer._wiring.group
        assert group is not None
        assert isinstance(group._membership, ClassicMembership)
        is_in_between = self.generation < 0 or group._membership.state in IN_BETWEEN
        return frozenset() if is_in_between else self.consumer._wiring.subscription.partitions

    @property
    def history(self) -> tuple[Rebalance, ...]:
        """Its rebalances."""
        assert self.consumer._wiring.group is not None
        return self.consumer._wiring.group.history.rebalances(0, datetime.now(UTC))

    def turn(self, now_ms: int) -> int:
        """Continue its thread if that is due; return when to call again."""
        if self.is_gone or self.is_paused:
            self._was_paused = True
            return NEVER_MS
        if self.port.due_ms <= now_ms:
            self._thread.resume()
        return NEVER_MS if self.is_gone else self.port.due_ms

    def kill(self) -> None:
        """Kill its process; the system closes its connections."""
        for link in self.port._links.values():
            if not link.is_closed:
                link.cut()
        self._thread.kill()

    def be_calm(self) -> None:
        """Do nothing from now on but read to the end."""
        self.is_calm = True
        self.is_paused = False
        self.port.wakes_ms = min(self.port.wakes_ms, self._now_ms)
        self.busy_until_ms = min(self.busy_until_ms, self._now_ms)

    @property
    def _now_ms(self) -> int:
        return self._network.clock.now_ms

    # The application.

    def _run(self) -> None:
        self._subscribe()
        while not self.is_leaving:
            try:
                if self.habits.reads == "iterate":
                    self._iterate()
                else:
                    self._poll()
            except RebalanceListenerError as error:
                raise AssertionError("the listener has found something wrong") from error
            except KafkaError as error:
                self.errors.append(error)
                self._work(ERROR_MS)
        self._finish()
        with self._in_time(CLOSE_MS):
            self.consumer.close(CLOSE_MS / 1_000)

    def _subscribe(self) -> None:
        listener = RebalanceListener(self._on_assigned, self._on_revoked, self._on_lost)
        if self.habits.pattern is None:
            self.consumer.subscribe([self._topic], listener=listener)
        else:
            self.consumer.subscribe(pattern=self.habits.pattern, listener=listener)

    def _poll(self) -> None:
        self._finish()
        self._kept = None  # otherwise this would be a poll inside a loop that continues
        with self._in_time(POLL_MS):
            records = self.consumer.poll(POLL_MS / 1_000)
        self._take_batch(iter(records))
        self._work(self._random.choice(self._work_ms))
        self._finish()
        self._commit()
        self._fidget()

    def _iterate(self) -> None:
        records = iter(self.consumer)
        while not self.is_leaving:
            self._finish()
            with self._in_time(POLL_MS):
                record = next(records, None)
            if record is None:
                self._fidget()
                return
            if self._leaves():
                self.did.add("leave a loop")
                return
            self._take([record])
            self._work(self._random.choice(self._work_ms))
            self._poll_inside()
            if self._is_asked_to_leave():  # before the current record is processed
                self._in_hand = []
                return
            self._fidget()

    @property
    def _work_ms(self) -> tuple[int, ...]:
        return (0, 1) if self.is_calm else (0, 1, 50, 500)

    def _work(self, duration_ms: int) -> None:
        """Work for a while, and send heartbeats in the background."""
        self.busy_until_ms = max(self.busy_until_ms, self._now_ms + duration_ms)
        while self._now_ms < self.busy_until_ms:
            next_ms = self._step_in_background()
            next_ms = max(self._now_ms + 1, min(next_ms, self._now_ms + BACKGROUND_INTERVAL_MS))
            self.port.sleep_until(min(next_ms, self.busy_until_ms))

    def _step_in_background(self) -> int:
        lock = self.consumer._wiring.guard.background
        is_free = lock.acquire(blocking=False)
        assert is_free
        try:
            return self.consumer._wiring.step_in_background(self._now_ms)
        finally:
            lock.release()

    def _finish(self) -> None:
        """Count the records in hand as processed."""
        self._processed.add(self._in_hand)
        self._in_hand = []

    def _commit(self) -> None:
        if self.habits.commits == "sync":
            with self._in_time(COMMIT_MS):
                self.consumer.commit(timeout=COMMIT_MS / 1_000)
            self.did.add("commit")
        elif self.habits.commits == "async":
            number = self._commit_count
            self._commit_count += 1

            def call_back(
                offsets: dict[TopicPartition, OffsetAndMetadata], error: KafkaError | None
            ) -> None:
                assert number == self._called_back_count, "callbacks out of order"
                self._called_back_count += 1
                self.did.add("commit_async" if error is None else "commit_async refused")

            self.consumer.commit_async(callback=call_back)

    @contextmanager
    def _in_time(self, limit_ms: int) -> Iterator[None]:
        """Check that a call returns in time, unless its process was paused meanwhile."""
        started_ms, self._was_paused = self._now_ms, False
        self._listener_ms = 0
        try:
            yield
        finally:
            took_ms = self._now_ms - started_ms - self._listener_ms
            assert self._was_paused or took_ms <= limit_ms, f"a call took {took_ms} ms"

    # Actions other than reading.

    def _fidget(self) -> None:
        """Sometimes do something else that an application may do."""
        if self.is_calm:
            self._resume()
        elif self.habits.fidgets:
            drawn = self._random.random()
            for limit, action in (
                (0.1, self._pause),
                (0.2, self._resume),
                (0.3, self._seek_back),
                (0.32, self._subscribe_again),
                (0.34, self._enforce_rebalance),
            ):
                if drawn < limit:
                    action()
                    return

    def _pause(self) -> None:
        for partition in sorted(self.owned):
            if self._random.random() < 0.5:
                self.consumer.pause([partition])
                self._resting.add(partition)
                self.did.add("pause partitions")

    def _resume(self) -> None:
        assert self.consumer.paused() == self._resting, "paused what is not owned, or less"
        self.consumer.resume(sorted(self._resting))
        self._resting.clear()

    def _seek_back(self) -> None:
        known = sorted(self._next_offset)
        if known:
            partition = self._random.choice(known)
            offset = self._random.randint(0, self._next_offset[partition])
            self.consumer.seek(partition, offset)
            self._next_offset[partition] = offset
            self.did.add("seek")

    def _subscribe_again(self) -> None:
        self._finish()
        self.consumer.unsubscribe()
        assert not self.owned, "not all partitions were revoked"
        self._subscribe()
        self.did.add("unsubscribe")

    def _enforce_rebalance(self) -> None:
        self.consumer.enforce_rebalance()

    # Records.

    def _take_batch(self, records: Iterator[ConsumerRecord]) -> None:
        """Take the records of a poll, or leave some; the last one is then still in hand."""
        assigned_count = self._assigned_count.copy()
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            is_kept = partition in self.owned
            if not is_kept or self._assigned_count[partition] != assigned_count[partition]:
                continue  # revoked at a poll inside this loop
            if self._leaves():
                self.did.add("leave a batch")
                if self.habits.commits == "automatically" and self._leaving.random() < 0.5:
                    self._kept = records  # its own commit would cover the record in hand
                return
            self._take([record])
            self._poll_inside()

    def _poll_inside(self) -> None:
        """Sometimes poll inside the loop to stay a member, and then continue the loop."""
        if self.is_calm or not self.habits.polls_inside or self._inside.random() >= 0.2:
            return
        # Records before the one in hand are processed, and a poll may commit them.
        self._processed.add(self._in_hand[:-1])
        self._in_hand = self._in_hand[-1:]
        reading = sorted(self.owned - self._resting)
        assigned_count = self._assigned_count.copy()
        self.consumer.pause(reading)
        timeout_ms = self._inside.choice((0, 0, 50, POLL_MS))
        with self._in_time(timeout_ms):
            records = self.consumer.poll(timeout_ms / 1_000)
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            is_new = self._assigned_count[partition] != assigned_count[partition]
            assert is_new or partition not in reading, f"read {partition}, which is paused"
            self._take([record])
        self.consumer.resume([partition for partition in reading if partition in self.owned])
        self.did.add("poll inside")

    def _is_asked_to_leave(self) -> bool:
        return self.is_leaving

    def _leaves(self) -> bool:
        return not self.is_calm and self._leaving.random() < 0.1

    def _take(self, records: Iterable[ConsumerRecord]) -> None:
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            assert partition in self.owned, f"read {partition}, which is not owned"
            assert partition not in self._resting, f"read {partition}, which is paused"
            begin = self._begins.pop(partition, None)
            if begin is not None:
                end = self._processed.end(partition)
                assert begin <= record.offset <= end, f"began {begin}..{end} at {record}"
            expected = self._next_offset.get(partition, record.offset)
            assert record.offset == expected, f"jumped from {expected} to {record}"
            self._next_offset[partition] = record.offset + 1
            self._in_hand.append(record)

    # Calls of the listener.

    def _on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        assert not self.owned & set(partitions), "assigned twice"
        self.owned |= set(partitions)
        assert self.owned == self.consumer.assignment()
        self._assigned_count.update(partitions)
        offsets = self._network.cluster.groups.offsets(self._group_id)
        for partition in partitions:
            committed = offsets.get(partition)
            self._begins[partition] = 0 if committed is None else committed.offset

    def _on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        if self.habits.commits != "automatically":
            started_ms = self._now_ms
            try:
                self.consumer.commit(timeout=COMMIT_MS / 1_000)
                self.did.add("commit before a revocation")
            except KafkaError as error:
                self.errors.append(error)
            self._listener_ms += self._now_ms - started_ms
        self._give_up(partitions)

    def _on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        assert partitions, "lost nothing"
        assert self.habits.may_lose or self.is_leaving, "lost partitions, and nothing broke"
        self.did.add("lose")
        self._give_up(partitions)

    def _give_up(self, partitions: Sequence[TopicPartition]) -> None:
        assert self.owned >= set(partitions), "gave up what was not owned"
        self.owned -= set(partitions)
        self._resting -= set(partitions)
        for partition in partitions:
            self._next_offset.pop(partition, None)
            self._begins.pop(partition, None)
