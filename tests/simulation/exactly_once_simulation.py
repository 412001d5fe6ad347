"""ExactlyOnce on fake brokers: copiers of a topic in one group, under failures.

A copier is a process with a real `Consumer`, a real `Producer` and a heartbeat thread that runs
`ExactlyOnce`; there are two transactional ids. Chosen by a seed, copiers leave, die, and are
restarted with their transactional id, by mistake also while they live. They stall, as a whole or
without their heartbeat thread, beyond their session or transaction timeout, at each step of a
batch, and continue as zombies. Meanwhile a feeder commits and aborts transactions in the source,
brokers fail, and `CopyJudge` checks every step. In the end everything is healed, and must be
copied.

Owner: the test that created it.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, ClassVar, Final

from pykclient.consumer.consumer import Consumer
from pykclient.consumer.group.rebalance import RebalanceListener
from pykclient.errors import KafkaError, ProducerFencedError
from pykclient.exactly_once import ExactlyOnce
from pykclient.producer.producer import Producer
from tests.simulation.exactly_once_judge import Copy, CopyJudge
from tests.simulation.exactly_once_world import (
    COPIER_IDS,
    FEEDER_ID,
    GROUP,
    KIP848_FAULTS,
    SESSION_TIMEOUT_MS,
    SINK,
    SOURCE,
    TRANSACTION_TIMEOUT_MS,
    CopyWorld,
)
from tests.simulation.simulated_clients import seed_all
from tests.simulation.simulated_process import (
    ProcessThread,
    SimulatedProcess,
    simulated_clients,
)
from tests.simulation.simulated_world import SimulatedTime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pykclient.consumer.record import ConsumerRecords
    from pykclient.types import GroupMetadata, OffsetAndMetadata, TopicPartition
    from tests.simulation.simulated_world import ApiFaults

PROCESS_COUNT_MAX: Final = 4
BREAK_COUNT: Final = 24
QUIET_MS: Final = (0, 5, 50, 300, 1_000, 2_000)
"""Time without further failures after each one."""
END_MAX_MS: Final = 90_000
"""Time limit for the rest of the copy after healing: sessions and transactions must expire, and
requests in progress may take their time."""


class ExactlyOnceSimulation(CopyWorld):
    """A run with a classic group."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.judge = CopyJudge(self.cluster, source=SOURCE, sink=SINK, group=GROUP)
        self.feeder = Feeder(self)
        self.copiers: list[Copier] = []
        self.stop_ms: tuple[int, ...] = (
            5,
            50,
            300,
            self.max_poll_interval_ms + 500,
            SESSION_TIMEOUT_MS + 1_000,
            TRANSACTION_TIMEOUT_MS + 1_000,
        )

    def new_copier(self, name: str) -> Copier:
        return Copier(self, name)

    def run(self) -> None:
        """Break things, heal them, and wait until everything is copied."""
        with simulated_clients(SimulatedTime(self.clock, self.cluster)):
            try:
                self._break_and_heal()
            finally:
                self.feeder.kill()
                for copier in self.copiers:
                    copier.kill()

    def _break_and_heal(self) -> None:
        self._start_missing()
        for _ in range(BREAK_COUNT):
            self._break_something()
            self._live_until(self.clock.now_ms + self.random.choice(QUIET_MS))
        self.heal()
        healed_ms = self.clock.now_ms
        while not (self.feeder.thread.is_done and self.judge.is_complete()):
            self._start_missing()
            self._live_a_step()
            assert self.clock.now_ms - healed_ms <= END_MAX_MS, self._described()
        for copier in self.copiers:
            copier.leave()
        while self.copiers:
            self._live_a_step()
            assert self.clock.now_ms - healed_ms <= END_MAX_MS, self._described()
        while not self.judge.is_complete():  # transactions that the last ones began
            self._live_a_step()
            assert self.clock.now_ms - healed_ms <= END_MAX_MS, self._described()
        self.judge.check_end()
        self.met["copied"] += self.judge.copied_count
        self.met["aborted"] += self.judge.aborted_count

    def _live_until(self, until_ms: int) -> None:
        while self.clock.now_ms <= until_ms:
            self._live_a_step()

    def _live_a_step(self) -> None:
        self._step([self.feeder.thread.turn, *(each.turn for each in self.copiers)])
        self.copiers = [each for each in self.copiers if not each.thread.is_done]
        self.judge.check_step()

    def _described(self) -> str:
        states = [f"{each.name}: {each.describe()}" for each in self.copiers]
        return "\n".join(
            (
                f"seed {self.seed} does not come to its end:",
                *states,
                str(self.cluster.groups.snapshot(GROUP)),
                self.judge.described(),
            )
        )

    # Failures.

    def _break_something(self) -> None:
        self._break_one(
            (0.10, self._stop_one),
            (0.17, self._replace_one),
            (0.23, self._kill_one),
            (0.28, self._have_one_leave),
            (0.40, self._start_missing),
            (0.54, self._move),
            (0.60, self._stop_or_start),
            (0.65, self._hold_markers_back),
            (0.71, self._cut),
            (0.78, self._hold_back),
            (1.00, self._add_fault),
        )

    def heal(self) -> None:
        """Repair everything, and let stalled copiers continue."""
        super().heal()
        for copier in self.copiers:
            copier.go_on()

    def _start_missing(self) -> None:
        for name in COPIER_IDS:
            if not any(each.name == name and not each.is_leaving for each in self.copiers):
                self.met["start"] += 1
                self.copiers.append(self.new_copier(name))

    def _stop_one(self) -> None:
        if self.copiers:
            self.random.choice(self.copiers).stop(self.random.choice(self.stop_ms))

    def _replace_one(self) -> None:
        """Stall a copier, and start another one with its id."""
        if self.copiers and len(self.copiers) < PROCESS_COUNT_MAX:
            self.met["replace"] += 1
            copier = self.random.choice(self.copiers)
            copier.stop(self.random.choice(self.stop_ms))
            self.copiers.append(self.new_copier(copier.name))

    def _kill_one(self) -> None:
        if self.copiers:
            self.met["kill"] += 1
            copier = self.random.choice(self.copiers)
            copier.kill()
            self.copiers.remove(copier)
            if self.random.random() < 0.5:
                self.copiers.append(self.new_copier(copier.name))

    def _have_one_leave(self) -> None:
        if self.copiers:
            self.met["leave"] += 1
            self.random.choice(self.copiers).leave()


class Kip848ExactlyOnceSimulation(ExactlyOnceSimulation):
    """A run with a group of KIP-848."""

    api_faults: ClassVar[ApiFaults] = KIP848_FAULTS

    def _draw_group_settings(self) -> dict[str, object]:
        assignor = self.random.choice(("", "uniform", "range"))
        return {"group_protocol": "consumer", "group_remote_assignor": assignor}


class HandlerError(Exception):
    """Failure of a batch's block."""


class Life:
    """A process and its program's thread."""

    def __init__(self, world: ExactlyOnceSimulation, name: str) -> None:
        self.world = world
        self.name = name
        self.process = SimulatedProcess(world.network)
        self.thread = ProcessThread(self.process, self._live)

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.thread.kill()

    def _live(self) -> None:
        raise NotImplementedError


class Feeder(Life):
    """The producer of the source, in transactions of which some are aborted."""

    def __init__(self, world: ExactlyOnceSimulation) -> None:
        super().__init__(world, FEEDER_ID)
        self._sent_count = 0

    def _live(self) -> None:
        world = self.world
        while world.is_faulty or not self._sent_count:
            producer = Producer(world.producer_settings(self.name))
            try:
                self._feed(producer)
            except KafkaError:
                world.met["feeder fails"] += 1
                self.thread.sleep(100)
            producer.close(5)

    def _feed(self, producer: Producer) -> None:
        world, random = self.world, self.world.random
        producer.init_transactions()
        while world.is_faulty or not self._sent_count:
            producer.begin_transaction()
            for _ in range(random.randint(1, 8)):
                partition = random.randrange(world.partition_count)
                producer.send(SOURCE, b"%d" % self._sent_count, partition=partition)
                self._sent_count += 1
            if random.random() < 0.2:
                producer.flush()  # otherwise the abort would drop most of it
                producer.abort_transaction()
            else:
                producer.commit_transaction()
            self.thread.sleep(random.choice((20, 200, 500, 1_000)))


LEAVING_EVERY: Final = 7
LEAVING_REST: Final = 3
"""In seeds 3, 10, 17, ... copiers sometimes leave batches early."""


class Copier(Life):
    """A process that copies, a member of the group."""

    def __init__(self, world: ExactlyOnceSimulation, name: str) -> None:
        super().__init__(world, name)
        self.is_leaving = False
        self.consumer: Consumer[bytes, bytes] | None = None
        self._leaving = Random(f"{world.seed} {name}")

    def turn(self, now_ms: int) -> int:
        """Continue its threads that are due; return when to call again."""
        threads = [self.thread, *self.process.background]
        self.world.random.shuffle(threads)
        return min(thread.turn(now_ms) for thread in threads)

    def stop(self, duration_ms: int) -> None:
        """Stall its program, or the whole process, from now on."""
        self._stop_background(duration_ms)
        self.thread.stopped_until_ms = self.world.clock.now_ms + duration_ms

    def stop_here(self, probability: float = 0.03) -> None:
        """Stall with this probability. For the program itself."""
        if self.world.chance(probability):
            duration_ms = self.world.random.choice(self.world.stop_ms)
            self._stop_background(duration_ms)
            self.thread.sleep(duration_ms)

    def _stop_background(self, duration_ms: int) -> None:
        world = self.world
        is_whole = world.random.random() < 0.6
        world.met["stop of a process" if is_whole else "stop of a thread"] += 1
        for limit_ms, what in (
            (world.max_poll_interval_ms, "the poll interval"),
            (SESSION_TIMEOUT_MS, "the session"),
            (TRANSACTION_TIMEOUT_MS, "the transaction's time"),
        ):
            world.met[f"stop beyond {what}"] += duration_ms > limit_ms
        if is_whole:
            for thread in self.process.background:
                early_ms = world.random.choice((0, 0, 100))
                thread.stopped_until_ms = world.clock.now_ms + max(0, duration_ms - early_ms)

    def go_on(self) -> None:
        """End the stall."""
        for thread in (self.thread, *self.process.background):
            thread.stopped_until_ms = 0

    def leave(self) -> None:
        """Make it end cleanly."""
        self.is_leaving = True
        if self.consumer is not None:
            self.consumer.wakeup()

    def describe(self) -> str:
        """Return its state."""
        return f"{self.consumer!r} due {self.thread._due_ms}"

    def _live(self) -> None:
        while not self.is_leaving:
            try:
                self._run()
            except ProducerFencedError:
                self.world.met["fenced"] += 1
                if self._has_successor:
                    return
            except KafkaError as error:
                self.world.met[type(error).__name__] += 1
                self.thread.sleep(100)

    @property
    def _has_successor(self) -> bool:
        others = [each for each in self.world.copiers if each.name == self.name]
        return bool(others) and others[-1] is not self

    def _run(self) -> None:
        """Copy until an error, then close the clients."""
        world = self.world
        consumer = self.consumer = StoppingConsumer(self, world.consumer_settings(self.name))
        producer = StoppingProducer(self, world.producer_settings(self.name))

        def copy(records: ConsumerRecords[bytes, bytes]) -> None:
            self.copy(producer, records)
            if world.chance(0.03):
                raise HandlerError

        try:
            consumer.subscribe([SOURCE], listener=self._listener())
            exactly_once = ExactlyOnce(consumer, producer)
            seed_all(exactly_once._loop._backoff, world.random.getrandbits(32))
            self._repeat(lambda: exactly_once.run(copy))
        finally:
            if not self.process.is_dead:
                producer.close(5)
                consumer.close(5)

    def copy(self, producer: StoppingProducer, records: ConsumerRecords[bytes, bytes]) -> None:
        """Send the copies of a batch."""
        for record in records:
            if self._leaves_early():
                return
            assert record.value is not None
            value = Copy(record.partition, record.offset, record.value).to_value()
            producer.send(SINK, value, partition=record.partition)
            if self.world.chance(0.1):
                producer.flush()
                self.stop_here(0.3)
            self.stop_here()
            if self._leaves_early():
                return

    def _leaves_early(self) -> bool:
        """Return whether to leave a batch now; the record in hand may be half processed."""
        world = self.world
        if world.seed % LEAVING_EVERY != LEAVING_REST or not world.is_faulty:
            return False
        leaves = self._leaving.random() < 0.1
        world.met["batch left early"] += leaves
        return leaves

    def _repeat(self, run: Callable[[], None]) -> None:
        """Repeat after an error raised by a block."""
        while True:
            try:
                run()
            except HandlerError:
                self.world.met["block fails"] += 1
            else:
                return

    def _listener(self) -> RebalanceListener:
        def noted(what: str) -> Callable[[Sequence[TopicPartition]], None]:
            def note(partitions: Sequence[TopicPartition]) -> None:
                self.world.met[what] += bool(partitions)

            return note

        return RebalanceListener(noted("assigned"), noted("revoked"), noted("lost"))


class StoppingConsumer(Consumer[bytes, bytes]):
    """A consumer whose process sometimes stalls between its steps."""

    def __init__(self, copier: Copier, settings: dict[str, object]) -> None:
        super().__init__(settings)
        self._copier = copier

    def committed(
        self, partitions: Iterable[TopicPartition] | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Count a rewind, and maybe stall first."""
        self._copier.world.met["rewind"] += 1
        self._copier.stop_here()
        return super().committed(partitions, timeout)


class StoppingProducer(Producer[bytes, bytes]):
    """A producer whose process sometimes stalls between its steps."""

    def __init__(self, copier: Copier, settings: dict[str, object]) -> None:
        super().__init__(settings)
        self.copier = copier

    def begin_transaction(self) -> None:
        """Maybe stall, then begin a transaction."""
        self.copier.stop_here()
        super().begin_transaction()

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: GroupMetadata,
    ) -> None:
        """Add offsets to the transaction, then maybe stall."""
        super().send_offsets_to_transaction(offsets, group_metadata)
        self.copier.stop_here()

    def commit_transaction(self) -> None:
        """Commit the transaction, then maybe stall."""
        super().commit_transaction()
        self.copier.stop_here()

    def abort_transaction(self) -> None:
        """Maybe stall, then abort the transaction."""
        self.copier.world.met["abort"] += 1
        self.copier.stop_here()
        super().abort_transaction()
