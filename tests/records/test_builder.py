"""The builder: limits, closing again for another producer, and the bounds that are promised."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient import accel
from pykclient.accel.batch_layout import HEADER_SIZE_BYTES
from pykclient.records.builder import (
    RecordBatchBuilder,
    batch_size_upper_bound,
)
from pykclient.records.compression import Codec
from tests.records.batches import CODECS, ROWS, Row, read, rows_of


def test_a_batch_takes_records_until_its_size_is_reached_and_not_one_more() -> None:
    builder = RecordBatchBuilder[None](batch_size_bytes=1000)
    count = 0
    while builder.try_append(1000, None, b"0123456789") is not None:
        count += 1
    record_bytes = 17
    assert count == (1000 - HEADER_SIZE_BYTES) // record_bytes == builder.appender.count
    assert len(builder.close()) == HEADER_SIZE_BYTES + count * record_bytes <= 1000


@pytest.mark.parametrize("batch_size_bytes", [0, 1, 61, 100])
def test_a_batch_always_takes_one_record(batch_size_bytes: int) -> None:
    builder = RecordBatchBuilder[None](batch_size_bytes=batch_size_bytes)
    assert builder.try_append(0, b"k" * 500, b"v" * 500) == 0
    assert builder.try_append(0, None, None) is None
    (batch,) = read(builder.close())
    assert batch.record_count == 1


@pytest.mark.parametrize("codec", CODECS)
def test_closing_again_changes_the_header_and_leaves_the_records(codec: Codec) -> None:
    builder = RecordBatchBuilder[None](batch_size_bytes=1000, codec=codec)
    builder.try_append(1000, b"k", b"v")
    first = builder.close(producer_id=1, producer_epoch=0, base_sequence=5)
    second = builder.close(producer_id=2, producer_epoch=3, base_sequence=0)
    assert first[HEADER_SIZE_BYTES:] == second[HEADER_SIZE_BYTES:]
    (one,), (two,) = read(first), read(second)
    assert (one.producer_id, one.producer_epoch, one.base_sequence) == (1, 0, 5)
    assert (two.producer_id, two.producer_epoch, two.base_sequence) == (2, 3, 0)
    assert rows_of(one) == rows_of(two) == [(1000, b"k", b"v", ())]


def test_closing_again_does_not_touch_what_was_closed_before() -> None:
    # A request may still carry the first bytes while the second ones are made (CVE-2026-35554).
    builder = RecordBatchBuilder[None](batch_size_bytes=1000)
    builder.try_append(1000, b"k", b"v")
    first = builder.close(base_sequence=5)
    before = bytes(first)
    builder.close(base_sequence=6)
    assert bytes(first) == before


@given(ROWS)
def test_the_records_can_be_had_again_to_split_the_batch(rows: list[Row]) -> None:
    builder = RecordBatchBuilder[None](batch_size_bytes=10**9, codec=Codec.LZ4)
    for row in rows:
        builder.try_append(*row)
    builder.close()
    records = list(builder.records())
    assert [record[0] for record in records] == list(range(len(rows)))
    assert [record[1:] for record in records] == rows


@pytest.mark.soak
def test_a_batch_with_more_headers_than_are_decoded_at_once_is_read_and_split() -> None:
    """Goal: what a producer writes, a consumer reads, and a broker's "too large" can be obeyed."""
    rows: list[Row] = [(5, None, b"%d" % n, (("", None),) * 400_000) for n in range(4)]
    builder = RecordBatchBuilder[None](batch_size_bytes=10**9)
    for row in rows:
        builder.try_append(*row)
    (batch,) = read(builder.close())
    assert [len(chunk) for chunk in batch.chunks(decompressed_size_bytes_max=0)] == [2, 2]
    assert [len(chunk) for chunk in batch.chunks(1, decompressed_size_bytes_max=0)] == [1, 2]
    assert batch.records().values == [b"0", b"1", b"2", b"3"]
    assert [(value, len(headers)) for *_, value, headers in builder.records()] == [
        (row[2], 400_000) for row in rows
    ]


@given(ROWS)
def test_no_record_is_larger_than_its_upper_bound(rows: list[Row]) -> None:
    for row in rows:
        _, key, value, headers = row
        # The offset delta and the timestamp delta take most in a record that comes late.
        builder = RecordBatchBuilder[None](batch_size_bytes=10**9)
        builder.try_append(*row)
        assert len(builder.close()) <= batch_size_upper_bound(key, value, headers)


def test_the_upper_bound_holds_for_the_largest_deltas() -> None:
    builder = RecordBatchBuilder[None](batch_size_bytes=10**9)
    for _ in range(9000):
        builder.try_append(0, None, None)
    before = builder.appender.size_bytes
    builder.try_append(2**63 - 1, b"k" * 10_000, b"v" * 100_000, [("h" * 100, b"x" * 10_000)])
    bound = batch_size_upper_bound(b"k" * 10_000, b"v" * 100_000, [("h" * 100, b"x" * 10_000)])
    record_bytes = builder.appender.size_bytes - before
    assert record_bytes <= bound - HEADER_SIZE_BYTES <= record_bytes + 30


@given(st.lists(st.integers(0, 2**60), min_size=1, max_size=10))
def test_the_header_has_the_first_and_the_latest_timestamp(timestamps_ms: list[int]) -> None:
    builder = RecordBatchBuilder[None](batch_size_bytes=10**6)
    for timestamp_ms in timestamps_ms:
        builder.try_append(timestamp_ms, None, b"")
    (batch,) = read(builder.close())
    assert batch.base_timestamp_ms == timestamps_ms[0]
    assert batch.max_timestamp_ms == max(timestamps_ms)


@pytest.mark.skipif(accel.implementation == "compiled", reason="the compiled core has the GIL")
def test_the_lock_that_was_given_is_the_one_that_is_taken() -> None:
    lock = threading.Lock()
    builder = RecordBatchBuilder[None](batch_size_bytes=1000, lock=lock)
    done = threading.Event()

    def append() -> None:
        builder.try_append(0, None, b"v")
        done.set()

    thread = threading.Thread(target=append)
    with lock:
        thread.start()
        assert not done.is_set()
        assert builder.appender.count == 0
    thread.join()
    assert builder.appender.count == 1
