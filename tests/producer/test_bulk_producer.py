"""`send_batch` and `send_arrow` from the call to the delivery, without sockets or threads."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pykclient.accel import partition_of_key
from pykclient.errors import (
    BatchDeliveryError,
    BufferExhaustedError,
    ClosedError,
    KafkaTimeoutError,
    MessageTooLargeError,
    PolicyViolationError,
    RecordTooLargeError,
    SerializationError,
    UsageError,
)
from pykclient.producer.bulk.delivery import RecordMetadataRange
from tests.producer.scripted_producer import WALL_CLOCK_NS, ScriptedBulkProducer

if TYPE_CHECKING:
    from pykclient.network.cluster.cluster import PartitionInfo
    from pykclient.producer.record import ProducerRecord, RecordMetadata

POLICY_VIOLATION = 44
NOW_MS = WALL_CLOCK_NS // 1_000_000


def new(**settings: object) -> ScriptedBulkProducer:
    producer = ScriptedBulkProducer(**settings)
    producer.await_metadata("t")
    return producer


@pytest.fixture
def producer() -> ScriptedBulkProducer:
    return new()


def settle(producer: ScriptedBulkProducer, turns: int = 12) -> None:
    for _ in range(turns):
        producer.turn(after_ms=10)


def numbered(count: int) -> list[bytes | None]:
    return [b"%06d" % number for number in range(count)]


def test_all_records_of_a_batch_share_one_delivery(producer: ScriptedBulkProducer) -> None:
    delivery = producer.send_batch("t", [b"a", b"b", None], partition=2)
    assert not delivery.done()
    settle(producer)
    assert producer.logs == {("t", 2): [b"a", b"b", None]}
    assert delivery.done()
    assert delivery.result() == delivery.get() == [RecordMetadataRange("t", 2, 0, 3)]
    assert delivery.exception() is None
    columns = producer.written[0].columns
    assert list(columns.timestamps_ms) == [NOW_MS] * 3
    assert list(columns.keys) == [None] * 3
    assert list(columns.headers) == [()] * 3


def test_records_with_keys_go_where_java_puts_them_in_order(
    producer: ScriptedBulkProducer,
) -> None:
    keys = [b"key-%d" % (number % 50) for number in range(5_000)]
    delivery = producer.send_batch("t", numbered(5_000), keys)
    settle(producer)
    for partition in range(3):
        expected = [
            value
            for key, value in zip(keys, numbered(5_000), strict=True)
            if partition_of_key(key, 3) == partition
        ]
        assert producer.logs["t", partition] == expected
    ranges = delivery.result()
    for partition in range(3):
        of_partition = [found for found in ranges if found.partition == partition]
        assert sum(found.count for found in of_partition) == len(producer.logs["t", partition])


MIXED_KEYS = [None, b"a", None, b"a", None, b"a"]
VALUES: list[bytes | None] = [b"%d" % number for number in range(6)]


@pytest.mark.parametrize(
    "columns",
    [
        {"key": MIXED_KEYS},
        {"partition": pa.array([None, 0, None, 0, None, 0], pa.int32())},
        {
            "key": [None, None, b"a", b"a", None, None],
            "partition": pa.array([None, 0, None, None, 0, None], pa.int32()),
            "topic": ["t", "t", "t", "t", "t", "t"],
        },
        {"key": MIXED_KEYS, "topic": ["t", "u", "u", "t", "t", "t"]},
    ],
)
@pytest.mark.parametrize("partition_count", [1, 2])
def test_nulls_keep_their_place_in_an_arrow_table(
    columns: dict[str, object], partition_count: int
) -> None:
    producer = ScriptedBulkProducer()
    producer.partition_counts = dict.fromkeys("tu", partition_count)
    for _ in range(10):
        producer.send_arrow(
            None if "topic" in columns else "t", pa.table({"value": VALUES, **columns})
        )
        settle(producer)
        for log in producer.logs.values():
            assert log == sorted(log, key=VALUES.index)
        assert sum(map(len, producer.logs.values())) == 6
        producer.logs.clear()


def turns_of(places: list[tuple[int, int]]) -> list[int]:
    """Return the bytes each partition got in turn, from the (partition, size) of each record."""
    turns: list[int] = []
    last = None
    for partition, size in places:
        if partition != last:
            turns.append(0)
        turns[-1] += size
        last = partition
    return turns


@pytest.mark.parametrize("row_count", [6_000, 50])
def test_records_without_a_key_take_turns_by_bytes_among_those_with_one(row_count: int) -> None:
    """Goal: as with `send`, a partition gets about a batch in a row, even over many small calls."""
    producer = new(batch_size=2_000)
    keys = [b"key-%d" % (number % 50) if number % 3 else None for number in range(6_000)]
    values = numbered(6_000)
    for first in range(0, 6_000, row_count):
        stop = first + row_count
        producer.send_batch("t", values[first:stop], keys[first:stop])
    settle(producer, 60)
    place_of = {}
    for (_, partition), log in producer.logs.items():
        numbers = [int(value or b"") for value in log]
        assert numbers == sorted(numbers)
        place_of.update(dict.fromkeys(log, partition))
    assert len(place_of) == 6_000
    for key, value in zip(keys, values, strict=True):
        assert key is None or place_of[value] == partition_of_key(key, 3)
    turns = turns_of(
        [(place_of[value], 13) for key, value in zip(keys, values, strict=True) if key is None]
    )
    assert all(size_bytes >= 2_000 for size_bytes in turns[:-1])
    # The same partition may be drawn again.
    assert 2_000 * 13 // 2_000 // 4 <= len(turns) <= 2_000 * 13 // 2_000 + 1


def test_records_without_keys_fill_batches_partition_after_partition(
    producer: ScriptedBulkProducer,
) -> None:
    delivery = producer.send_batch("t", numbered(20_000))
    settle(producer, 60)
    assert len({written.partition for written in producer.written}) > 1
    sizes = [len(written.columns.values) for written in producer.written]
    assert len(sizes) <= 2 + 20_000 // min(sorted(sizes)[1:])
    ranges = delivery.result()
    found = [
        producer.logs["t", partition][first : first + count]
        for _, partition, first, count in ranges
        if first is not None
    ]
    assert list(chain.from_iterable(found)) == numbered(20_000)


def test_bulk_and_single_records_share_batches(producer: ScriptedBulkProducer) -> None:
    before = producer.send("t", b"before", partition=0)
    delivery = producer.send_batch("t", [b"a", b"b"], partition=0)
    after = producer.send("t", b"after", partition=0)
    settle(producer)
    assert len(producer.written) == 1
    assert before.result().offset == 0
    assert delivery.result() == [RecordMetadataRange("t", 0, 1, 2)]
    assert after.result().offset == 3


def test_more_than_the_memory_holds_waits_for_what_was_sent_before() -> None:
    producer = new(buffer_memory=100_000)
    delivery = producer.send_batch("t", numbered(50_000))
    settle(producer, 60)
    assert sum(found.count for found in delivery.result()) == 50_000
    assert producer.core.pool.free_bytes == 100_000


def test_nothing_is_sent_when_a_record_is_wrong(producer: ScriptedBulkProducer) -> None:
    with pytest.raises(SerializationError, match=r"values\[2\] is of type int"):
        producer.send_batch("t", [b"a", b"b", 7])
    with pytest.raises(RecordTooLargeError, match=r"the record at index 1 .* max_request_size"):
        producer.send_batch("t", [b"a", b"x" * 1_048_577])
    settle(producer)
    assert producer.logs == {}


@pytest.mark.parametrize("keys", [None, []])
@pytest.mark.parametrize("partition", [None, 1])
def test_no_records_are_a_delivery_that_is_done_and_send_nothing(
    producer: ScriptedBulkProducer, keys: list[bytes] | None, partition: int | None
) -> None:
    delivery = producer.send_batch("t", [], keys, partition=partition)
    assert delivery.done()
    assert delivery.result() == []
    settle(producer)
    assert producer.written == []
    after = producer.send("t", b"after", partition=1)
    settle(producer)
    assert after.result().offset == 0


def test_a_partition_that_fails_leaves_the_others_sent(producer: ScriptedBulkProducer) -> None:
    producer.refusals[1] = POLICY_VIOLATION
    keys = [b"key-%d" % (number % 50) for number in range(200)]
    delivery = producer.send_batch("t", numbered(200), keys)
    settle(producer)
    with pytest.raises(
        BatchDeliveryError, match=r"\d+ of 200 records were not delivered"
    ) as raised:
        delivery.result()
    error = raised.value
    failed = [index for span in error.failed for index in span]
    assert failed == [index for index in range(200) if partition_of_key(keys[index], 3) == 1]
    assert sorted(failed + [index for span in error.sent for index in span]) == [*range(200)]
    assert len(error.errors) == len(error.failed)
    assert all(isinstance(cause, PolicyViolationError) for cause in error.errors)
    assert error.__cause__ is error.errors[0]
    assert delivery.exception() is error


def test_of_a_batch_that_is_split_only_the_culprit_fails() -> None:
    producer = new(max_request_size=200_000, batch_size=200_000)
    producer.batch_bytes_max = 5_000
    values = numbered(1_000)
    values[600] = b"x" * 6_000
    delivery = producer.send_batch("t", values, partition=0)
    settle(producer, 200)
    error = delivery.exception()
    assert isinstance(error, BatchDeliveryError)
    assert (error.sent, error.failed) == (
        (range(600), range(601, 1_000)),
        (range(600, 601),),
    )
    assert isinstance(error.errors[0], MessageTooLargeError)
    assert producer.logs["t", 0] == values[:600] + values[601:]


def test_a_call_that_times_out_midway_reports_by_the_delivery(
    producer: ScriptedBulkProducer,
) -> None:
    producer = new(buffer_memory=40_000)
    producer.makes_turns = False
    delivery = producer.send_batch("t", numbered(5_000))
    settle(producer, 30)
    error = delivery.exception()
    assert isinstance(error, BatchDeliveryError)
    (sent,) = error.sent
    (failed,) = error.failed
    assert (sent.start, sent.stop, failed.stop) == (0, failed.start, 5_000)
    assert isinstance(error.errors[0], BufferExhaustedError)
    assert sum(map(len, producer.logs.values())) == len(sent)


def test_a_call_that_gets_nowhere_raises() -> None:
    producer = new(buffer_memory=20_000)
    producer.send("t", b"x" * 15_000, partition=0)
    producer.makes_turns = False
    with pytest.raises(BufferExhaustedError):
        producer.send_batch("t", numbered(1_000), partition=1)
    with pytest.raises(KafkaTimeoutError, match="unheard"):
        producer.send_batch("unheard", [b""])
    with pytest.raises(KafkaTimeoutError, match="no partition 3"):
        producer.send_batch("t", [b""], partition=3)


def test_a_closed_producer_takes_nothing(producer: ScriptedBulkProducer) -> None:
    delivery = producer.send_batch("t", [b"a"])
    producer.core.lifecycle.request_close(1_000)
    with pytest.raises(ClosedError):
        producer.send_batch("t", [b"b"])
    with pytest.raises(ClosedError):
        producer.send_arrow("t", pa.table({"value": [b"b"]}))
    settle(producer)
    assert sum(found.count for found in delivery.result()) == 1


def test_done_callbacks_are_called_once_when_all_is_known(
    producer: ScriptedBulkProducer,
) -> None:
    delivery = producer.send_batch("t", numbered(300), [b"%d" % (n % 9) for n in range(300)])
    completed: list[object] = []
    delivery.add_done_callback(completed.append)
    assert completed == []
    settle(producer)
    assert completed == [delivery]
    delivery.add_done_callback(completed.append)
    assert completed == [delivery, delivery]


def test_serializers_are_called_for_each_record() -> None:
    producer = new(value_serializer=str.encode, key_serializer=lambda number: b"%d" % number)
    producer.send_batch("t", ["a", None], [1, 2], partition=0)
    settle(producer)
    (written,) = producer.written
    assert list(written.columns.values) == [b"a", None]
    assert list(written.columns.keys) == [b"1", b"2"]


def test_an_own_partitioner_is_called_for_each_record() -> None:
    calls: list[tuple[object, ...]] = []

    def partitioner(
        topic: str, key: bytes | None, value: bytes | None, partitions: tuple[PartitionInfo, ...]
    ) -> int:
        calls.append((topic, key, value, len(partitions)))
        return len(calls) % 2

    producer = new(partitioner=partitioner)
    producer.send_batch("t", [b"a", b"b", b"c"], [b"k", None, b"l"])
    settle(producer)
    assert calls == [("t", b"k", b"a", 3), ("t", None, b"b", 3), ("t", b"l", b"c", 3)]
    assert producer.logs == {("t", 1): [b"a", b"c"], ("t", 0): [b"b"]}


def test_a_named_partitioner_divides_rows_as_it_does_records() -> None:
    producer = new(partitioner="round_robin")
    producer.send_batch("t", [b"a", b"b", b"c", b"d"], [b"k"] * 4)
    producer.send_batch("t", [b"e", b"f"], partition=0)
    producer.send_batch("t", [b"g"])
    settle(producer)
    assert producer.logs == {
        ("t", 0): [b"a", b"d", b"e", b"f"],
        ("t", 1): [b"b", b"g"],
        ("t", 2): [b"c"],
    }
    producer = new(partitioner="consistent")
    producer.send_batch("t", [b"a", b"b", b"c"], [b"123456789", None, b""])
    settle(producer)
    crc32 = 0xCBF43926  # of these digits, by which implementations of it are checked
    assert producer.logs == {("t", 0): [b"b", b"c"], ("t", crc32 % 3): [b"a"]}


class Witness:
    """An interceptor that changes the value, and is notified of the result of each record."""

    def __init__(self) -> None:
        self.acknowledged: list[tuple[RecordMetadata, Exception | None]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        import dataclasses

        assert isinstance(record.value, bytes)
        return dataclasses.replace(record, value=record.value + b"!")

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        self.acknowledged.append((metadata, error))


@pytest.mark.parametrize("is_arrow", [False, True])
def test_a_serializer_adds_headers_to_each_record(is_arrow: bool) -> None:
    def serialize(topic: str, headers: list[tuple[str, bytes]], value: str) -> bytes:
        headers.append((topic, value.encode()))
        return value.encode()

    producer = new(value_serializer=serialize)
    if is_arrow:
        delivery = producer.send_arrow("t", pa.table({"value": ["a", None]}))
    else:
        delivery = producer.send_batch("t", ["a", None], headers=[("all", b"")], partition=0)
    settle(producer)
    assert sum(each.count for each in delivery.result()) == 2
    headers = [each for written in producer.written for each in written.columns.headers]
    common = () if is_arrow else (("all", b""),)
    assert sorted(headers) == sorted([(*common, ("t", b"a")), common])


@pytest.mark.parametrize("is_arrow", [False, True])
def test_interceptors_see_each_record(is_arrow: bool) -> None:
    witness = Witness()
    producer = new(interceptors=[witness])
    values, keys = [b"a", b"b"], [b"k", None]
    if is_arrow:
        table = pa.table({"value": values, "key": keys, "partition": pa.array([2, 2], pa.int8())})
        delivery = producer.send_arrow("t", table)
    else:
        delivery = producer.send_batch("t", values, keys, partition=2)
    settle(producer)
    assert producer.logs == {("t", 2): [b"a!", b"b!"]}
    assert delivery.result() == [RecordMetadataRange("t", 2, 0, 2)]
    assert [(metadata.offset, error) for metadata, error in witness.acknowledged] == [
        (0, None),
        (1, None),
    ]


def test_interceptors_are_called_for_all_when_one_is_refused() -> None:
    witness = Witness()
    producer = new(interceptors=[witness], max_request_size=1_000)
    with pytest.raises(RecordTooLargeError) as raised:
        producer.send_batch("t", [b"a", b"x" * 2_000, b"c"])
    assert [error for _, error in witness.acknowledged] == [raised.value] * 2
    settle(producer)
    assert producer.logs == {}


def test_a_partitioner_that_raises_beside_interceptors_leaves_nothing_sent() -> None:
    def choose(topic: str, key: object, value: bytes | None, partitions: object) -> int:
        return {b"a!": 0, b"b!": 1}[value or b""]

    producer = new(interceptors=[Witness()], partitioner=choose)
    with pytest.raises(KeyError):
        producer.send_batch("t", [b"a", b"b", b"none has this"])
    settle(producer)
    assert producer.logs == {}
    producer.send_batch("t", [b"a", b"b"])
    settle(producer)
    assert producer.logs == {("t", 0): [b"a!"], ("t", 1): [b"b!"]}


def test_rows_of_arrow_go_to_their_topics_and_partitions(producer: ScriptedBulkProducer) -> None:
    producer.partition_counts["u"] = 2
    table = pa.table(
        {
            "topic": ["t", "u", "t", "u"],
            "value": [b"a", b"b", None, b"d"],
            "partition": pa.array([1, 0, 1, 1], pa.int32()),
        }
    )
    delivery = producer.send_arrow(None, table)
    settle(producer)
    assert producer.logs == {("t", 1): [b"a", None], ("u", 0): [b"b"], ("u", 1): [b"d"]}
    assert sorted(delivery.result()) == [("t", 1, 0, 2), ("u", 0, 0, 1), ("u", 1, 0, 1)]


def test_a_table_in_many_pieces_is_sent_in_order(producer: ScriptedBulkProducer) -> None:
    chunks = [pa.array(numbered(5_000)[start : start + 1_500]) for start in range(0, 5_000, 1_500)]
    table = pa.table({"value": pa.chunked_array(chunks)})
    for pieces in (table, table.slice(100, 3_000), pa.Table.from_batches(table.to_batches(7))):
        delivery = producer.send_arrow("t", pieces)
        settle(producer, 30)
        found = [
            producer.logs["t", partition][first : first + count]
            for _, partition, first, count in delivery.result()
            if first is not None
        ]
        assert list(chain.from_iterable(found)) == pieces.column("value").to_pylist()


def test_failed_rows_of_arrow_are_numbered_in_the_table(producer: ScriptedBulkProducer) -> None:
    producer.refusals[1] = POLICY_VIOLATION
    partitions = pa.chunked_array([pa.array([0] * 2_000), pa.array([0] * 500 + [1] * 1_500)])
    table = pa.table({"value": pa.chunked_array([numbered(2_000)] * 2), "partition": partitions})
    delivery = producer.send_arrow("t", table)
    settle(producer)
    error = delivery.exception()
    assert isinstance(error, BatchDeliveryError)
    assert error.failed == (range(2_500, 4_000),)


def test_what_is_no_arrow_data_is_refused(producer: ScriptedBulkProducer) -> None:
    with pytest.raises(UsageError, match=r"table or a record batch of Arrow.*not dict"):
        producer.send_arrow("t", {"value": [b"a"]})
