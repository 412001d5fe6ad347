"""Missing and deleted topics, lost brokers, timeouts without records: errors and their timing.

Without Spark, which calls the same methods and shows what they raise.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from contextlib import contextmanager
from itertools import chain
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pykclient import Consumer, Producer, TopicPartition
from pykclient.errors import (
    ConfigError,
    KafkaError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing import FakeKafka
from pykclient.testing.fake.faults import delay_response, fail_with
from spark_connector.batch_reader import KafkaBatchReader
from spark_connector.exactly_once.names import RECORD_TOPIC
from spark_connector.first_response import is_first_batch
from spark_connector.offsets import DataLossError, OffsetRange
from spark_connector.options import KafkaOptions, Use
from spark_connector.sink import PATIENCE, Sink
from spark_connector.stream_reader import KafkaStreamReader
from spark_connector.versions import ReadAllAvailable
from spark_connector.writers import PLANNER, KafkaBatchWriter, KafkaStreamWriter
from tests.testing.test_processes import await_true

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pykclient.testing import KafkaCluster

OFFSETS = StructType().add("offset", LongType())
VALUES = StructType([StructField("value", StringType())])
TOPIC = "flights"
PARTITION = TopicPartition(TOPIC, 0)
LOADED_MACHINE = 5
"""Deadlines are so much longer for a machine that does much else."""
CALLS_MAX = 10
SHORT = {
    "kafka.default.api.timeout.ms": "1500",
    "kafka.request.timeout.ms": "1000",
    "kafka.delivery.timeout.ms": "1500",
    "kafka.max.block.ms": "1500",
    "kafka.linger.ms": "0",
}


@contextmanager
def within(seconds: float) -> Iterator[None]:
    started = time.monotonic()
    try:
        yield
    finally:
        assert time.monotonic() - started < seconds * LOADED_MACHINE


def assert_quick(seconds_of_call: Callable[[], float]) -> None:
    """Assert that the quickest of some calls takes less than two seconds.

    A busy machine delays many of them.
    """
    took_s = []
    for _ in range(CALLS_MAX):
        took_s.append(seconds_of_call())
        if took_s[-1] < 2:
            return
    pytest.fail(f"no call took less than two seconds: {took_s}")


def seconds_to_name_topic(call: Callable[[], object], expected: str, cause: str = "") -> float:
    started = time.monotonic()
    with pytest.raises(UnknownTopicOrPartitionError, match=expected) as caught:
        call()
    assert cause in str(caught.value.__cause__)
    return time.monotonic() - started


def reader_of(servers: str, topic: str = TOPIC, **options: str) -> KafkaBatchReader:
    given = {"kafka.bootstrap.servers": servers, "subscribe": topic, **options}
    return KafkaBatchReader(KafkaOptions.from_spark(given, Use.BATCH), OFFSETS)


@contextmanager
def stream_of(servers: str, topic: str = TOPIC, **options: str) -> Iterator[KafkaStreamReader]:
    given = {"kafka.bootstrap.servers": servers, "subscribe": topic, **options}
    stream = KafkaStreamReader(given, OFFSETS)
    try:
        yield stream
    finally:
        stream.stop()


def begin(servers: str, topic: str = TOPIC, **options: str) -> None:
    """Start a stream, as far as where its first batch ends."""
    with stream_of(servers, topic, **options) as stream:
        stream.latestOffset(stream.initialOffset(), ReadAllAvailable())


def begin_available_now(servers: str, topic: str = TOPIC, **options: str) -> None:
    """Start a stream with the trigger availableNow."""
    with stream_of(servers, topic, **options) as stream:
        stream.prepareForTriggerAvailableNow()
        stream.latestOffset(stream.initialOffset(), ReadAllAvailable())


def sink_of(servers: str, **options: str) -> Sink:
    given = {"kafka.bootstrap.servers": servers, "topic": TOPIC, **SHORT, **options}
    return Sink.from_spark(given, VALUES)


def rows(*values: str) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values)})


def read_all(reader: KafkaBatchReader) -> list[int]:
    batches = chain.from_iterable(reader.read(part) for part in reader.partitions())
    return [*chain.from_iterable(batch.column("offset").to_pylist() for batch in batches)]


def send(servers: str, count: int, topic: str = TOPIC) -> None:
    """Send records, each in a batch of its own."""
    with Producer(bootstrap_servers=servers) as producer:
        for _ in range(count):
            producer.send(topic, b"v", partition=0)
            producer.flush()


def stop_brokers(fake: FakeKafka) -> None:
    with fake.control() as cluster:
        for broker_id in range(3):
            cluster.stop_broker(broker_id)


@pytest.fixture
def fake(fake_kafka: FakeKafka) -> FakeKafka:
    """Brokers with a topic of two partitions, of which the first has twenty records."""
    with fake_kafka.control() as cluster:
        cluster.create_topic(TOPIC, 2)
    send(fake_kafka.bootstrap_servers, 20)
    return fake_kafka


# Topics.


@pytest.mark.kafka
@pytest.mark.parametrize(
    "call",
    [
        lambda servers: reader_of(servers, "no-such-topic").partitions(),
        lambda servers: begin(servers, "no-such-topic"),
        lambda servers: begin_available_now(servers, "no-such-topic"),
    ],
)
def test_a_missing_topic_is_named_before_anything_is_read(
    kafka_cluster: KafkaCluster, call: Callable[[str], object]
) -> None:
    servers = kafka_cluster.bootstrap_servers
    assert_quick(lambda: seconds_to_name_topic(lambda: call(servers), "no-such-topic"))


@pytest.mark.parametrize(
    ("options", "value"),
    [({"topic": "b"}, "v"), ({}, "v"), ({"topic": "a", "onRecordTooLarge": "b"}, "v" * 2_000_000)],
    ids=["by option", "by column", "for what is too large"],
)
def test_a_missing_topic_is_named_by_the_task_that_writes(
    options: dict[str, str], value: str
) -> None:
    with FakeKafka(brokers=1, auto_create_topics=False) as fake:
        with fake.control() as cluster:
            cluster.create_topic("a", 1)
        given = {"kafka.bootstrap.servers": fake.bootstrap_servers, **options}
        sink = Sink.from_spark(given, StructType([*VALUES, StructField("topic", StringType())]))
        batch = pa.record_batch({"value": [value, value], "topic": ["a", "b"]})
        expected = "Topic 'b' does not exist, and brokers did not make it within 1.0 s: create it"
        cause = "no metadata of topic 'b' within 1000 ms: "
        assert_quick(lambda: seconds_to_name_topic(lambda: sink.write([batch]), expected, cause))


WORKER = """
import pickle, sys, time
import pyarrow as pa
import pyspark.worker
writer = pickle.loads(bytes.fromhex(sys.argv[1]))
rows = pa.record_batch({"value": ["v"]})
started = time.monotonic()
try:
    writer.write(iter([rows]))
finally:
    print(time.monotonic() - started)
"""


def test_a_missing_topic_is_named_by_the_first_task_of_a_worker() -> None:
    """The time counts from when the worker has the writer and its first rows.

    Spark starts the process before, and pyarrow imports pandas with the first list that it
    converts.
    """
    with FakeKafka(brokers=1, auto_create_topics=False) as fake:
        given = {"kafka.bootstrap.servers": fake.bootstrap_servers, "topic": "b"}
        writer = pickle.dumps(KafkaBatchWriter(Sink.from_spark(given, VALUES)))
        command = [sys.executable, "-c", WORKER, writer.hex()]

        def seconds_of_task() -> float:
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            assert ended.returncode == 1
            assert "UnknownTopicOrPartitionError: Topic 'b' does not exist" in ended.stderr
            return float(ended.stdout)

        assert_quick(seconds_of_task)


def test_a_topic_that_brokers_make_on_demand_is_written(fake_kafka: FakeKafka) -> None:
    assert sink_of(fake_kafka.bootstrap_servers).write([rows("v")]).row_count == 1


def test_a_topic_that_is_deleted_while_it_is_read_is_named(fake: FakeKafka) -> None:
    batches = one_by_one(fake)
    assert next(batches).num_rows == 1
    with fake.control() as cluster:
        cluster.delete_topic(TOPIC)
    with pytest.raises(UnknownTopicOrPartitionError, match=TOPIC), within(5):
        list(batches)


@pytest.mark.parametrize("allowed", ["true", "false"])
def test_a_topic_that_is_made_again_while_it_is_read_is_data_loss(
    fake: FakeKafka, allowed: str
) -> None:
    batches = one_by_one(fake, failOnDataLoss=allowed)
    first = next(batches).num_rows
    with fake.control() as cluster:
        cluster.delete_topic(TOPIC)
        cluster.create_topic(TOPIC, 2)
    send(fake.bootstrap_servers, 20)
    if allowed == "true":
        with pytest.raises(
            DataLossError, match=r"then the log was another one: the topic was made"
        ):
            list(batches)
    else:
        assert first + sum(batch.num_rows for batch in batches) == 20


def one_by_one(fake: FakeKafka, **options: str) -> Iterator[pa.RecordBatch]:
    """Read twenty records in a task, one per response."""
    options |= {"kafka.max.partition.fetch.bytes": "1", "kafkaConsumer.pollTimeoutMs": "9000"}
    reader = reader_of(fake.bootstrap_servers, **options)
    return reader.read(InputPartition([OffsetRange(PARTITION, 0, 20)]))


def test_the_checkpoint_of_another_topic_is_named(fake: FakeKafka) -> None:
    other = {"trains": {"0": 7}}
    expected = r"trains-0: gone, with what was not read of it"
    with (
        stream_of(fake.bootstrap_servers, **{"fetchOffset.retryIntervalMs": "1"}) as stream,
        pytest.raises(DataLossError, match=expected),
    ):
        stream.latestOffset(other, stream.getDefaultReadLimit())


# Times and offsets.


def test_a_time_that_a_partition_has_no_record_after_is_an_error_or_the_end(
    fake: FakeKafka,
) -> None:
    """The second partition is empty; and all records are older than the other time."""
    servers, strategy = fake.bootstrap_servers, "startingOffsetsByTimestampStrategy"
    with pytest.raises(ConfigError, match=r"flights-1 has no record at or after 0 ms"):
        reader_of(servers, startingTimestamp="0").partitions()
    assert read_all(reader_of(servers, startingTimestamp="0", **{strategy: "latest"})) == [
        *range(20)
    ]
    beyond = str(2**62)
    with pytest.raises(ConfigError, match=rf"flights-0 has no record at or after {beyond} ms"):
        reader_of(servers, startingTimestamp=beyond).partitions()
    assert read_all(reader_of(servers, startingTimestamp=beyond, **{strategy: "latest"})) == []
    assert read_all(reader_of(servers, endingTimestamp=beyond)) == [*range(20)]
    assert read_all(reader_of(servers, endingTimestamp="0")) == []


def test_offsets_out_of_range_fail_the_plan_or_are_left_out(fake: FakeKafka) -> None:
    servers, offsets = fake.bootstrap_servers, '{"flights":{"0":25,"1":0}}'
    with pytest.raises(ConfigError, match=r"flights-0: the read would begin at offset 25, behind"):
        reader_of(servers, startingOffsets=offsets).partitions()
    with pytest.raises(DataLossError, match=r"flights-0 \[0, 25\) was requested, but .* \[0, 20\)"):
        reader_of(servers, endingOffsets=offsets).partitions()
    lenient = reader_of(servers, endingOffsets=offsets, failOnDataLoss="false")
    assert read_all(lenient) == [*range(20)]


@pytest.mark.kafka
def test_an_end_behind_an_open_transaction_is_reported_as_such(
    kafka_cluster: KafkaCluster, new_topic: Callable[[int], str]
) -> None:
    from confluent_kafka import Producer as Witness

    topic = new_topic(1)
    witness = Witness(
        {"bootstrap.servers": kafka_cluster.bootstrap_servers, "transactional.id": topic}
    )
    witness.init_transactions(30)
    witness.begin_transaction()
    for _ in range(5):
        witness.produce(topic, b"v")
    assert witness.flush(30) == 0
    options: dict[str, Any] = {
        "kafka.isolation.level": "read_committed",
        "endingOffsets": f'{{"{topic}":{{"0":5}}}}',
    }
    reader = reader_of(kafka_cluster.bootstrap_servers, topic, **options)
    with pytest.raises(DataLossError) as caught:
        reader.partitions()
    assert "an open transaction hides what lies behind, up to 5" in str(caught.value)
    assert "aged out" not in str(caught.value)
    task = reader_of(
        kafka_cluster.bootstrap_servers, topic, **options, **{"kafkaConsumer.pollTimeoutMs": "500"}
    )
    with pytest.raises(KafkaTimeoutError, match="An open transaction may hide them"):
        list(task.read(InputPartition([OffsetRange(TopicPartition(topic, 0), 0, 5)])))
    witness.commit_transaction(30)
    # The broker writes the end of a transaction after it has responded.
    partition, settings = TopicPartition(topic, 0), {"isolation_level": "read_committed"}
    with Consumer(settings, bootstrap_servers=kafka_cluster.bootstrap_servers) as consumer:
        await_true(lambda: consumer.end_offsets([partition])[partition] == 6, "it is committed")
    assert read_all(reader) == [*range(5)]


# Brokers.


def test_brokers_that_cannot_be_reached_are_named_everywhere(unused_address: str) -> None:
    brief = {**SHORT, "kafka.default.api.timeout.ms": "700", "kafka.max.block.ms": "700"}
    calls: list[Callable[[], object]] = [
        lambda: reader_of(unused_address, **brief).partitions(),
        lambda: list(
            reader_of(unused_address, **brief).read(InputPartition([OffsetRange(PARTITION, 0, 9)]))
        ),
        lambda: begin(unused_address, **brief),
        lambda: begin_available_now(unused_address, **brief),
        lambda: sink_of(unused_address, **brief).write([rows("v")]),
    ]
    for call in calls:
        with pytest.raises(KafkaTimeoutError, match=unused_address), within(3.5):
            call()


@pytest.mark.parametrize(
    "call",
    [lambda servers: reader_of(servers).partitions(), begin, begin_available_now],
    ids=["batch", "stream", "available now"],
)
def test_brokers_that_do_not_respond_at_first_fail_a_read_soon(
    unused_address: str, monkeypatch: pytest.MonkeyPatch, call: Callable[[str], object]
) -> None:
    """A wrong address, without time-outs of the user: the clients' own is a minute."""
    monkeypatch.setattr("spark_connector.cluster.FIRST_RESPONSE_S_MAX", 0.3)
    with pytest.raises(KafkaTimeoutError, match=unused_address), within(2):
        call(unused_address)


def write_batch(servers: str, **options: str) -> None:
    """Write a batch, as far as its plan and its first task."""
    given = {"kafka.bootstrap.servers": servers, "topic": TOPIC, **options}
    KafkaBatchWriter(Sink.from_spark(given, VALUES)).write(iter([rows("v")]))


@pytest.mark.parametrize(
    "options",
    [{}, {"delivery": "exactly_once", "sinkId": "s"}],
    ids=["at least once", "exactly once"],
)
def test_brokers_that_do_not_respond_at_first_fail_a_write_soon(
    unused_address: str, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    monkeypatch.setattr("spark_connector.sink.FIRST_RESPONSE_S_MAX", 1.1)
    with pytest.raises(KafkaTimeoutError, match=unused_address), within(3):
        write_batch(unused_address, **options)


@pytest.fixture
def is_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process look like one that plans writes, to which nothing has responded yet."""
    monkeypatch.setitem(sys.modules, PLANNER, ModuleType(PLANNER))
    monkeypatch.setattr("spark_connector.first_response._responded", set())


@pytest.mark.usefixtures("is_plan")
def test_brokers_are_awaited_before_tasks_start_and_not_by_each_of_their_attempts(
    unused_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("sink", "writers"):
        monkeypatch.setattr(f"spark_connector.{module}.TOPIC_WAIT_S", 0.1)
    monkeypatch.setattr("spark_connector.sink.FIRST_RESPONSE_S_MAX", 0.3)
    given = {"kafka.bootstrap.servers": unused_address, "topic": TOPIC}
    planned = [
        KafkaBatchWriter(Sink.from_spark(given, VALUES)),
        KafkaStreamWriter(Sink.from_spark(given, VALUES)),
    ]
    monkeypatch.setattr("spark_connector.sink.FIRST_RESPONSE_S_MAX", 60.0)
    for writer in planned:
        attempt = pickle.loads(pickle.dumps(writer))
        with pytest.raises(KafkaTimeoutError, match=unused_address), within(2):
            attempt.write(iter([rows("v")]))


@pytest.mark.usefixtures("is_plan")
def test_brokers_that_respond_are_looked_for_once_for_each_process(fake: FakeKafka) -> None:
    looked: list[object] = []

    def note(request: object) -> bool:
        topics = getattr(request, "topics", None) or ()
        looked.extend(one for one in topics if one.name == RECORD_TOPIC)
        return False

    with fake.control() as cluster:
        cluster.faults.add(delay_response(0), ApiKey.METADATA, times=None, when=note)
    given = {"kafka.bootstrap.servers": fake.bootstrap_servers, "topic": TOPIC}
    for kind in (KafkaBatchWriter, KafkaBatchWriter, KafkaStreamWriter):
        kind(Sink.from_spark(given, VALUES)).write(iter([rows("v")]))
    assert len(looked) == 1


@pytest.mark.usefixtures("is_plan")
@pytest.mark.parametrize("name", PATIENCE)
def test_a_driver_looks_for_no_brokers_where_the_user_says_how_long_to_wait(
    unused_address: str, name: str
) -> None:
    given = {"kafka.bootstrap.servers": unused_address, "topic": TOPIC, f"kafka.{name}": "60000"}
    with within(1):
        KafkaBatchWriter(Sink.from_spark(given, VALUES))


def plan_exactly_once(servers: str, checkpoint: Path | str) -> None:
    given = {"kafka.bootstrap.servers": servers, "topic": TOPIC, "delivery": "exactly_once"}
    given |= {"sinkId": "s", "checkpointLocation": str(checkpoint)}
    KafkaStreamWriter(Sink.from_spark(given, VALUES))


@pytest.mark.usefixtures("is_plan")
@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_brokers_that_do_not_respond_to_a_query_that_is_exactly_once_fail_its_first_batch_soon(
    unused_address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, form: str
) -> None:
    monkeypatch.setattr("spark_connector.sink.FIRST_RESPONSE_S_MAX", 0.5)
    (tmp_path / "offsets").mkdir()
    (tmp_path / "commits").mkdir()
    (tmp_path / "offsets" / "0").write_text("")
    with pytest.raises(KafkaTimeoutError, match=unused_address), within(2):
        plan_exactly_once(unused_address, form.format(tmp_path))


@pytest.mark.parametrize(
    ("files", "is_first"),
    [
        ((), False),
        (("offsets/0",), True),
        (("offsets/0", "commits/0"), False),
        (("offsets/0", "offsets/1"), False),
        (("offsets/100", "commits/99"), False),
    ],
)
def test_a_checkpoint_here_shows_whether_a_batch_is_the_first_one(
    tmp_path: Path, files: tuple[str, ...], *, is_first: bool
) -> None:
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    for name in files:
        (tmp_path / name).write_text("")
    assert is_first_batch(str(tmp_path)) == is_first


@pytest.mark.parametrize("place", ["", "no/such/place", "hdfs://h/place", "s3a://b/place"])
def test_a_checkpoint_that_is_not_here_shows_nothing(place: str) -> None:
    assert not is_first_batch(place)


def test_a_later_batch_waits_for_brokers_as_long_as_other_requests_do() -> None:
    """It has reached them before: they are away, and come back."""
    plain = Sink.from_spark({"kafka.bootstrap.servers": "h:1", "topic": TOPIC}, VALUES)
    assert [plain.first_response_s(batch) for batch in (None, 0, 1)] == [10, 10, None]
    given = {"kafka.bootstrap.servers": "h:1", "topic": TOPIC, "kafka.max.block.ms": "30000"}
    assert Sink.from_spark(given, VALUES).first_response_s(None) is None


def test_a_request_of_a_batch_that_fails_is_repeated(fake: FakeKafka) -> None:
    options = {"fetchOffset.numRetries": "2", "fetchOffset.retryIntervalMs": "1"}
    for api_key in (ApiKey.METADATA, ApiKey.LIST_OFFSETS):
        with fake.control() as cluster:
            cluster.faults.add(fail_with(TopicAuthorizationFailedError), api_key)
        assert read_all(reader_of(fake.bootstrap_servers, **options)) == [*range(20)]


def test_brokers_that_go_while_a_task_reads_are_named(fake: FakeKafka) -> None:
    options = {**SHORT, "kafka.max.partition.fetch.bytes": "1"}
    # Time for some metadata updates that fail.
    options |= {"kafka.default.api.timeout.ms": "3000", "kafka.request.timeout.ms": "300"}
    reader = reader_of(fake.bootstrap_servers, **options)
    batches = reader.read(InputPartition([OffsetRange(PARTITION, 0, 20)]))
    assert next(batches).num_rows == 1
    stop_brokers(fake)
    expected = r"flights-0.*127\.0\.0\.1"
    with pytest.raises(KafkaTimeoutError, match=expected) as caught, within(4):
        list(batches)
    assert str(caught.value).count("the last metadata update failed") <= 1


def test_brokers_that_go_before_rows_are_acknowledged_are_named(fake: FakeKafka) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield rows("a")
        stop_brokers(fake)
        yield rows("b")

    expected = r"^Row \d of this task, for topic 'flights': .*127\.0\.0\.1"
    with pytest.raises(KafkaError, match=expected), within(5):
        sink_of(fake.bootstrap_servers).write(batches())


def test_brokers_that_go_before_progress_is_committed_are_named(
    fake: FakeKafka, caplog: pytest.LogCaptureFixture
) -> None:
    options = {**SHORT, "startingOffsets": "earliest", "commitGroup": "watch"}
    with stream_of(fake.bootstrap_servers, **options) as stream:
        end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
        stop_brokers(fake)
        # The commit, and then the next ends: each takes `default.api.timeout.ms`.
        with pytest.raises(KafkaTimeoutError, match=r"127\.0\.0\.1"), within(5):
            stream.latestOffset(end, ReadAllAvailable())
    assert "Progress was not committed to group 'watch'" in caplog.text


# Clocks.


def test_a_wall_clock_that_jumps_holds_up_no_stream(
    fake: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "100"}
    with stream_of(fake.bootstrap_servers, **options, maxTriggerDelay="1ms") as stream:
        start = stream.initialOffset()
        # The first batch is not kept back, the next ones are.
        stream.latestOffset(start, stream.getDefaultReadLimit())
        for jumped_s in (0.0, 2.0**33):
            monkeypatch.setattr(time, "time", lambda jumped_s=jumped_s: jumped_s)
            deadline_s = time.monotonic() + 5 * LOADED_MACHINE
            end = start
            while end == start and time.monotonic() < deadline_s:
                end = stream.latestOffset(start, stream.getDefaultReadLimit())
            assert end[TOPIC] == {"0": 20, "1": 0}
