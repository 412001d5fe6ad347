"""The exactly-once sink on real brokers, called as Spark's processes do, without Spark.

The tests show what tasks write, what the driver decides, and what attempts and drivers leave behind
when they die.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

from pykclient import Admin
from pykclient.errors import ConfigError, KafkaError, UnknownTopicOrPartitionError
from pykclient.testing import FakeKafka
from spark_connector.exactly_once.cluster import SinkCluster
from spark_connector.exactly_once.driver import SinkDriver
from spark_connector.exactly_once.names import slot_name
from spark_connector.exactly_once.protocol import (
    End,
    MissingRowsError,
    OldBatchError,
    RepeatedOtherwiseError,
    SinkTakenOverError,
    Write,
)
from spark_connector.exactly_once.record import Stage
from spark_connector.sink import Place, Sink
from tests.integration.confluent_tools import confluent_create_topic
from tests.integration.test_transactions import read
from tests.soak import NEWEST, NEWEST_AND_OLDEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pykclient.testing import KafkaCluster
    from pykclient.testing.fixtures import KafkaClusterFactory
    from spark_connector.exactly_once.protocol import Report, Result, Step, Steps, View
    from spark_connector.exactly_once.record import Written

pytestmark = pytest.mark.kafka

VALUES = StructType().add("value", StringType())
KEYED = StructType().add("topic", StringType()).add("value", StringType())
QUERY = "the-query"


class Query:
    """A sink, with the drivers that it has had; `driver` is the one that runs."""

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.sink_id = topic
        self.servers = cluster.bootstrap_servers
        self._drivers: list[SinkDriver] = []
        self.sink = self.sink_of()
        self.driver = self.start()

    def sink_of(self, schema: StructType = VALUES, /, **options: str) -> Sink:
        given = {
            "kafka.bootstrap.servers": self.servers,
            "topic": self.topic,
            "delivery": "exactly_once",
            "sinkId": self.sink_id,
            **{name.replace("_", "."): value for name, value in options.items()},
        }
        return Sink.from_spark({name: value for name, value in given.items() if value}, schema)

    def start(self, sink: Sink | None = None) -> SinkDriver:
        """Return a driver that has just been started, as the next process of Spark has it."""
        sink = sink or self.sink
        assert sink.exactly is not None
        self._drivers.append(SinkDriver(sink.exactly, sink.client))
        self.driver = self._drivers[-1]
        return self.driver

    def attempt(
        self, view: View, batch: int, task: int, *rows: str, query: str = QUERY, attempt: int = 0
    ) -> Report:
        """Run an attempt of a task and return its report."""
        given = iter([pa.record_batch({"value": pa.array(rows, pa.string())})])
        written = self.sink.write_exactly(given, view, Place(batch, query, task, attempt))
        assert next(given, None) is None, "rows were not read to their end"
        assert written.report is not None
        received: Report = pickle.loads(pickle.dumps(written.report))
        return received

    def run(self, batch: int, *tasks: Sequence[str]) -> None:
        """Run a batch in which nothing fails."""
        view = self.driver.view()
        reports = [self.attempt(view, batch, task, *rows) for task, rows in enumerate(tasks)]
        self.driver.commit(batch, reports)

    def visible(self) -> list[str]:
        return sorted(value.decode() for value in read(self.cluster, self.topic, is_open=True))

    def open_ids(self) -> list[str]:
        with Admin(bootstrap_servers=self.servers) as admin:
            found = admin.list_transactions(states=["Ongoing"])
        return sorted(name for name in found if slot_name(self.sink_id, name) is not None)

    def commit_until(self, stop: Callable[[Step], bool], batch: int, reports: list[Report]) -> None:
        """Commit as a driver that dies before a step; the earlier steps are done."""
        assert self.sink.exactly is not None
        settings = {"bootstrap.servers": self.servers}

        def cut(steps: Steps[int]) -> Steps[None]:
            result: Result = None
            try:
                step = next(steps)
                while not stop(step):
                    result = yield step
                    step = steps.send(result)
            finally:
                steps.close()

        with SinkCluster(
            self.sink_id, self.topic, producer_settings=settings, admin_settings=settings
        ) as dying:
            dying.run(cut(self.sink.exactly.protocol.commit(batch, reports)))

    def end_elsewhere(self, written: Iterable[Written | None]) -> None:
        """Abort transactions, as brokers do when their time is over."""
        assert self.sink.exactly is not None
        with SinkCluster.of_record(
            self.sink_id, {"bootstrap.servers": self.servers}, {"bootstrap.servers": self.servers}
        ) as other:
            other.run(_one(End(tuple(each for each in written if each), is_commit=False)))

    def close(self) -> None:
        for driver in self._drivers:
            driver.close()


def _one(step: Step) -> Steps[Result]:
    return (yield step)


@pytest.fixture(scope="module", params=NEWEST_AND_OLDEST)
def cluster(
    request: pytest.FixtureRequest, kafka_cluster_factory: KafkaClusterFactory
) -> Iterator[KafkaCluster]:
    if request.param == NEWEST:
        yield request.getfixturevalue("kafka_cluster")
    else:
        with kafka_cluster_factory(version=request.param) as made:
            yield made


@pytest.fixture
def query(cluster: KafkaCluster) -> Iterator[Query]:
    found = Query(cluster, confluent_create_topic(cluster, "exactly", partition_count=2))
    yield found
    found.close()


@pytest.mark.promise("Spark writes each row once, with delivery=exactly_once")
def test_rows_are_visible_when_their_batch_is_committed(query: Query) -> None:
    view = query.driver.view()
    reports = [query.attempt(view, 0, 0, "a", "b"), query.attempt(view, 0, 1, "c")]
    reports.append(query.attempt(view, 0, 2))
    assert reports[2].written is None, "a task without rows needs no transaction"
    assert query.visible() == []
    query.driver.commit(0, reports)
    assert query.visible() == ["a", "b", "c"]
    query.run(1, ["d"], ["e"])
    assert query.visible() == ["a", "b", "c", "d", "e"]
    assert query.open_ids() == []


@pytest.mark.promise("Spark writes each row once, with delivery=exactly_once")
def test_a_batch_that_is_repeated_after_its_commit_writes_nothing(
    query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    query.run(0, ["a"], ["b"])
    view = query.start().view()
    assert (view.stage, view.batch) == (Stage.COMPLETE, 0)
    reports = [query.attempt(view, 0, task, "again") for task in (0, 1, 2)]
    assert [each.written for each in reports] == [None] * 3
    assert not [each for each in caplog.messages if "skipped" in each]
    query.driver.commit(0, reports)
    assert query.visible() == ["a", "b"]
    (warning,) = [each for each in caplog.messages if "skipped" in each]
    assert f"Sink {query.sink_id!r}: 3 rows of batch 0 for topic {query.topic!r} were" in warning


@pytest.mark.promise("Spark writes each row once, with delivery=exactly_once")
def test_an_old_batch_is_an_error_unless_it_is_to_be_skipped(query: Query) -> None:
    query.run(5, ["a"])
    with pytest.raises(OldBatchError, match="batch 4 is old"):
        query.attempt(query.driver.view(), 4, 0, "lost")
    query.sink = query.sink_of(onOldBatch="skip")
    query.start()
    query.run(4, ["dropped"])
    assert query.visible() == ["a"]


@pytest.mark.promise("Spark writes each row once, with delivery=exactly_once")
def test_a_batch_of_the_same_number_for_another_topic_is_refused(query: Query) -> None:
    query.run(0, ["a"])
    query.sink = query.sink_of(topic=f"{query.topic}-other")
    with pytest.raises(RepeatedOtherwiseError, match=f"written to topic {query.topic!r}"):
        query.attempt(query.driver.view(), 0, 0, "b")


@pytest.mark.promise("Spark writes each row once, with delivery=exactly_once")
def test_of_the_attempts_of_a_task_one_is_visible(query: Query) -> None:
    view = query.driver.view()
    accepted, copy = (query.attempt(view, 0, 0, "a") for _ in range(2))
    assert len(query.open_ids()) == 2
    query.driver.commit(0, [accepted])
    assert query.visible() == ["a"]
    assert query.open_ids() == []
    # The worker has two ids, and needs no third.
    view = query.driver.view()
    later = [query.attempt(view, 1, task, "b") for task in (0, 1)]
    ids = {each.written.transactional_id for each in (accepted, copy) if each.written}
    assert {each.written.transactional_id for each in later if each.written} == ids
    query.driver.commit(1, later)
    assert query.visible() == ["a", "b", "b"]


def test_a_copy_that_begins_after_the_decision_opens_nothing(query: Query) -> None:
    view = query.driver.view()
    report = query.attempt(view, 0, 0, "a")
    retried = query.attempt(view, 0, 1, "b", attempt=1)
    query.driver.commit(0, [report, retried])
    late = query.attempt(view, 0, 0, "a", attempt=1)
    assert late.written is None
    assert query.open_ids() == []
    query.start().view()
    with pytest.raises(SinkTakenOverError, match="turn 2 has it now"):
        query.attempt(view, 1, 0, "c", attempt=1)


def test_a_batch_that_fails_is_not_visible_and_leaves_nothing_open(query: Query) -> None:
    view = query.driver.view()
    report = query.attempt(view, 0, 0, "a")
    with pytest.raises(ValueError, match="no more rows"):
        query.sink.write_exactly(_breaking(), view, Place(0, QUERY, 1))
    assert query.open_ids() == [report.written.transactional_id] if report.written else False
    query.driver.abort(0, [report])
    assert query.open_ids() == []
    query.run(0, ["b"])
    assert query.visible() == ["b"]


def _breaking() -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"value": pa.array(["lost"])})
    raise ValueError("no more rows")


@pytest.mark.promise("Spark writes each row once, with delivery=exactly_once")
def test_a_driver_that_died_before_its_decision_is_followed_by_one_that_writes_again(
    query: Query,
) -> None:
    view = query.driver.view()
    reports = [query.attempt(view, 0, task, "lost") for task in (0, 1)]
    query.commit_until(lambda step: isinstance(step, Write), 0, reports)
    assert len(query.open_ids()) == 2
    old = query.driver
    query.start().view()
    assert query.open_ids() == []
    query.run(0, ["a"], ["b"], ["c"])
    # The driver that was thought dead wakes up.
    with pytest.raises(SinkTakenOverError, match="turn 2 has it now"):
        old.commit(0, reports)
    assert query.visible() == ["a", "b", "c"]


@pytest.mark.promise("Spark writes each row once, with delivery=exactly_once")
def test_a_driver_that_died_after_its_decision_is_followed_by_one_that_commits(
    query: Query,
) -> None:
    view = query.driver.view()
    reports = [query.attempt(view, 0, task, str(task)) for task in (0, 1)]
    query.commit_until(lambda step: isinstance(step, End), 0, reports)
    assert query.visible() == []
    query.start().view()
    assert query.visible() == ["0", "1"]
    query.run(0, ["again"], ["again"])
    assert query.visible() == ["0", "1"]


def test_a_batch_whose_transactions_are_gone_before_the_decision_is_not_committed(
    query: Query,
) -> None:
    view = query.driver.view()
    reports = [query.attempt(view, 0, task, "a", "b") for task in (0, 1)]
    query.end_elsewhere([reports[1].written])
    with pytest.raises(KafkaError, match=r"nothing of it is visible: .* rows of tasks 1 \(2 rows"):
        query.driver.commit(0, reports)
    query.driver.abort(0, reports)
    assert query.visible() == []
    query.run(0, ["a"])
    assert query.visible() == ["a"]


def test_rows_that_are_missing_after_the_decision_are_written_again_by_their_tasks(
    query: Query,
) -> None:
    view = query.driver.view()
    reports = [query.attempt(view, 0, task, str(task)) for task in (0, 1)]
    query.commit_until(lambda step: isinstance(step, End), 0, reports)
    query.end_elsewhere([reports[1].written])
    view = query.start().view()
    ((task, row_count, _),) = view.missing
    assert (view.stage, task, row_count) == (Stage.INCOMPLETE, 1, 1)
    others = [query.attempt(view, 0, task, str(task)) for task in (0, 1, 2)]
    with pytest.raises(RepeatedOtherwiseError, match="repeated with 3 tasks"):
        query.driver.commit(0, others)
    query.driver.abort(0, others)
    other = [query.attempt(view, 0, task, "other") for task in (0, 1)]
    with pytest.raises(RepeatedOtherwiseError, match=r"tasks 1 \(1 rows\) got other rows"):
        query.driver.commit(0, other)
    query.driver.abort(0, other)
    again = [query.attempt(view, 0, task, str(task)) for task in (0, 1)]
    query.driver.commit(0, again)
    assert query.visible() == ["0", "1"]
    assert query.open_ids() == []


MISSING = (
    r"batch 0 was decided, but .* rows of tasks 0 \(1 rows\)\. .* without atomic=batch, .* "
    r"the offsets that the batch reads stand in offsets/0 of its checkpoint"
)


def test_a_batch_that_is_atomic_fails_when_rows_are_missing_and_says_which(query: Query) -> None:
    query.sink = query.sink_of(atomic="batch")
    view = query.start().view()
    reports = [query.attempt(view, 0, task, str(task)) for task in (0, 1)]
    query.commit_until(lambda step: isinstance(step, End), 0, reports)
    query.end_elsewhere([reports[0].written])
    view = query.start().view()
    with pytest.raises(MissingRowsError, match=MISSING):
        query.attempt(view, 0, 0, "0")


def test_a_sink_has_one_query(query: Query) -> None:
    query.run(0, ["a"])
    view = query.driver.view()
    with pytest.raises(ConfigError, match=f"belongs to query {QUERY}, so query other cannot"):
        query.attempt(view, 1, 0, "b", query="other")
    with pytest.raises(ConfigError, match=f"belongs to query {QUERY}, so batch writes cannot"):
        query.attempt(view, 1, 0, "b", query="")


def test_of_two_batch_writes_at_a_time_one_fails(query: Query) -> None:
    view = query.driver.view()
    first, second = (query.attempt(view, 0, 0, name, query="") for name in "ab")
    query.driver.commit(0, [first])
    with pytest.raises(RepeatedOtherwiseError, match="another write was, as batch 0"):
        query.driver.commit(0, [second])
    assert query.visible() == ["a"]
    assert query.open_ids() == []


def test_rows_that_name_their_topic_are_written_exactly_once(query: Query) -> None:
    query.sink = query.sink_of(KEYED, topic="")
    view = query.start().view()
    batch = pa.record_batch({"topic": [query.topic], "value": ["a"]})
    written = query.sink.write_exactly(iter([batch]), view, Place(0, QUERY, 0))
    assert written.report is not None
    query.driver.commit(0, [written.report])
    assert query.visible() == ["a"]
    assert query.start().view().batch == 0
    # The sink gets a topic of its own, and has its record all the same.
    query.sink = query.sink_of()
    assert query.start().view().batch == 0
    query.run(1, ["b"])
    assert query.start().view().batch == 1


def test_a_topic_that_does_not_exist_is_named_when_the_sink_is_claimed() -> None:
    with FakeKafka(brokers=1, auto_create_topics=False) as fake:
        given = {
            "kafka.bootstrap.servers": fake.bootstrap_servers,
            "topic": "absent",
            "delivery": "exactly_once",
            "sinkId": "s",
        }
        sink = Sink.from_spark(given, VALUES)
        assert sink.exactly is not None
        driver = SinkDriver(sink.exactly, sink.client)
        try:
            with pytest.raises(UnknownTopicOrPartitionError, match="'absent' does not exist, and"):
                driver.view()
        finally:
            driver.close()


def test_a_worker_keeps_a_few_producers_and_all_ids(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_connector.exactly_once.slots.PRODUCERS_MAX", 1)
    names: list[set[str]] = []
    for batch in (0, 1):
        view = query.driver.view()
        reports = [query.attempt(view, batch, task, f"{batch}{task}") for task in range(3)]
        names.append({each.written.transactional_id for each in reports if each.written})
        query.driver.commit(batch, reports)
    assert names[0] == names[1]
    assert query.visible() == ["00", "01", "02", "10", "11", "12"]
