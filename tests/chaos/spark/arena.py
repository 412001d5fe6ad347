"""A query on the Spark cluster that copies numbered records to another topic, under faults.

Partition p of the source has the numbers 0, 1, 2 ... in order. The query writes them to the sink,
or keeps all of them in its state and writes the state. Faults strike when frames pass the brokers'
proxies: while an acknowledgement is withheld, its task is in `write`.

Owner: the thread of the scenario that made it.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections import Counter, defaultdict
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pykclient import Admin
from pykclient import TopicPartition as Partition
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing import Blackhole, Delay, Direction
from pykclient.testing.cluster.processes import BrokerState
from pykclient.testing.spark_cluster.cluster import WORKER_HOSTS
from pykclient.testing.spark_cluster.process_table import ProcessTable
from spark_connector.exactly_once.cluster import SinkCluster
from spark_connector.exactly_once.names import ATOMIC_TASK
from spark_connector.exactly_once.protocol import SinkProtocol
from tests.chaos.spark.canary import SECRET, SECURITY, hide_secret, shown
from tests.chaos.spark.judge import (
    PARTITION_COUNT,
    Result,
    judged_committed_rows,
    judged_committed_state,
    judged_rows,
    judged_state,
    repeated_rows,
    repeated_states,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pykclient.testing import KafkaCluster, SparkApplication, SparkCluster
    from pykclient.testing.cluster.processes import ServerProcess
    from pykclient.testing.spark_cluster.application import Executor
    from pykclient.testing.spark_cluster.process_table import FoundProcess
    from tests.chaos.spark.delivery import Kind

ROWS_OF_BATCH = 20
"""Records of a batch, in each partition."""
BATCH_COUNT = 12
CORE_COUNT = 4
REPLICATION = 3
TIMEOUT_S = 600.0
LOOK_S = 0.05
LOG_TAIL = 3_000
READ_MAX = 1_000
QUERY = Path(__file__).with_name("query.py")
ROOT = Path(__file__).parents[3]
BROKERS = (1, 2, 3)
JAVA_OPTIONS = "spark.executor.extraJavaOptions"
TASK_STARTED = re.compile(r"Starting task .* \(TID (\d+)\) \([^,]+, *executor (\d+)")
PYTHON_STARTED = re.compile(r"Starting Python task execution .* \(TID (\d+)\)")
PYTHON_ENDED = re.compile(r"Times: total = .* \(TID (\d+)\)")
"""A task has several Python processes, for instance a reader and a writer."""
TASK_ENDED = re.compile(r"(?:Finished|Lost) task .* \(TID (\d+)\)")
OURS = "pykafka"
OFFICIAL = "kafka"

PATIENT = {
    "kafka.request.timeout.ms": "300000",
    "kafka.delivery.timeout.ms": "600000",
    "kafka.transaction.timeout.ms": "900000",
}
"""A producer waits for an acknowledgement that is withheld: retries would distort the counts of
records written again. Brokers abort no transaction meanwhile."""

BROKER_SETTINGS = {
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
    "min.insync.replicas": 2,
    # One coordinator has all transactions, so that those of a batch end in order.
    "transaction.state.log.num.partitions": 1,
}
TRANSACTIONS = "__transaction_state"
BARRIER_AND_DECISION = 2
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
OPEN_S_MAX = 60.0
"""Time after the end of a query at which a transaction that is still open counts as left behind."""


class SparkArena:
    """A query, its topics and its drivers.

    `settings` are additional settings of Spark, and `read` additional options of the source.
    """

    def __init__(
        self, kafka: KafkaCluster, spark: SparkCluster, *, kind: Kind, batch_count: int
    ) -> None:
        self.kafka = kafka
        self.spark = spark
        self.is_stateful = kind.is_stateful
        self.delivery = kind.delivery
        self.batch_count = batch_count
        self.name = f"chaos-{uuid.uuid4().hex[:8]}"
        self.source, self.sink = f"{self.name}-in", f"{self.name}-out"
        self.checkpoint = spark.folder / self.name
        self.stop_file = spark.folder / f"{self.name}.stop"
        self.events = spark.folder / "events"
        self.events.mkdir(exist_ok=True)
        self.drivers: list[SparkApplication] = []
        self.settings: dict[str, str] = {}
        self.read: dict[str, str] = {}
        self.held_count = 0
        """Number of tasks that were held when `await_held` returned."""
        self.killed_brokers: set[int] = set()
        """Brokers whose proxies stay shut."""
        self._sent_count = 0
        self._swallowed_before = 0
        self._counted_before = 0
        self.settings_of_clients = kafka.client_settings()
        user, password = next(iter(SECURITY.users.items()))
        self._peer = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "security.protocol": self.settings_of_clients["security_protocol"],
            "sasl.mechanism": self.settings_of_clients["sasl_mechanism"],
            "sasl.username": user,
            "sasl.password": password,
        }
        topics = [
            NewTopic(topic, PARTITION_COUNT, REPLICATION) for topic in (self.source, self.sink)
        ]
        admin = AdminClient({**self._peer})
        for made in admin.create_topics(topics).values():
            made.result(TIMEOUT_S)

    def send(self, batch_count: int) -> None:
        """Write the next numbers to each partition of the source, for `batch_count` batches."""
        producer = Producer({**self._peer})
        first, end = self._sent_count, self._sent_count + batch_count * ROWS_OF_BATCH
        for number in range(first, end):
            for partition in range(PARTITION_COUNT):
                producer.produce(self.source, b"%d" % number, partition=partition)
        assert producer.flush(TIMEOUT_S) == 0
        self._sent_count = end

    def start(self, *, is_live: bool = False, source: str = OURS) -> SparkApplication:
        """Start a driver of the query, from its checkpoint if there is one.

        `source` is the format of the source.
        """
        brokers = {
            f"kafka.{name.replace('_', '.')}": value
            for name, value in self.settings_of_clients.items()
        }
        job = {
            "is_live": is_live,
            "source": source,
            "is_stateful": self.is_stateful,
            "checkpoint": str(self.checkpoint),
            "stop": str(self.stop_file),
            "brokers": str(hide_secret(self.spark.folder, json.dumps(brokers))),
            "read": {
                "subscribe": self.source,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(PARTITION_COUNT * ROWS_OF_BATCH),
                **self.read,
            },
            "write": {"topic": self.sink, **PATIENT, **self.delivery.options(self.name)},
        }
        settings = {
            "spark.cores.max": str(CORE_COUNT),
            # No batch begins before both hosts are registered.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "180s",
            "spark.sql.shuffle.partitions": "2",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": str(self.events),
            # Executors log their options, so their logs contain the query's name, too.
            JAVA_OPTIONS: f"{self.spark.settings[JAVA_OPTIONS]} -Dchaos.query={self.name}",
            **self.settings,
        }
        # Python processes import this package from the work tree like an installed wheel.
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        driver = self.spark.submit(
            QUERY, json.dumps(job), settings=settings, environment={"PYTHONPATH": path}
        )
        self.drivers.append(driver)
        return driver

    def await_batch(self, driver: SparkApplication, number: int) -> None:
        """Wait until the driver has reported batch `number`, or a later one."""
        self._await_running(
            lambda: self.reported_batch(driver) >= number, f"no batch {number}", driver
        )

    def reported_batch(self, driver: SparkApplication) -> int:
        """Return the last batch that the driver has reported, or -1."""
        found = re.findall(r"^BATCH (\d+)$", driver.log_text(), re.MULTILINE)
        return max(map(int, found), default=-1)

    def await_log(self, driver: SparkApplication, pattern: str, *, behind: int = 0) -> None:
        """Wait until Spark's driver has logged a match, after the first `behind` characters."""
        self._await_running(
            lambda: re.search(pattern, driver.log_text()[behind:]) is not None,
            f"the driver did not log {pattern}",
            driver,
        )

    def await_death(self, driver: SparkApplication) -> int:
        """Wait until the driver has ended, and return its status."""
        self.await_true(lambda: not driver.is_alive, "the driver does not end", driver)
        return driver.wait(TIMEOUT_S)

    def await_end(self, driver: SparkApplication) -> None:
        """Wait until the driver has read everything and ended without an error."""
        status = self.await_death(driver)
        assert status == 0, f"the driver ended with {status}:\n{driver.log_text()[-LOG_TAIL:]}"

    def swallow(
        self,
        api: ApiKey,
        direction: Direction = Direction.RESPONSE,
        *,
        at_most: int | None = None,
    ) -> None:
        """Swallow the responses of an API from now on, after brokers have handled the requests.

        With `Direction.REQUEST` the requests are swallowed. Their connections hang until `heal`.
        With `at_most`, only the leader of the sink's first partition is affected, and only for so
        many frames.
        """
        leader = self.kafka.leader(self.sink, 0)
        self._swallowed_before = self._swallowed_count()
        fault = Blackhole(api=api, direction=direction, count_max=at_most)
        for broker in BROKERS if at_most is None else (leader,):
            self.kafka.proxy(broker).inject(fault)

    def await_swallowed(self, count: int) -> None:
        """Wait until `count` frames have been swallowed."""
        self._await_running(
            lambda: self._swallowed() >= count, f"{count} frames did not come", self.drivers[-1]
        )

    def hold_writes(self, direction: Direction = Direction.RESPONSE) -> list[Executor]:
        """Withhold the acknowledgements of a batch; return the executors with tasks in `write`.

        Brokers have then written the records, so a task that is repeated writes them again. With
        `Direction.REQUEST` the requests are withheld.
        """
        self.swallow(ApiKey.PRODUCE, direction)
        return self.await_held()

    def await_held(self) -> list[Executor]:
        """Wait until a frame of each running task has been swallowed; return the tasks' executors.

        A task that received its response earlier may still end, so a count alone is not enough. A
        task without rows sends nothing, and ends.
        """
        driver = self.drivers[-1]

        self._await_running(
            lambda: 0 < len(self._running_tasks(driver)) <= self._swallowed(),
            "there is no batch whose tasks are all held",
            driver,
        )
        held = self._running_tasks(driver)
        self.held_count, holding = len(held), set(held.values())
        return [each for each in driver.executors() if each.executor_id in holding]

    def hold_ends(self, direction: Direction, *, tasks: int) -> None:
        """Release held tasks and the ends of `tasks` transactions; hold later ends.

        The sink's own transactions pass, too: the barrier and the decision. The query is paused
        while the fault is changed, so that no frame passes uncounted.
        """
        counted_before = self._counted_count()
        with self.paused():
            self.heal()
            for broker in BROKERS:
                # One of them is the coordinator.
                self.kafka.proxy(broker).inject(
                    Delay(
                        api=ApiKey.END_TXN,
                        direction=direction,
                        count_max=tasks + BARRIER_AND_DECISION,
                        delay_ms=0,
                    )
                )
            self.swallow(ApiKey.END_TXN, direction)
        self.await_swallowed(1)
        assert self._counted_count() - counted_before == tasks + BARRIER_AND_DECISION

    def _running_tasks(self, driver: SparkApplication) -> dict[str, str]:
        """Return the executor of each task that was started by Spark's driver and has not ended."""
        log = driver.log_text()
        ended = {*TASK_ENDED.findall(log)}
        return {task: on for task, on in TASK_STARTED.findall(log) if task not in ended}

    def await_held_to_write(self, executors: list[Executor]) -> None:
        """Wait until the Python processes on executors have finished the running tasks.

        The tasks themselves wait: an executor asks the driver, which may be paused, whether they
        may commit.
        """
        driver = self.drivers[-1]
        wanted = set(self._running_tasks(driver))
        logs = [
            self.spark.folder / "work" / driver.id / each.executor_id / "stderr"
            for each in executors
        ]

        def have_written() -> bool:
            texts = [log.read_text() for log in logs]
            begun, ended = (
                Counter(task for text in texts for task in pattern.findall(text))
                for pattern in (PYTHON_STARTED, PYTHON_ENDED)
            )
            return all(0 < begun[task] == ended[task] for task in wanted)

        self.await_true(have_written, "tasks do not finish writing", driver)

    @contextmanager
    def paused(self, *, but: Executor | None = None) -> Iterator[None]:
        """Pause all processes of the query, except `but`, during the block."""
        driver = self.drivers[-1]
        executors = [each for each in driver.executors() if each != but]
        driver.pause()
        for executor in executors:
            executor.pause()
        try:
            yield
        finally:
            for executor in executors:
                executor.resume()
            driver.resume()

    def count(self, api: ApiKey) -> None:
        """Count the responses of an API from now on until `heal`."""
        self._counted_before = self._counted_count()
        for broker in BROKERS:
            self.kafka.proxy(broker).inject(Delay(api=api, delay_ms=0))

    def counted(self) -> int:
        """Return the number of responses since `count` was called."""
        return self._counted_count() - self._counted_before

    def _counted_count(self) -> int:
        return sum(self.kafka.proxy(broker).counts["Delay"] for broker in BROKERS)

    def server_of(self, executor: Executor) -> ServerProcess:
        """Return Spark's worker on the host of an executor; it starts and ends the executor."""
        return self.spark.workers[WORKER_HOSTS.index(executor.host)]

    def heal(self) -> None:
        """Remove all faults. Connections that hang are reset, and clients retry."""
        for broker in BROKERS:
            if broker not in self.killed_brokers:
                self.kafka.proxy(broker).heal()

    def kill_broker(self, broker: int) -> None:
        self.killed_brokers.add(broker)
        self.kafka.kill(broker)

    def start_broker(self, broker: int) -> None:
        """Start a killed broker again, and heal its proxy, which `heal` skips."""
        self.kafka.start(broker)
        self.killed_brokers.discard(broker)
        self.kafka.proxy(broker).heal()

    def logged_batches(self, folder: str) -> list[int]:
        """Return the batches in ``offsets``, which Spark has begun, or ``commits``, which ended."""
        return sorted(
            int(path.name) for path in (self.checkpoint / folder).glob("*") if path.name.isdigit()
        )

    def written_count(self) -> int:
        """Return the number of records in the sink, including uncommitted ones."""
        return sum(map(len, self._read_sink().values()))

    def sink_ends(self) -> list[int]:
        """Return the end offsets of the sink, without a fetch, whose response might be withheld."""
        settings = {**self._peer, "group.id": "judge", "isolation.level": "read_uncommitted"}
        consumer = Consumer(settings)
        try:
            return [
                consumer.get_watermark_offsets(TopicPartition(self.sink, partition), TIMEOUT_S)[1]
                for partition in range(PARTITION_COUNT)
            ]
        finally:
            consumer.close()

    def committed_count(self) -> int:
        """Return the number of committed records in the sink."""
        return sum(map(len, self._read_sink(is_committed=True).values()))

    def again_count(self) -> int:
        """Return how many numbers or states were written again, including uncommitted ones."""
        return (repeated_states if self.is_stateful else repeated_rows)(self._read_sink())

    def planned_count(self) -> int:
        """Return the number of records in the sink once the batch begun last is written."""
        batches = self.logged_batches("offsets")
        return (
            PARTITION_COUNT * len(batches) if self.is_stateful else self._planned_end(batches[-1])
        )

    def await_read(self, driver: SparkApplication) -> None:
        """Wait until Spark has committed the batch that ends at the end of the source."""
        self._await_running(self.has_read_all, "not all is read", driver)

    def has_read_all(self) -> bool:
        """Return whether Spark has committed the batch that ends at the end of the source."""
        ended = self.logged_batches("commits")
        return bool(ended) and self._planned_end(ended[-1]) == PARTITION_COUNT * self._sent_count

    def _planned_end(self, batch: int) -> int:
        """Return the number of records of the source up to the end of a batch."""
        text = (self.checkpoint / "offsets" / str(batch)).read_text()
        return sum(json.loads(text.splitlines()[-1])[self.source].values())

    def await_true(
        self, is_so: Callable[[], bool], trouble: str, driver: SparkApplication | None = None
    ) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        while not is_so():
            late = time.monotonic() > deadline_s
            tail = driver.log_text()[-LOG_TAIL:] if driver is not None else ""
            assert not late, f"{trouble} within {TIMEOUT_S} s\n{tail}"
            time.sleep(LOOK_S)

    def _await_running(
        self, is_so: Callable[[], bool], trouble: str, driver: SparkApplication
    ) -> None:
        """Wait for a condition while the driver runs; fail if it ends before."""
        self.await_true(lambda: not driver.is_alive or is_so(), trouble, driver)
        assert is_so(), f"{trouble}, and the driver ended:\n{driver.log_text()[-LOG_TAIL:]}"

    def await_ended(self, processes: list[FoundProcess], driver: SparkApplication) -> None:
        """Wait until all these processes have ended."""
        self.await_true(
            lambda: not {*processes}.intersection(ProcessTable()), "processes stay", driver
        )

    def close(self) -> None:
        """End all drivers, restart servers, and heal the network."""
        for driver in self.drivers:
            if driver.is_alive:
                driver.kill()
        for server in self.spark.workers:
            if server.state is BrokerState.PAUSED:
                server.resume()
        if self.spark.master.state is BrokerState.STOPPED:
            self.spark.start_master()
        for broker in tuple(self.killed_brokers):
            self.start_broker(broker)
        self.heal()

    def result(self) -> Result:
        """Read the sink, and return the checked result."""
        wanted = [str(number) for number in range(self._sent_count)]
        if not self.delivery.is_exact:
            judge = judged_state if self.is_stateful else judged_rows
            return judge(wanted, self._read_sink())
        committed = self._read_sink(is_committed=True)
        found = (
            judged_committed_state(wanted, committed, len(self.logged_batches("commits")))
            if self.is_stateful
            else judged_committed_rows(wanted, committed)
        )
        return found._replace(again_count=self.again_count())

    def settle(self) -> None:
        """Settle transactions that a zombie opened after the query's end, as an operator does."""
        settings = {name.replace("_", "."): it for name, it in self.settings_of_clients.items()}
        with SinkCluster.of_record(self.name, settings, settings) as cluster:
            cluster.run(SinkProtocol(self.name, ATOMIC_TASK).settle())

    def left_open(self) -> list[str]:
        """Wait until no transaction of the sink is open; return those still open after a minute."""
        deadline_s = time.monotonic() + OPEN_S_MAX
        while (found := self.open_transactions()) and time.monotonic() < deadline_s:
            time.sleep(LOOK_S)
        return [f"left open: {each}" for each in found]

    def open_transactions(self) -> list[str]:
        """Return open transactions, according to the coordinator and to the sink's leaders."""
        partitions = [Partition(self.sink, number) for number in range(PARTITION_COUNT)]
        with Admin(self.settings_of_clients) as admin:
            ongoing = admin.list_transactions(states=OPEN_STATES)
            producers = admin.describe_producers(partitions)
        return [
            *(f"{each.transactional_id}, {each.state}" for each in ongoing.values()),
            *(
                f"{partition} from offset {one.transaction_start_offset}"
                for partition in partitions
                for one in producers[partition]
                if one.transaction_start_offset is not None
            ),
        ]

    def secrets_shown(self) -> list[str]:
        """Return a violation for each file that contains the query's password.

        The query's name must be found in each place; otherwise the search would prove nothing.
        """
        named = shown(self.spark.folder, self.name)
        work = self.spark.folder / "work"
        for place in (self.drivers[0].log, self.events, work, self.checkpoint):
            assert any(path.is_relative_to(place) for path in named), f"{place} was not searched"
        return [f"{path} shows the password" for path in shown(self.spark.folder, SECRET)]

    def _read_sink(self, *, is_committed: bool = False) -> Mapping[int, list[str]]:
        """Return the values of each partition, up to the end that such a reader can reach now."""
        isolation = "read_committed" if is_committed else "read_uncommitted"
        consumer = Consumer(
            {
                **self._peer,
                "group.id": "judge",
                "isolation.level": isolation,
                "enable.partition.eof": True,
            }
        )
        found: dict[int, list[str]] = defaultdict(list)
        ended: set[int] = set()
        deadline_s = time.monotonic() + TIMEOUT_S
        try:
            consumer.assign(
                [
                    TopicPartition(self.sink, partition, OFFSET_BEGINNING)
                    for partition in range(PARTITION_COUNT)
                ]
            )
            while len(ended) < PARTITION_COUNT:
                assert time.monotonic() < deadline_s, "the sink cannot be read"
                message = consumer.poll(1.0)
                if message is None:
                    continue
                partition, error = message.partition() or 0, message.error()
                if error is None:
                    found[partition].append((message.value() or b"").decode())
                    continue
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(partition)
        finally:
            consumer.close()
        return found

    def _swallowed(self) -> int:
        """Return the number of swallowed frames since `swallow` was called."""
        return self._swallowed_count() - self._swallowed_before

    def _swallowed_count(self) -> int:
        return sum(self.kafka.proxy(broker).counts["Blackhole"] for broker in BROKERS)
