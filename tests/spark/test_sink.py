"""Rows become records, on fake brokers and without Spark: columns, order, and rows that fail."""

from __future__ import annotations

import json
import pickle
import sys
import time
from itertools import chain
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    StructType,
    TimestampType,
)

from pykclient import Consumer, TopicPartition, accel
from pykclient.accel import partition_of_key
from pykclient.errors import ConfigError, KafkaError
from pykclient.producer.config import ProducerConfig
from spark_connector.sink import Sink, _Write
from spark_connector.worker_clients import close_waiting
from tests.testing.test_processes import await_true

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pykclient import ConsumerRecord, Producer
    from pykclient.testing import FakeKafka

HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
EXACT = {"delivery": "exactly_once", "sinkid": "s"}
VALUES = StructType().add("value", StringType())
TWO_VALUES = StructType().add("value", StringType()).add("Value", StringType())
EVERYTHING = (
    StructType()
    .add("key", BinaryType())
    .add("value", BinaryType())
    .add("headers", HEADERS)
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("happened", TimestampType())
    .add("ignored", LongType())
)


def sink(schema: StructType = VALUES, servers: str = "h1:9092", /, **options: str) -> Sink:
    given = {"kafka.bootstrap.servers": servers}
    return Sink.from_spark(given | {key.replace("_", "."): options[key] for key in options}, schema)


@pytest.fixture
def servers(fake_kafka: FakeKafka) -> str:
    """Brokers with the topics "a" of two partitions, and "aside"."""
    with fake_kafka.control() as cluster:
        cluster.create_topic("a", 2)
        cluster.create_topic("aside", 1)
    return fake_kafka.bootstrap_servers


def records_of(servers: str, *partitions: tuple[str, int]) -> list[ConsumerRecord]:
    """All records of some partitions, in their order."""
    wanted = [TopicPartition(*partition) for partition in partitions]
    found: list[ConsumerRecord] = []
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(wanted)
        count = sum(consumer.end_offsets(wanted).values())
        while len(found) < count:
            found += consumer.poll(5)
    return found


def values(*texts: str | None) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(texts, pa.string())})


def test_all_columns_of_a_record_are_written(servers: str) -> None:
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.record_batch(
        {
            "key": pa.array([b"k", None], pa.binary()),
            "value": pa.array([b"v", None], pa.binary()),
            "headers": pa.array([[("h", b"1"), ("h", None)], None], headers),
            "topic": pa.array(["a", "aside"]),
            "partition": pa.array([1, None], pa.int32()),
            "happened": pa.array([1_700_000_000_123_456, 5_000], pa.timestamp("us", "UTC")),
            "ignored": pa.array([7, 8], pa.int64()),
        }
    )
    written = sink(EVERYTHING, servers, timestampColumn="HAPPENED").write([batch])
    assert (written.row_count, written.too_large_count) == (2, 0)
    (first,) = records_of(servers, ("a", 1))
    assert (first.key, first.value, first.timestamp_ms) == (b"k", b"v", 1_700_000_000_123)
    assert list(first.headers) == [("h", b"1"), ("h", None)]
    (second,) = records_of(servers, ("aside", 0))
    assert (second.key, second.value, second.timestamp_ms) == (None, None, 5)


def test_the_option_topic_goes_before_the_column(servers: str) -> None:
    schema = StructType().add("topic", StringType()).add("value", StringType())
    batch = pa.record_batch({"topic": pa.array(["a"]), "value": pa.array(["v"])})
    sink(schema, servers, topic="aside").write([batch])
    assert [record.value for record in records_of(servers, ("aside", 0))] == [b"v"]


def test_rows_of_a_task_keep_their_order_within_a_partition(servers: str) -> None:
    numbers = range(20_000)
    batches = [values(*map(str, numbers[at : at + 500])) for at in range(0, len(numbers), 500)]
    assert sink(VALUES, servers, topic="aside").write(batches).row_count == len(numbers)
    found = [int(cast("bytes", record.value)) for record in records_of(servers, ("aside", 0))]
    assert found == list(numbers)


def test_a_task_does_not_wait_for_what_lingers(servers: str) -> None:
    waits = {"kafka_linger_ms": "600000", "kafka_delivery_timeout_ms": "700000"}
    started_s = time.monotonic()
    assert sink(VALUES, servers, topic="aside", **waits).write([values("v")]).row_count == 1
    assert time.monotonic() - started_s < 300


@pytest.mark.skipif(accel.implementation == "pure", reason="the pure core goes row by row")
def test_no_python_code_runs_for_a_row(servers: str) -> None:
    """Counted are the calls of the task's thread, in which rows become the bytes of batches."""
    made = sink(VALUES, servers, topic="aside")

    def call_count(row_count: int) -> int:
        count = 0

        def on_call(*_: object) -> None:
            nonlocal count
            count += 1

        batch = values(*map(str, range(row_count)))
        sys.setprofile(on_call)
        try:
            made.write([batch])
        finally:
            sys.setprofile(None)
        return count

    call_count(1)
    assert call_count(10_000) < call_count(1) + 10_000


class Acknowledged:
    """A delivery that is done when its task waits for it, or before."""

    def __init__(self, *, is_done: bool) -> None:
        self._is_done = is_done

    def done(self) -> bool:
        return self._is_done

    def result(self) -> list[object]:
        return []


class Acknowledging:
    """A producer whose brokers acknowledge at once, or when a task waits."""

    def __init__(self, *, is_quick: bool) -> None:
        self._is_quick = is_quick

    def partitions_for(self, topic: str, timeout: float) -> list[int]:
        del topic, timeout
        return [0]

    def send_arrow(self, topic: str, table: pa.Table) -> Acknowledged:
        del topic, table
        return Acknowledged(is_done=self._is_quick)

    def flush(self) -> None:
        pass


@pytest.mark.parametrize(("is_quick", "held_max"), [(True, 1), (False, 4)])
def test_a_task_holds_a_bounded_number_of_bytes_until_they_are_acknowledged(
    monkeypatch: pytest.MonkeyPatch, *, is_quick: bool, held_max: int
) -> None:
    size, count = 200_000, 16
    monkeypatch.setattr("spark_connector.sink.UNDER_WAY_BYTES_MAX", 3.5 * size)
    held: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        before = pa.total_allocated_bytes()
        for _ in range(count):
            held.append(pa.total_allocated_bytes() - before)
            yield values("x" * size)

    producer = cast("Producer", Acknowledging(is_quick=is_quick))
    assert _Write(sink(VALUES, topic="a"), producer).run(batches()) == (count, 0)
    assert max(held) < held_max * size


def test_a_task_without_rows_writes_nothing(servers: str) -> None:
    assert sink(VALUES, servers, topic="aside").write([values()]).row_count == 0
    assert sink(VALUES, servers, topic="aside").write([]).row_count == 0


def test_a_row_without_a_topic_is_named(servers: str) -> None:
    schema = StructType().add("topic", StringType()).add("value", StringType())
    batches = [
        pa.record_batch({"topic": pa.array(["a", second]), "value": pa.array(["v", "w"])})
        for second in ("a", None)
    ]
    with pytest.raises(ConfigError, match="Row 3 of this task has no topic: fill the column"):
        sink(schema, servers).write(batches)


BIG = "x" * 2_000_000


def test_a_row_that_no_broker_takes_is_named_with_its_topic(servers: str) -> None:
    batches = [values("a", "b"), values("c", BIG, "d")]
    with pytest.raises(KafkaError, match=r"^Row 3 of this task, for topic 'aside': .*max_request"):
        sink(VALUES, servers, topic="aside").write(batches)


def test_a_row_that_the_broker_refuses_is_named_or_leaves_a_note(
    servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"kafka_max_request_size": "5000000"}
    expected = r"^Row 1 of this task, for topic 'aside': .*MESSAGE_TOO_LARGE"
    with pytest.raises(KafkaError, match=expected):
        sink(VALUES, servers, topic="aside", **settings).write([values("a", BIG, "b")])
    noting = sink(VALUES, servers, topic="a", onRecordTooLarge="aside", **settings)
    assert noting.write([values("a", BIG, "b", BIG)]).too_large_count == 2
    first, total = [each for each in caplog.messages if "note" in each]
    assert first.startswith("Row 1 of this task, for topic 'a', was not written: ")
    assert total == "2 rows of this task were too large: notes of them are in topic 'aside'."
    kept = {record.value for record in records_of(servers, ("a", 0), ("a", 1))}
    assert kept == {b"a", b"b"}


def test_without_acknowledgements_a_row_that_the_broker_refuses_is_lost(servers: str) -> None:
    settings = {"kafka_max_request_size": "5000000", "kafka_acks": "0"}
    made = sink(VALUES, servers, topic="aside", **settings)
    assert made.write([values(BIG)]).row_count == 1
    # The broker ends the connection; what is sent on it would be lost as well.
    close_waiting()
    assert made.write([values("a")]).row_count == 1
    await_true(lambda: len(records_of(servers, ("aside", 0))) == 1, "the broker has the other row")
    assert [record.value for record in records_of(servers, ("aside", 0))] == [b"a"]


def test_a_row_that_no_broker_takes_may_leave_a_note_in_its_place(servers: str) -> None:
    schema = StructType().add("key", StringType()).add("value", StringType())
    schema = schema.add("headers", HEADERS)
    rows: Sequence[tuple[str, str | None]] = [("1", "a"), ("2", BIG), ("3", None), ("4", BIG)]
    batch = pa.record_batch(
        {
            "key": pa.array([key for key, _ in rows]),
            "value": pa.array([value for _, value in rows], pa.string()),
            "headers": [[{"key": "row", "value": key.encode()}] for key, _ in rows],
        }
    )
    written = sink(schema, servers, topic="a", onRecordTooLarge="aside").write([batch])
    assert (written.row_count, written.too_large_count) == (4, 2)
    assert {record.key for record in records_of(servers, ("a", 0), ("a", 1))} == {b"1", b"3"}
    notes = records_of(servers, ("aside", 0))
    assert [note.key for note in notes] == [b"2", b"4"]
    assert [list(note.headers) for note in notes] == [[("row", b"2")], [("row", b"4")]]
    note = json.loads(cast("bytes", notes[0].value))
    assert (note["topic"], note["valueBytes"]) == ("a", 2_000_000)
    assert "max_request_size" in note["reason"]


@pytest.mark.parametrize(
    ("schema", "options", "complaint"),
    [
        (StructType().add("valeu", StringType()), {}, "no column 'value', .* Did you mean 'valeu'"),
        (VALUES, {}, "Give the option 'topic', or a column 'topic'"),
        (VALUES, {"topic": " "}, "Give the option 'topic'"),
        (StructType().add("value", LongType()), {"topic": "a"}, "'value' has type bigint; .* cast"),
        (StructType().add("value", NullType()), {"topic": "a"}, "'value' has type void; .* cast"),
        (
            StructType().add("value", StringType()).add("Value", StringType()),
            {"topic": "a"},
            "two columns for a record's value",
        ),
        (VALUES, {"topic": "a", "timestampColumn": "t"}, "'timestampColumn' names no column: 't'"),
        (VALUES, {"topic": "a", "timestampColumn": "value"}, "has type string, not timestamp"),
        (VALUES, {"topci": "a"}, "Did you mean 'topic'"),
        (VALUES, {"topic": "a", "kafka_acsk": "all"}, "acsk"),
        (VALUES, {"topic": "a", "kafka_value_serializer": "x"}, "cast the column to string or bin"),
        (
            VALUES,
            {"topic": "a", "kafka_transactional_id": "x"},
            "Tasks that share an id fence each",
        ),
        (VALUES, {"topic": "a", "delivery": "exactly_once"}, "needs a name for the sink"),
        (VALUES, {"topic": "a", "delivery": "exactly_one"}, "Did you mean 'exactly_once'"),
        (VALUES, {"topic": "a", "delivery": "twice"}, "must be at_least_once or exactly_once, not"),
        (VALUES, {"topic": "a", "sinkid": "s"}, "'sinkId' has an effect only with delivery=exac"),
        (VALUES, {"topic": "a", "atomic": "task"}, "'atomic' has an effect only with delivery=exa"),
        (VALUES, {"topic": "a", "batchid": "1"}, "'batchId' has an effect only with delivery=exa"),
        (VALUES, {"topic": "a", **EXACT, "atomic": "bath"}, "Did you mean 'batch'"),
        (VALUES, {"topic": "a", **EXACT, "sinkid": "a b"}, "letters, digits, dots, dashes"),
        (VALUES, {"topic": "a", **EXACT, "batchid": "-1"}, "'batchId' must be an integer of at le"),
        (VALUES, {"topic": "a", **EXACT, "onoldbatch": "skp"}, r"be fail or skip, not 'skp'.*skip"),
        (VALUES, {"topic": "a", **EXACT, "sinkowner": " "}, "'sinkOwner' must be 1 to 200"),
        (VALUES, {"topic": "a", **EXACT, "batchid": str(2**63)}, "'batchId' must be at most"),
        (VALUES, {"topic": "a", **EXACT, "kafka_acks": "1"}, "acks"),
        (
            VALUES,
            {"topic": "a", **EXACT, "kafka_enable_idempotence": "false"},
            "transactions need idempotence",
        ),
        (
            VALUES,
            {
                "topic": "a",
                **EXACT,
                "kafka_transaction_two_phase_commit_enable": "true",
                "kafka_transaction_timeout_ms": "1000",
            },
            "transaction.timeout.ms",
        ),
        (
            VALUES,
            {"topic": "a", "kafka_partitioner_class": "org.apache.kafka.streams.Mine"},
            "'kafka.partitioner.class': .* is not known here. Give DefaultPartitioner, Uniform",
        ),
        (VALUES, {"topic": "a", "kafka_partitioner_class": "com.example.Mine"}, "a colon before"),
    ],
)
def test_what_cannot_be_written_is_refused_before_any_row(
    schema: StructType, options: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        sink(schema, **options)


def test_one_dictionary_of_options_serves_a_whole_pipeline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = sink(
        topic="a",
        subscribe="b",
        startingOffsets="earliest",
        kafka_fetch_max_bytes="1000",
        kafka_acks="all",
    )
    assert made.topic == "a"
    assert "Option 'subscribe' has no effect in a write" in caplog.text


def test_the_time_of_a_transaction_is_taken_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = sink(topic="a", kafka_transaction_timeout_ms="30000")
    assert made.client.of_producer() == sink(topic="a").client.of_producer()
    assert [record.getMessage() for record in caplog.records] == [
        "Option 'kafka.transaction.timeout.ms' has no effect: rows are written at least once."
    ]


@pytest.mark.parametrize(
    ("given", "timeout_ms"),
    [
        ({}, 900_000),
        ({"kafka_transaction_timeout_ms": "30000"}, 30_000),
        ({"kafka_transaction_two_phase_commit_enable": "false"}, 900_000),
    ],
)
def test_a_transaction_has_the_time_that_is_given_or_the_most_that_brokers_allow(
    given: dict[str, str], timeout_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    made = sink(topic="a", **EXACT, **given)
    config = ProducerConfig.from_settings(made.producer_settings() | {"transactional.id": "t"})
    assert config.transaction_timeout_ms == timeout_ms
    # The driver's own transactions are short.
    config = ProducerConfig.from_settings(made.client.of_sink_driver())
    assert config.transaction_timeout_ms == 60_000
    assert caplog.records == []


def test_with_two_phases_the_tasks_transactions_have_no_time() -> None:
    made = sink(topic="a", **EXACT, kafka_transaction_two_phase_commit_enable="true")
    config = ProducerConfig.from_settings(made.producer_settings() | {"transactional.id": "t"})
    assert config.transaction_two_phase_commit_enable
    config = ProducerConfig.from_settings(made.client.of_sink_driver())
    assert not config.transaction_two_phase_commit_enable


def test_a_sink_without_a_name_is_named_by_its_checkpoint() -> None:
    exact = {"topic": "a", "delivery": "exactly_once"}
    names = [
        sink(**exact, checkpointLocation=place).exactly
        for place in ("/checkpoints/a", "/checkpoints/a/", "/checkpoints/b")
    ]
    first, same, other = (each.sink_id for each in names if each is not None)
    assert first == same != other
    given = sink(**exact, sinkId="mine", checkpointLocation="/checkpoints/a").exactly
    assert given is not None
    assert given.sink_id == "mine"


def test_rows_are_delivered_at_least_once_by_default_and_by_name() -> None:
    assert sink(topic="a", delivery=" AT_LEAST_ONCE ") == sink(topic="a")


@pytest.mark.parametrize(("given", "is_idempotent"), [({}, True), ({"kafka_acks": "1"}, False)])
def test_the_producer_is_idempotent_unless_fewer_acknowledgements_are_set(
    given: dict[str, str], is_idempotent: bool
) -> None:
    settings = sink(topic="a", **given).client.of_producer()
    assert ProducerConfig.from_settings(settings).enable_idempotence is is_idempotent


def rows_by_partition(servers: str, **options: str) -> list[list[int]]:
    """Return the numbers of forty rows with keys of their own, by partition."""
    schema = StructType().add("key", StringType()).add("value", StringType())
    numbers = pa.array([str(number) for number in range(40)])
    sink(schema, servers, topic="a", **options).write(
        [pa.record_batch([numbers] * 2, ["key", "value"])]
    )
    return [
        [int(cast("bytes", record.value)) for record in records_of(servers, ("a", partition))]
        for partition in range(2)
    ]


@pytest.mark.parametrize(
    ("given", "size"), [({}, -1), ({"kafka_send_buffer_bytes": "1000"}, 1_000)]
)
def test_the_system_sizes_the_send_buffer_unless_the_user_does(
    given: dict[str, str], size: int
) -> None:
    settings = sink(topic="a", **given).client.of_producer()
    assert ProducerConfig.from_settings(settings).send_buffer_bytes == size


def test_the_default_partitioner_of_java_hashes_keys(servers: str) -> None:
    name = "org.apache.kafka.clients.producer.internals.DefaultPartitioner"
    found = rows_by_partition(servers, kafka_partitioner_class=name)
    assert [[partition_of_key(b"%d" % row, 2) for row in rows] for rows in found] == [
        [partition] * len(rows) for partition, rows in enumerate(found)
    ]
    assert sorted(chain(*found)) == list(range(40))


def test_the_uniform_sticky_partitioner_of_java_ignores_keys(servers: str) -> None:
    name = "org.apache.kafka.clients.producer.UniformStickyPartitioner"
    given = {"kafka_partitioner.class": name, "kafka_partitioner_ignore_keys": "false"}
    found = rows_by_partition(servers, **given)
    # What fills no batch stays in one partition; hashed keys would be in both.
    assert sorted(found) == [[], list(range(40))]


def test_the_round_robin_partitioner_of_java_takes_turns(servers: str) -> None:
    name = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
    found = rows_by_partition(servers, kafka_partitioner=name)
    assert found == [list(range(0, 40, 2)), list(range(1, 40, 2))]


def test_a_sink_survives_pickling_and_shows_no_secrets() -> None:
    made = sink(topic="a", kafka_client_id="hunter2")
    assert pickle.loads(pickle.dumps(made)) == made
    assert "hunter2" not in repr(made)
