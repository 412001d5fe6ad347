"""The exactly-once sink on fake brokers, beside a model of what Spark may do.

Drivers run `SinkCluster`, with a real `Producer` and `Admin` (`tests/simulation/simulated_process`)
and the steps of `SinkProtocol`; attempts of tasks write with real producers. A seed chooses:
attempts fail, are repeated, copied while they go on, and cut off, so that they write on as zombies;
workers and drivers die at any step, stand still at any step, are replaced while they live, forget
their turn, and repeat a batch with as many tasks or others; a commit raises with a part of it done,
and abort follows. Meanwhile `SinkWorld` breaks the brokers, and `SinkJudge` looks after each step.

Owner: the test that made it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from pykclient import Admin, PreparedTransaction, Producer
from pykclient.errors import AdminCallError, KafkaError
from pykclient.types import TopicPartition
from spark_connector.exactly_once.cluster import SinkCluster
from spark_connector.exactly_once.names import ATOMIC_TASK, SlotName, slot_id
from spark_connector.exactly_once.protocol import (
    Action,
    MissingRowsError,
    Report,
    SinkProtocol,
    Steps,
    View,
)
from spark_connector.exactly_once.record import Stage, Written
from tests.simulation.simulated_clients import SimulatedConsumer
from tests.simulation.simulated_process import ProcessThread, SimulatedProcess, simulated_clients
from tests.simulation.simulated_world import SimulatedTime
from tests.spark.sink_defects import Defect
from tests.spark.sink_judge import Identity, Row, SinkJudge
from tests.spark.sink_world import (
    CALL_TIMEOUT_MS,
    PARTITION_COUNT,
    REQUEST_TIMEOUT_MS,
    SINK,
    TOPIC,
    TRANSACTION_TIMEOUT_MS,
    SinkWorld,
)

if TYPE_CHECKING:
    from tests.simulation.simulated_network import SimulatedNetwork

_Returned = TypeVar("_Returned")

QUERY: Final = "query"
BATCH_COUNT: Final = 4
ROW_COUNTS: Final = (6, 6, 6, 5, 2, 1, 0)
FAULTY_STEPS: Final = 3_000
STEPS_MAX: Final = 30_000
STOP_MS: Final = (50, 500, 3_000, TRANSACTION_TIMEOUT_MS + 1_000)
REFUSED: Final = (
    "InvalidProducerEpochError",
    "InvalidProducerIdMappingError",
    "InvalidTxnStateError",
    "ProducerFencedError",
    "TransactionalIdNotFoundError",
)


class SinkSimulation(SinkWorld):
    """One run: the query's checkpoint, and everything that runs."""

    def __init__(self, seed: int, atomicity: str, defect: Defect | None = None) -> None:
        super().__init__(seed)
        self.defect = defect or Defect()
        self.atomicity = atomicity
        self.judge = SinkJudge(self.cluster, SINK, TOPIC, self.timed_out)
        self.checkpoint = 0
        """The batch that comes next."""
        self.batch_count = BATCH_COUNT
        self.task_counts: dict[int, int] = {}
        self.row_counts: dict[int, int] = {}
        self.drivers: list[Driver] = []
        self.attempts: list[Attempt] = []
        self.workers: list[Worker] = []
        self.attempt_count = self.worker_count = 0
        self._reader_due_ms = 0
        self.reader = SimulatedConsumer(
            self.network,
            seed,
            [TopicPartition(TOPIC, number) for number in range(PARTITION_COUNT)],
            bootstrap_servers=self.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=1_000,
            request_timeout_ms=5_000,
        )

    def run(self) -> None:
        """Let things go wrong, heal them, and run all batches to their end; then one more."""
        with simulated_clients(SimulatedTime(self.clock, self.cluster)):
            try:
                self._run()
            finally:
                self._kill_all()

    def _run(self) -> None:
        for number in range(STEPS_MAX):
            if self.is_faulty and (number == FAULTY_STEPS or self.checkpoint == self.batch_count):
                self.heal()
                for thread in self._threads():
                    thread.stopped_until_ms = 0
            if self.checkpoint >= self.batch_count and not self.is_faulty:
                if self.batch_count > BATCH_COUNT:
                    break
                self._kill_all()
                self.batch_count += 1
            self._live_a_step()
        assert self.checkpoint == BATCH_COUNT + 1, f"stuck at batch {self.checkpoint}"
        self._finish()

    def _live_a_step(self) -> None:
        self._begin_and_break()
        self._step([*(each.turn for each in self._threads()), self._read])
        self.drivers = [each for each in self.drivers if not each.thread.is_done]
        self.attempts = [each for each in self.attempts if not each.thread.is_done]
        self.judge.check_step()

    def _read(self, now_ms: int) -> int:
        if self._reader_due_ms <= now_ms or self.reader.port.has_news:
            self._reader_due_ms = self.reader.turn(now_ms)
        return self._reader_due_ms

    def _finish(self) -> None:
        """Wait for the last markers, and for the reader."""
        rows = {
            (batch, row)
            for batch in range(self.batch_count)
            for row in range(self._row_count(batch))
        }
        for _ in range(STEPS_MAX):
            self._step([self._read])
            self.judge.check_step()
            if sum(map(len, self.reader.read.values())) >= len(rows):
                break
        self.judge.check_end(rows)
        for partition, records in self.reader.read.items():
            read = [Row.from_value(record.value) for record in records]
            assert read == self.judge.rows(partition.partition), "the reader has read other rows"

    def _threads(self) -> list[ProcessThread]:
        return [each.thread for each in (*self.drivers, *self.attempts)]

    def _row_count(self, batch: int) -> int:
        if batch not in self.row_counts:
            self.row_counts[batch] = self.random.choice(ROW_COUNTS)
        return self.row_counts[batch]

    def rows_of_task(self, batch: int, task: int, task_count: int, attempt: int) -> list[Row]:
        """Return the rows of a task; the same ones each time."""
        return [
            Row(batch, number, attempt)
            for number in range(task, self._row_count(batch), task_count)
        ]

    # What goes wrong.

    def _begin_and_break(self) -> None:
        if not self.drivers or (len(self.drivers) < 2 and self.chance(0.001)):
            self.drivers.append(Driver(self))
        if not self.is_faulty:
            return
        self.break_brokers()
        if self.chance(0.001) and self.workers:
            self._kill_worker(self.random.choice(self.workers))
        if self.chance(0.002) and self.attempts:
            self._stop(self.random.choice(self.attempts).thread)
        if self.chance(0.002):
            self._stop(self.random.choice(self.drivers).thread)
            self.replace_driver()
        if self.chance(0.001):
            self.kill(self.random.choice(self.drivers))

    def replace_driver(self) -> None:
        """Start a second driver, perhaps, since the one that there is seems to be dead."""
        if len(self.drivers) < 2 and self.random.random() < 0.5:
            self.drivers.append(Driver(self))

    def _stop(self, thread: ProcessThread) -> None:
        self.met["stop"] += 1
        thread.stopped_until_ms = self.clock.now_ms + self.random.choice(STOP_MS)

    def kill(self, driver: Driver) -> None:
        """Have a driver die; its attempts die, too, or go on for a while."""
        self.met["driver"] += 1
        driver.process.kill()
        driver.thread.kill()
        self.drivers = [each for each in self.drivers if each is not driver]
        for each in list(self.attempts):
            if each.driver is driver and self.random.random() < 0.5:
                self.end(each)

    def _kill_worker(self, worker: Worker) -> None:
        self.met["worker"] += 1
        self.workers.remove(worker)
        worker.process.kill()
        for each in list(self.attempts):
            if each.worker is worker:
                self.end(each)

    def end(self, attempt: Attempt) -> None:
        """Have an attempt end where it is."""
        attempt.thread.kill()
        self.attempts = [each for each in self.attempts if each is not attempt]

    def _kill_all(self) -> None:
        for driver in list(self.drivers):
            self.kill(driver)
        for attempt in list(self.attempts):
            self.end(attempt)
        for worker in list(self.workers):
            self._kill_worker(worker)

    def chosen_worker(self) -> Worker:
        """Return a worker for an attempt, perhaps a new one."""
        if len(self.workers) < 2 or self.chance(0.05):
            self.workers.append(Worker(self.network, f"w{self.worker_count}"))
            self.worker_count += 1
        return self.random.choice(self.workers)

    def settings(self, **more: object) -> dict[str, object]:
        """Return the settings of a client."""
        return {
            "bootstrap_servers": self.bootstrap,
            "client_id": "sink",
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
        } | more

    def producer_settings(self) -> dict[str, object]:
        """Return the settings of a producer but for its transactional id."""
        return self.settings(
            max_block_ms=CALL_TIMEOUT_MS,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            linger_ms=0,
            delivery_timeout_ms=CALL_TIMEOUT_MS,
        )


class Driver:
    """A driver of Spark that runs the query."""

    def __init__(self, world: SinkSimulation) -> None:
        self.world = world
        self.process = SimulatedProcess(world.network)
        self.thread = ProcessThread(self.process, self._live)
        self.batch = -1
        """The one whose tasks run, or have run last."""
        self.reports: dict[int, Report] = {}
        self.failure: KafkaError | None = None

    def _live(self) -> None:
        try:
            while self.world.checkpoint < self.world.batch_count:
                self._live_in_one_planner()
        except MissingRowsError:
            self._note_missing(self.batch)
        except KafkaError:
            return  # the query has failed; somebody starts it again

    def _live_in_one_planner(self) -> None:
        """Run batches until the planner's process is another one."""
        world, turn = self.world, None
        admin_settings = world.settings(default_api_timeout_ms=CALL_TIMEOUT_MS)
        with SinkCluster(
            SINK,
            TOPIC,
            producer_settings=world.producer_settings(),
            admin_settings=admin_settings,
            end=lambda written, is_commit: self._end(written, is_commit=is_commit),
        ) as cluster:
            while world.checkpoint < world.batch_count:
                turn = self._run_batch(cluster, turn)
                if world.chance(0.1):
                    return

    def _end(self, written: tuple[Written, ...], *, is_commit: bool) -> frozenset[str]:
        prepared = [PreparedTransaction(*each[2:]) for each in written]
        with Admin(self.world.settings(default_api_timeout_ms=CALL_TIMEOUT_MS)) as admin:
            end = (
                admin.commit_prepared_transactions
                if is_commit
                else admin.abort_prepared_transactions
            )
            try:
                end(prepared)
            except AdminCallError as error:
                errors = dict(error.errors)
            except KafkaError as error:
                if len(prepared) != 1:
                    raise
                errors = {prepared[0].transactional_id: error}
            else:
                return frozenset()
        for each in errors.values():
            if type(each).__name__ not in REFUSED:
                raise each
        return frozenset(errors)

    def _run_batch(self, cluster: SinkCluster, turn: int | None) -> int:
        world = self.world
        batch = self.batch = world.checkpoint
        protocol = world.defect.protocol(SINK, world.atomicity)
        record = cluster.run(self._with_stops(protocol.look(turn)))
        self._run_tasks(protocol, protocol.view(record), batch)
        reports = [self.reports[task] for task in sorted(self.reports)]
        try:
            cluster.run(self._with_stops(protocol.commit(batch, reports)))
        except KafkaError:
            cluster.run(self._with_stops(protocol.abort(batch, reports), is_abort=True))
            raise
        self.thread.sleep(world.random.choice((0, 5, 50)))
        world.checkpoint = max(world.checkpoint, batch + 1)
        return record.turn

    def _with_stops(self, steps: Steps[_Returned], *, is_abort: bool = False) -> Steps[_Returned]:
        """Return steps between which the driver stands still now and then."""
        return self.world.defect.in_steps(steps, self._stop, is_abort=is_abort)

    def _stop(self) -> None:
        world = self.world
        if world.chance(0.1):
            world.met["stop between steps"] += 1
            stop_ms = world.random.choice((5, 50, 50, *STOP_MS))
            if stop_ms > 1_000:
                world.replace_driver()
            self.thread.sleep(stop_ms)

    def _run_tasks(self, protocol: SinkProtocol, view: View, batch: int) -> None:
        world = self.world
        self.reports, self.failure = {}, None
        count = self._task_count(batch)
        running: list[Attempt] = []

        def start(task: int, wait_ms: int = 0) -> None:
            attempt = Attempt(self, protocol, view, batch=batch, task=task, count=count)
            attempt.thread.stopped_until_ms = world.clock.now_ms + wait_ms
            running.append(attempt)
            world.attempts.append(attempt)

        while len(self.reports) < count:
            for task in range(count):
                has_one = any(each.task == task and each.is_known for each in running)
                if task not in self.reports and not has_one:
                    start(task)
                elif world.chance(0.02):
                    world.met["copy"] += 1
                    start(task)
            self.thread.sleep(world.random.choice((5, 20, 50)))
            if self.failure is not None:
                raise self.failure
            for each in running:
                if each.is_known and world.chance(0.02):
                    self._cut_off(each)
        if world.chance(0.3):
            world.met["late copy"] += 1
            start(world.random.randrange(count), world.random.choice((1, 10, 50)))

    def _task_count(self, batch: int) -> int:
        """Return into how many tasks the batch is cut; one that is incomplete mostly as before."""
        world, record = self.world, self.world.judge.record
        if batch not in world.task_counts or world.chance(0.3):
            count = world.random.choice((2, 3))
        else:
            count = world.task_counts[batch]
        if record is None or record.batch != batch:
            world.task_counts[batch] = count
        return count

    def _cut_off(self, attempt: Attempt) -> None:
        world = self.world
        world.met["cut off"] += 1
        attempt.is_cut_off = True
        if world.chance(0.5):
            world.end(attempt)

    def _note_missing(self, batch: int) -> None:
        """The user follows the advice of the error."""
        record = self.world.judge.record
        assert record is not None
        if record.stage is Stage.INCOMPLETE and record.batch == batch:
            self.world.met["rows missing"] += 1
            self.world.atomicity = ATOMIC_TASK


@dataclass
class Kept:
    """The producer of a slot, and the batch that it was used for last."""

    producer: Producer
    batch: int


@dataclass
class Worker:
    """A Python worker, with the slots that it keeps."""

    network: SimulatedNetwork
    name: str
    kept: dict[SlotName, Kept] = field(default_factory=dict)
    count: int = 0

    def __post_init__(self) -> None:
        self.process = SimulatedProcess(self.network)

    def take(self, turn: int, batch: int) -> tuple[SlotName, Producer | None]:
        """Return a slot for an attempt, with its producer where there is one."""
        for name, kept in self.kept.items():
            if name.turn == turn and kept.batch < batch:
                del self.kept[name]
                return name, kept.producer
        self.count += 1
        return SlotName(turn, self.name, self.count), None


class Attempt:
    """An attempt of a task, in some worker."""

    def __init__(
        self,
        driver: Driver,
        protocol: SinkProtocol,
        view: View,
        *,
        batch: int,
        task: int,
        count: int,
    ) -> None:
        world = self.world = driver.world
        self.driver, self.task, self.is_cut_off = driver, task, False
        self.worker = world.chosen_worker()
        self.thread = ProcessThread(self.worker.process, self._live)
        self._protocol, self._view, self._batch = protocol, view, batch
        self._number = world.attempt_count
        world.attempt_count += 1
        self._rows = world.rows_of_task(batch, task, count, self._number)

    @property
    def is_known(self) -> bool:
        """Whether Spark takes it for one that runs."""
        return not self.thread.is_done and not self.is_cut_off

    def _live(self) -> None:
        try:
            action = self._protocol.action(
                self._view, batch=self._batch, query=QUERY, task=self.task
            )
        except KafkaError as error:
            self.driver.failure = error
            return
        if action is Action.SKIP or not self._rows:
            self._report(None)
            return
        try:
            written = self._write()
        except KafkaError:
            return
        if written is not None:
            self.thread.sleep(self.world.random.choice((0, 0, 5)))
            self._report(written)

    def _write(self) -> Written | None:
        """Write the rows, and prepare; None where the attempt fails."""
        world, worker = self.world, self.worker
        slot, producer = worker.take(self._view.turn, self._batch)
        name = slot_id(SINK, world.defect.slot(slot, self.task))
        if producer is None:
            producer = Producer(world.producer_settings() | {"transactional_id": name})
        producer.init_transactions()
        producer.begin_transaction()
        for row in self._rows:
            producer.send(TOPIC, row.to_value(), partition=row.number % PARTITION_COUNT)
            if world.chance(0.02):
                world.met["attempt fails"] += 1
                if world.chance(0.5):
                    producer.close(0)
                return None
            self.thread.sleep(world.random.choice((0, 0, 5)))
        prepared = producer.prepare_transaction()
        assert prepared is not None
        world.judge.prepared[self._number] = Identity(*prepared[:3])
        worker.kept[slot] = Kept(producer, self._batch)
        return Written(self.task, len(self._rows), *prepared)

    def _report(self, written: Written | None) -> None:
        driver = self.driver
        # What a job of an earlier batch reports, Spark drops.
        is_late = driver.batch != self._batch
        if not self.is_cut_off and not is_late and self.task not in driver.reports:
            driver.reports[self.task] = Report(self._view.turn, QUERY, self.task, written)
