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

from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar
from unittest.mock import patch
from zlib import crc32

from pykclient.errors import KafkaError
from pykclient.types import TopicPartition
from spark_connector.client_settings import ClientSettings
from spark_connector.exactly_once import cluster as cluster_module
from spark_connector.exactly_once import driver as driver_module
from spark_connector.exactly_once import record as record_module
from spark_connector.exactly_once.cluster import SinkCluster
from spark_connector.exactly_once.delivery import ExactDelivery
from spark_connector.exactly_once.driver import SinkDriver
from spark_connector.exactly_once.names import ATOMIC_TASK
from spark_connector.exactly_once.protocol import (
    Action,
    End,
    MissingRowsError,
    Report,
    SinkProtocol,
    Step,
    Steps,
    View,
)
from spark_connector.exactly_once.record import SinkRecord, Stage, Written
from tests.simulation.simulated_clients import SimulatedConsumer
from tests.simulation.simulated_process import (
    ProcessThread,
    SimulatedProcess,
    simulated_clients,
    sleep_in_process,
)
from tests.simulation.simulated_world import SimulatedTime
from tests.simulation.transaction_world import REQUEST_TIMEOUT_MS
from tests.spark.sink_defects import Defect
from tests.spark.sink_judge import Identity, Row, SinkJudge
from tests.spark.sink_world import (
    CALL_TIMEOUT_MS,
    PARTITION_COUNT,
    SINK,
    TOPIC,
    TRANSACTION_TIMEOUT_MS,
    SinkWorld,
)

if TYPE_CHECKING:
    from pykclient import Producer

_Returned = TypeVar("_Returned")

QUERY: Final = "query"
BATCH_COUNT: Final = 4
ROW_COUNTS: Final = (6, 6, 6, 5, 2, 1, 0)
FAULTY_STEPS: Final = 3_000
STEPS_MAX: Final = 30_000
INTO_COMMIT_MS: Final = (1, 20, 50, 100, 150, 200, 300)
STOP_MS: Final = (50, 500, 3_000, TRANSACTION_TIMEOUT_MS + 1_000)


class SinkSimulation(SinkWorld):
    """One run: the query's checkpoint, and everything that runs."""

    def __init__(
        self, seed: int, atomicity: str = ATOMIC_TASK, defect: Defect | None = None
    ) -> None:
        super().__init__(seed)
        self.defect = defect or Defect()
        self.atomicity = atomicity
        self.judge = SinkJudge(self.cluster, SINK, TOPIC, self.lost)
        self.checkpoint = 0
        """The batch that comes next."""
        self.batch_count = BATCH_COUNT
        self.task_counts: dict[int, int] = {}
        self.row_counts: dict[int, int] = {}
        self.drivers: list[Driver] = []
        self.attempts: list[Attempt] = []
        self.operators: list[Operator] = []
        self.workers: list[Worker] = []
        self.until_commit: list[ProcessThread] = []
        """Drivers that go on, at the latest, when another one is about to commit."""
        self.until_decided: list[ProcessThread] = []
        """Drivers that go on, at the latest, when another one has decided a batch."""
        self._decided_number = -1
        self.attempt_count = self.worker_count = self.application_count = 0
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
        """Inject faults, heal them, run all batches to their end, and then one more."""
        time = SimulatedTime(self.clock, self.cluster)
        # A record of one part is the rule, and one of many is read by parts.
        part_length_max = self.random.choice((record_module.PART_LENGTH_MAX, 90))
        with (
            simulated_clients(time),
            patch.object(driver_module, "SinkCluster", StoppingCluster),
            patch.object(cluster_module, "sleep", sleep_in_process),
            patch.object(record_module, "PART_LENGTH_MAX", part_length_max),
        ):
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
        self.operators = [each for each in self.operators if not each.thread.is_done]
        self.judge.check_step()
        record = self.judge.record
        is_decided = record is not None and record.stage is Stage.DECIDED
        if is_decided and record is not None and record.number > self._decided_number:
            self._decided_number = record.number
            for thread in self.until_decided:
                thread.wake(0)
            self.until_decided.clear()

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
        lives: list[Driver | Attempt | Operator]
        lives = [*self.drivers, *self.attempts, *self.operators]
        return [each.thread for each in lives]

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
        if self.chance(0.0005):
            self.met["operator"] += 1
            self.operators.append(Operator(self))
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

    def wake_others(self) -> None:
        """Wake stopped drivers during the commit that begins now, or when their time is up."""
        for thread in self.until_commit:
            if self.chance(0.7):
                thread.wake(self.random.choice(INTO_COMMIT_MS))
        self.until_commit.clear()

    def stop_before(self, step: Step, thread: ProcessThread) -> None:
        """Stop a driver before a step at which its defect shows.

        It stops while another driver decides a batch, or for a while after it has decided one
        itself.
        """
        if isinstance(step, End):
            thread.sleep(self.random.choice((50, 200, 500)))
            return
        if len(self.drivers) < 2:
            self.drivers.append(Driver(self))
        self.until_decided.append(thread)
        thread.sleep(STOP_MS[-1])

    def _stop(self, thread: ProcessThread) -> None:
        self.met["stop"] += 1
        thread.stopped_until_ms = self.clock.now_ms + self.random.choice(STOP_MS)

    def kill(self, driver: Driver) -> None:
        """Kill a driver; its attempts die with it, or run on for a while."""
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
        """End an attempt wherever it is."""
        attempt.thread.kill()
        self.attempts = [each for each in self.attempts if each is not attempt]

    def _kill_all(self) -> None:
        for driver in list(self.drivers):
            self.kill(driver)
        for attempt in list(self.attempts):
            self.end(attempt)
        for operator in self.operators:
            operator.process.kill()
            operator.thread.kill()
        for worker in list(self.workers):
            self._kill_worker(worker)

    def chosen_worker(self) -> Worker:
        """Return a worker that is idle, perhaps a new one."""
        idle = [each for each in self.workers if each not in [a.worker for a in self.attempts]]
        if not idle or self.chance(0.05):
            self.workers.append(Worker(self, f"w{self.worker_count}"))
            self.worker_count += 1
            return self.workers[-1]
        return self.random.choice(idle)

    def sink_driver(self, application: str = "") -> SinkDriver:
        """Return a driver's part of the sink, with clients of the present thread's process."""
        delivery = ExactDelivery(SINK, self.atomicity, None, TOPIC)
        return SinkDriver(delivery, self.client(), application)

    def new_application(self) -> str:
        """Return the name of the next Spark application; of every other one it is not known."""
        self.application_count += 1
        is_known = self.application_count % 2 == 0
        return f"application-{self.application_count}" if is_known else ""

    def client(self) -> ClientSettings:
        """Return the settings of all clients of the sink."""
        given = {
            "bootstrap.servers": self.bootstrap,
            "client.id": "sink",
            "request.timeout.ms": REQUEST_TIMEOUT_MS,
            "default.api.timeout.ms": CALL_TIMEOUT_MS,
            "max.block.ms": CALL_TIMEOUT_MS,
            "delivery.timeout.ms": CALL_TIMEOUT_MS,
            "linger.ms": 0,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        }
        return ClientSettings({key: str(value) for key, value in given.items()})


class Driver:
    """A driver of Spark that runs the query."""

    def __init__(self, world: SinkSimulation) -> None:
        self.world = world
        self.process = SimulatedProcess(world.network)
        self.thread = ProcessThread(self.process, self._live)
        self.application = world.new_application()
        self.batch = -1
        """The one whose tasks run, or have run last."""
        self.reports: dict[int, Report] = {}
        self.failure: KafkaError | None = None

    def _live(self) -> None:
        """Run batches. Spark plans and commits in two processes, either of which may be new."""
        world = self.world
        planner, committer = self._sink_driver(), self._sink_driver()
        try:
            while world.checkpoint < world.batch_count:
                self._run_batch(planner, committer)
                if world.chance(0.1):
                    planner.close()
                    planner = self._sink_driver()
                if world.chance(0.1):
                    committer.close()
                    committer = self._sink_driver()
        except MissingRowsError:
            self._note_missing()
        except KafkaError:
            pass  # the query has failed; somebody starts it again
        planner.close()
        committer.close()

    def _sink_driver(self) -> SinkDriver:
        world = self.world
        driver = world.sink_driver(self.application)
        driver._protocol = world.defect.protocol(SINK, world.atomicity)
        assert isinstance(driver._cluster, StoppingCluster)
        driver._cluster.driver = self
        return driver

    def _run_batch(self, planner: SinkDriver, committer: SinkDriver) -> None:
        world = self.world
        batch = self.batch = world.checkpoint
        self._run_tasks(planner.view(), batch)
        reports = [self.reports[task] for task in sorted(self.reports)]
        world.wake_others()
        try:
            committer.commit(batch, reports)
        except KafkaError:
            committer.abort(batch, reports)
            raise
        self.thread.sleep(world.random.choice((0, 5, 50)))
        world.checkpoint = max(world.checkpoint, batch + 1)

    def stop(self, weak: Step | None) -> None:
        """Stand still, perhaps; before a step at which the defect shows, rather."""
        world = self.world
        if weak is not None and world.chance(0.6):
            world.stop_before(weak, self.thread)
        elif world.chance(0.15):
            world.met["stop between steps"] += 1
            stop_ms = world.random.choice((5, 50, 50, *STOP_MS, *STOP_MS))
            if stop_ms > 1_000:
                world.replace_driver()
                world.until_commit.append(self.thread)
            self.thread.sleep(stop_ms)

    def _run_tasks(self, view: View, batch: int) -> None:
        world = self.world
        self.reports, self.failure = {}, None
        count = self._task_count(batch)
        running: list[Attempt] = []

        def start(task: int, wait_ms: int = 0) -> None:
            attempt = Attempt(self, view, batch=batch, task=task, count=count)
            attempt.has_others = any(each.task == task for each in running)
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
        if world.chance(0.4):
            world.met["late copy"] += 1
            start(world.random.randrange(count), world.random.choice(INTO_COMMIT_MS))

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

    def _note_missing(self) -> None:
        """Follow the advice of the error, as a user would."""
        record = self.world.judge.record
        assert record is not None
        if record.stage is Stage.INCOMPLETE and record.batch == self.batch:
            self.world.met["rows missing"] += 1
            self.world.atomicity = ATOMIC_TASK


class Operator:
    """Somebody who settles the sink while a query writes to it, or before."""

    def __init__(self, world: SinkSimulation) -> None:
        self.world = world
        self.process = SimulatedProcess(world.network)
        self.thread = ProcessThread(self.process, self._live)

    def stop(self, weak: Step | None) -> None:
        """Stand still, perhaps."""
        del weak
        if self.world.chance(0.2):
            self.thread.sleep(self.world.random.choice((5, 50, *STOP_MS)))

    def _live(self) -> None:
        world = self.world
        with world.sink_driver()._cluster as cluster:
            assert isinstance(cluster, StoppingCluster)
            cluster.driver = self
            with suppress(KafkaError):
                cluster.run(SinkProtocol(SINK, world.atomicity).settle())


class StoppingCluster(SinkCluster):
    """The cluster of a driver that stands still between steps now and then, with its defect."""

    driver: Driver | Operator | None = None
    """None for what an attempt looks with."""

    def run(self, steps: Steps[_Returned]) -> _Returned:
        """Run steps to their end."""
        if self.driver is None:
            return super().run(steps)
        is_abort = getattr(steps, "__name__", "") == "abort"
        return super().run(
            self.driver.world.defect.in_steps(steps, self.driver.stop, is_abort=is_abort)
        )

    def _read_behind_barrier(self, producer: Producer) -> SinkRecord | None:
        assert self.driver is not None, "only drivers fence"
        if self.driver.world.defect.trusts_any_coordinator:
            return self._read()
        return super()._read_behind_barrier(producer)


class Worker:
    """A Python worker, which runs one attempt at a time."""

    def __init__(self, world: SinkSimulation, name: str) -> None:
        self.process = SimulatedProcess(world.network)
        self.slots = world.defect.slots(SINK, world.client().of_producer(is_transactional=True))
        self.slots._worker = name
        self._world = world
        self._sink_driver: SinkDriver | None = None

    def sink_driver(self) -> SinkDriver:
        """Return what an attempt reads the record with; the worker keeps it."""
        if self._sink_driver is None:
            self._sink_driver = self._world.sink_driver()
        return self._sink_driver


class Attempt:
    """An attempt of a task, in some worker."""

    def __init__(
        self,
        driver: Driver,
        view: View,
        *,
        batch: int,
        task: int,
        count: int,
    ) -> None:
        world = self.world = driver.world
        self.driver, self.task, self.is_cut_off = driver, task, False
        self.has_others = False
        """True once Spark knows of an earlier attempt of the task."""
        self.worker = world.chosen_worker()
        self.thread = ProcessThread(self.worker.process, self._live)
        self._view, self._batch = view, batch
        self._number = world.attempt_count
        world.attempt_count += 1
        self._rows = world.rows_of_task(batch, task, count, self._number)

    @property
    def is_known(self) -> bool:
        """Tell whether Spark believes that the attempt is running."""
        return not self.thread.is_done and not self.is_cut_off

    def _live(self) -> None:
        protocol = SinkProtocol(SINK, self.world.atomicity)
        try:
            # In a stage that runs again the first attempts have none before them.
            if self.has_others and not self.world.chance(0.2):
                self._view = self.worker.sink_driver().view_again(self._view)
            action = protocol.action(self._view, batch=self._batch, query=QUERY, task=self.task)
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
        self.thread.sleep(self.world.random.choice((0, 0, 5)))
        self._report(written)

    def _write(self) -> Written:
        """Write the rows, and prepare."""
        world, slots = self.world, self.worker.slots
        slots.task = self.task
        with slots.attempt(self._view.turn, self._batch) as attempt:
            for row in self._rows:
                partition = row.number % PARTITION_COUNT
                attempt.producer.send(TOPIC, row.to_value(), partition=partition)
                if world.chance(0.02):
                    world.met["attempt fails"] += 1
                    raise KafkaError("the task fails")
                self.thread.sleep(world.random.choice((0, 0, 5)))
            prepared = attempt.prepare()
            world.judge.prepared[self._number] = Identity(*prepared[:3])
        checksum = crc32(b"%d" % sum(2**row.number for row in self._rows))
        return Written(self.task, len(self._rows), *prepared, checksum)

    def _report(self, written: Written | None) -> None:
        driver = self.driver
        # What a job of an earlier batch reports, Spark drops.
        is_late = driver.batch != self._batch
        if not self.is_cut_off and not is_late and self.task not in driver.reports:
            driver.reports[self.task] = Report(self._view.turn, QUERY, self.task, written)
