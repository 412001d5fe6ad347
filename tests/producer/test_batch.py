"""ProducerBatch: its states, its bytes, and how it is split."""

from __future__ import annotations

import threading

import pytest

from pykclient.errors import KafkaError
from pykclient.producer.accumulator.batch import (
    NEXT,
    BatchState,
    Compression,
    Leader,
    ProducerBatch,
    ProducerIdentity,
    sequence_after,
)
from pykclient.producer.delivery import ProduceResult
from pykclient.producer.failure_reports import FailureReports
from pykclient.records.batch import RecordBatch, iterate_batches
from pykclient.records.compression import Codec
from pykclient.types import TopicPartition
from tests.producer.sender_bench import NoWaiting

PARTITION = TopicPartition("t", 0)


def new_batch(
    record_count: int, *, reserved_bytes: int = 10_000, codec: Codec = Codec.NONE
) -> ProducerBatch:
    lock = threading.Lock()
    batch = ProducerBatch(
        ProduceResult(PARTITION, FailureReports("", lambda: 0), NoWaiting()),
        lock,
        serial=(4,),
        created_ms=0,
        due_ms=0,
        capacity_bytes=reserved_bytes,
        compression=Compression(codec, None),
    )
    batch.reserved_bytes = reserved_bytes
    for index in range(record_count):
        assert batch.appender.append(index, None, b"v%d" % index) is not None
    return batch


def decoded(data: memoryview) -> RecordBatch:
    (batch,) = iterate_batches(data, topic="t", partition=0)
    return batch


def test_a_batch_can_be_encoded_again_under_another_identity() -> None:
    batch = new_batch(3, codec=Codec.GZIP)
    batch.seal()
    before = decoded(batch.encode())
    batch.identity, batch.base_sequence = ProducerIdentity(7, 2), 40
    after = decoded(batch.encode())
    assert (before.producer_id, before.base_sequence) == (-1, -1)
    assert (after.producer_id, after.producer_epoch, after.base_sequence) == (7, 2, 40)
    assert list(before.records()) == list(after.records())
    assert after.codec is Codec.GZIP


def test_a_sealed_batch_takes_no_more_and_has_its_size() -> None:
    batch = new_batch(3)
    batch.seal()
    batch.seal()
    assert batch.appender.append(9, None, b"late") is None
    assert (batch.record_count, batch.size_bytes) == (3, len(batch.encode()))


def test_a_batch_goes_through_its_states_and_through_no_others() -> None:
    batch = new_batch(1)
    with pytest.raises(AssertionError):
        batch.on_sent(Leader(1, 1))
    batch.seal()
    batch.on_sent(Leader(1, 1))
    batch.on_retry(KafkaError("again"), 50)
    assert (batch.state, batch.attempt_count, batch.due_ms) == (BatchState.CLOSED, 1, 50)
    batch.on_sent(Leader(2, 1))
    batch.succeed(5, None)
    with pytest.raises(AssertionError):
        batch.fail(KafkaError("too late"))
    assert NEXT[BatchState.DONE] == frozenset()


def test_a_batch_that_is_done_lets_its_records_go() -> None:
    batch = new_batch(1)
    batch.seal()
    batch.fail(KafkaError("no"))
    with pytest.raises(AssertionError, match="no records"):
        batch.encode()


def test_a_split_keeps_order_sequence_callbacks_and_doubts() -> None:
    offsets: list[int | None] = []
    batch = new_batch(4)
    batch.appender.append(9, b"k", None, [("h", b"x")], lambda m, _: offsets.append(m.offset))
    batch.seal()
    batch.identity, batch.base_sequence = ProducerIdentity(7, 2), 2**31 - 2
    batch.may_be_written = True
    batch.on_sent(Leader(1, 1))
    batch.on_retry(KafkaError("once"), 5)
    batch.on_sent(Leader(2, 2))
    first, second = batch.split(threading.Lock())
    assert batch.state is BatchState.DONE
    assert [part.state for part in (first, second)] == [BatchState.CLOSED] * 2
    assert [part.record_count for part in (first, second)] == [2, 3]
    assert [part.base_sequence for part in (first, second)] == [2**31 - 2, 0]
    assert {part.identity for part in (first, second)} == {ProducerIdentity(7, 2)}
    assert first.serial < second.serial < (5,)
    assert batch.serial < first.serial
    assert first.may_be_written
    assert second.may_be_written
    assert [(part.attempt_count, str(part.last_error)) for part in (first, second)] == [
        (1, "once")
    ] * 2
    assert decoded(first.encode()).records().values == [b"v0", b"v1"]
    columns = decoded(second.encode()).records()
    assert columns.values == [b"v2", b"v3", None]
    assert columns.headers[2] == (("h", b"x"),)
    assert (columns.keys[2], columns.timestamps_ms[2]) == (b"k", 9)
    second.succeed(70, None)
    call = second.result.take_call()
    assert call is not None
    call()
    assert offsets == [72]


@pytest.mark.parametrize(
    ("sequence", "count", "following"),
    [(0, 1, 1), (5, 10, 15), (2**31 - 1, 1, 0), (2**31 - 3, 5, 2)],
)
def test_sequence_numbers_start_over_after_31_bits(
    sequence: int, count: int, following: int
) -> None:
    assert sequence_after(sequence, count) == following
