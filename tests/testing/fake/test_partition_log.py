"""A partition's log: lookups by offset and timestamp, and checks of producers."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest

from pykclient.errors import OffsetOutOfRangeError
from pykclient.errors.broker import (
    CorruptMessageError,
    InvalidProducerEpochError,
    InvalidRecordError,
    MessageTooLargeError,
    OutOfOrderSequenceNumberError,
)
from pykclient.records.batch import RecordBatch, iterate_batches
from pykclient.testing.fake.log import Appended, LogSettings, PartitionLog, Refused
from pykclient.testing.fake.storage import MemoryData
from pykclient.types import TimestampType
from tests.testing.fake.requests import batch_of

NOW_MS = 5_000


def append(log: PartitionLog, data: bytes, *, leader_epoch: int = 0) -> Appended:
    appended = log.append(data, leader_epoch=leader_epoch, now_ms=NOW_MS)
    assert isinstance(appended, Appended), appended
    return appended


def refusal(log: PartitionLog, data: bytes) -> type[Exception]:
    refused = log.append(data, leader_epoch=0, now_ms=NOW_MS)
    assert isinstance(refused, Refused)
    return refused.error


def read(log: PartitionLog, offset: int, max_bytes: int = 1_000_000) -> list[int]:
    """Return the offsets of the records from `offset` on."""
    data = log.read(offset, end_offset=log.log_end_offset, max_bytes=max_bytes, whole_first=True)
    assert isinstance(data, bytes)
    batches = iterate_batches(memoryview(data), topic="t", partition=0, start_offset=offset)
    return [each for batch in batches for each in batch.records(offset).offsets]


@pytest.mark.parametrize("seed", range(20))
def test_every_offset_and_every_time_is_found_as_by_looking_at_all(seed: int) -> None:
    """Goal: the sparse indexes miss nothing. Method: many batches against plain lists."""
    random = Random(seed)
    log = PartitionLog(LogSettings(segment_bytes=random.choice((2_000, 20_000, 10_000_000))))
    times_ms: list[int] = []
    time_ms = 1_000
    for _ in range(random.randrange(1, 120)):
        values = [bytes(random.randrange(400)) for _ in range(random.randrange(1, 6))]
        time_ms += random.choice((-300, 0, 1, 50, 1_000))
        append(log, batch_of(*values, timestamp_ms=max(0, time_ms)))
        times_ms += [max(0, time_ms) + number for number in range(len(values))]
    assert log.log_end_offset == len(times_ms)
    for offset in range(len(times_ms)):
        assert read(log, offset)[0] == offset
    for wanted_ms in (0, *random.choices(times_ms, k=20), max(times_ms), max(times_ms) + 1):
        expected = next((o for o, t in enumerate(times_ms) if t >= wanted_ms), None)
        found = log.find_timestamp(wanted_ms, log.log_end_offset)
        assert (None if found is None else found.offset) == expected
    largest = log.find_max_timestamp(log.log_end_offset)
    assert largest is not None
    assert (largest.offset, largest.timestamp_ms) == (times_ms.index(max(times_ms)), max(times_ms))


@pytest.mark.parametrize("segment_bytes", [1_000, 1_000_000])
@pytest.mark.parametrize("start_offset", [0, 4, 5, 17, 29])
def test_times_are_found_behind_deleted_records(segment_bytes: int, start_offset: int) -> None:
    """Records before the log's start are still in its first segment, and must not be found."""
    log = PartitionLog(LogSettings(segment_bytes=segment_bytes))
    for number in range(10):
        append(log, batch_of(*[bytes(100)] * 3, timestamp_ms=3 * number))
    log.delete_records(start_offset)
    for wanted_ms in range(30):
        found = log.find_timestamp(wanted_ms, log.log_end_offset)
        assert found is not None
        assert found.offset == max(wanted_ms, start_offset)


def test_a_read_from_memory_copies_once() -> None:
    size_bytes = 4_000_000
    data = MemoryData()
    data.append(bytes(size_bytes))
    tracemalloc.start()
    try:
        read_bytes = len(data.read(1, size_bytes))
        _, largest_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert read_bytes == size_bytes - 1
    assert largest_bytes < 1.5 * size_bytes


def test_a_read_is_bounded_but_has_its_first_batch_whole() -> None:
    log = PartitionLog()
    for _ in range(3):
        append(log, batch_of(bytes(1_000)))
    assert read(log, 1, max_bytes=10) == [1]
    assert log.read(1, end_offset=3, max_bytes=10, whole_first=False) != b""
    assert log.read(3, end_offset=3, max_bytes=10, whole_first=True) == b""
    assert log.read(1, end_offset=1, max_bytes=10, whole_first=True) == b""
    up_to_one = log.read(0, end_offset=1, max_bytes=10_000, whole_first=True)
    assert isinstance(up_to_one, bytes)
    assert len(up_to_one) * 3 == log.size_bytes
    for offset in (-1, 4):
        assert log.read(offset, end_offset=3, max_bytes=10, whole_first=True) is (
            OffsetOutOfRangeError
        )


def test_a_duplicate_batch_gets_the_first_response_and_is_not_appended() -> None:
    log = PartitionLog()
    numbered = [
        batch_of(b"a", b"b", producer_id=7, base_sequence=2 * number) for number in range(7)
    ]
    offsets = [append(log, data).base_offset for data in numbered]
    for data, offset in zip(numbered[-5:], offsets[-5:], strict=True):
        assert append(log, data) == Appended(offset, -1, is_duplicate=True)
    assert refusal(log, numbered[0]) is OutOfOrderSequenceNumberError, "only five are remembered"
    assert log.log_end_offset == 14


def test_sequences_and_epochs_are_checked() -> None:
    log = PartitionLog()

    def numbered(epoch: int, sequence: int) -> bytes:
        return batch_of(b"v", producer_id=7, producer_epoch=epoch, base_sequence=sequence)

    append(log, numbered(3, 10))  # an unknown producer may begin anywhere
    assert refusal(log, numbered(3, 12)) is OutOfOrderSequenceNumberError
    assert refusal(log, numbered(2, 11)) is InvalidProducerEpochError
    assert refusal(log, numbered(4, 11)) is OutOfOrderSequenceNumberError
    append(log, numbered(4, 0))
    append(log, numbered(4, 1))
    log.producers.forget()
    append(log, numbered(0, 5))


def test_the_sequence_after_the_largest_is_zero() -> None:
    log = PartitionLog()
    for sequence in (2**31 - 2, 0):
        append(log, batch_of(b"a", b"b", producer_id=7, base_sequence=sequence))


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", CorruptMessageError),
        (b"garbage", CorruptMessageError),
        (batch_of(b"v")[:-1], CorruptMessageError),
        (batch_of(b"v")[:-1] + b"x", CorruptMessageError),
        (batch_of(b"value").replace(b"value", b"valuE"), CorruptMessageError),
        (batch_of(b"a") + batch_of(b"b"), InvalidRecordError),
        (batch_of(b"v")[:16] + b"\x01" + batch_of(b"v")[17:], InvalidRecordError),
        (batch_of(bytes(3_000)), MessageTooLargeError),
    ],
)
def test_what_kafka_would_not_append_is_refused(data: bytes, error: type[Exception]) -> None:
    log = PartitionLog(LogSettings(max_message_bytes=2_000))
    assert refusal(log, data) is error
    assert log.log_end_offset == 0


def test_a_refused_batch_is_named_by_its_partition_alone() -> None:
    """The log does not know the partition that it is of, which the response names."""
    log = PartitionLog()
    refused = log.append(batch_of(b"v")[:-1] + b"x", leader_epoch=0, now_ms=NOW_MS)
    assert isinstance(refused, Refused)
    assert refused.reason.startswith("the record batch at offset 0 is corrupt: its checksum is")


def test_with_log_append_time_every_record_has_the_brokers() -> None:
    log = PartitionLog(LogSettings(is_log_append_time=True))
    assert append(log, batch_of(b"a", b"b")).log_append_time_ms == NOW_MS
    (batch,) = log.batches()
    checked = RecordBatch(memoryview(bytes(whole(log))), topic="t", partition=0)
    assert checked.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert list(batch.records().timestamps_ms) == [NOW_MS, NOW_MS]


def whole(log: PartitionLog) -> bytes:
    data = log.read(0, end_offset=log.log_end_offset, max_bytes=10**9, whole_first=True)
    assert isinstance(data, bytes)
    return data


def test_leader_epochs_have_their_end_offsets() -> None:
    log = PartitionLog()
    for epoch, count in ((0, 3), (2, 2), (5, 1)):
        append(log, batch_of(*[b"v"] * count), leader_epoch=epoch)
    assert [log.epoch_end(epoch) for epoch in (0, 1, 2, 4, 5, 6)] == [
        *((0, 3), (0, 3), (2, 5), (2, 5), (5, 6), (-1, -1)),
    ]
    assert [log.epoch_at(offset) for offset in (0, 2, 3, 5)] == [0, 0, 2, 5]


def test_an_epoch_without_a_write_is_known_to_its_leader_alone() -> None:
    log = PartitionLog()
    append(log, batch_of(*[b"v"] * 3))
    log.begin_epoch(1)
    assert log.epoch_end(1) == (1, 3)
    log.begin_epoch(2)
    assert [log.epoch_end(epoch) for epoch in (0, 1, 2)] == [(0, 3), (0, 3), (2, 3)]


def test_deleted_and_cleaned_records_take_their_epochs_along() -> None:
    """Epochs before the log's start end there; epochs cleaned away end at what is left."""
    log = PartitionLog()
    for epoch in range(4):
        append(log, batch_of(*[b"v"] * 2), leader_epoch=epoch)
    log.clean(lambda batch, data: None if batch.partition_leader_epoch == 1 else data)
    assert read(log, 0) == [0, 1, 4, 5, 6, 7]
    assert [log.epoch_end(epoch) for epoch in (0, 1, 2)] == [(0, 4), (0, 4), (2, 6)]
    log.delete_records(6)
    assert [log.epoch_end(epoch) for epoch in (0, 2, 3)] == [(0, 6), (2, 6), (3, 8)]


def test_a_transaction_is_undecided_until_its_marker_is_in_all_replicas() -> None:
    log = PartitionLog()
    append(log, batch_of(b"v", producer_id=7, is_transactional=True))
    log.append_marker(7, 0, is_commit=False, leader_epoch=0, now_ms=NOW_MS)
    log.high_watermark = 1
    assert log.last_stable_offset == 0
    log.high_watermark = 2
    assert log.last_stable_offset == 2


def test_truncation_forgets_records_epochs_and_producers() -> None:
    log = PartitionLog(LogSettings(segment_bytes=100))
    for number in range(4):
        data = batch_of(b"v", producer_id=7, base_sequence=number)
        append(log, data, leader_epoch=number)
    log.high_watermark = 4
    log.truncate(2)
    assert (log.log_end_offset, log.high_watermark) == (2, 2)
    log.begin_epoch(4)
    assert log.epoch_end(3) == (1, 2)
    data = batch_of(b"w", producer_id=7, base_sequence=2)
    assert not append(log, data, leader_epoch=4).is_duplicate
    assert read(log, 0)[0] == 0


def test_deleted_and_old_records_are_gone_and_the_rest_is_not() -> None:
    log = PartitionLog(LogSettings(segment_bytes=200, retention_ms=1_000))
    for number in range(6):
        append(log, batch_of(bytes(100), timestamp_ms=number * 1_000))
    log.high_watermark = 6
    log.delete_records(1)
    assert log.log_start_offset == 1
    assert log.segment_count == 5
    log.retain(4_500)
    assert log.log_start_offset == 4
    assert read(log, 4)[0] == 4
    log.retain(10**9)
    assert log.log_start_offset == 5, "the active segment stays"


def test_open_transactions_hold_the_last_stable_offset_and_aborted_ones_are_returned() -> None:
    log = PartitionLog()

    append(log, batch_of(b"plain"))
    for producer_id in (7, 8):
        opened = batch_of(b"v", producer_id=producer_id, base_sequence=0, is_transactional=True)
        append(log, opened)
    log.high_watermark = log.log_end_offset
    assert log.last_stable_offset == 1
    log.append_marker(8, 0, is_commit=True, leader_epoch=0, now_ms=NOW_MS)
    assert log.last_stable_offset == 1
    marker = log.append_marker(7, 0, is_commit=False, leader_epoch=0, now_ms=NOW_MS)
    log.high_watermark = log.log_end_offset
    assert log.last_stable_offset == 5
    assert isinstance(marker, Appended)
    (aborted,) = log.aborted_between(0, 5)
    assert aborted == (7, 1, marker.base_offset)
    assert log.aborted_between(2, 5) == [aborted]
    assert log.aborted_between(5, 9) == []
