"""The same bytes as Java: each side reads the batches of the other.

The batches of ``golden/java.json`` need no JVM; the other tests call a Java process with Kafka's
own classes and are skipped where there is none.
"""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykclient.accel import partition_of_key
from pykclient.accel.batch_layout import HEADER_SIZE_BYTES
from pykclient.records.builder import RecordBatchBuilder
from pykclient.records.compression import Codec
from pykclient.records.control import ControlType, control_type
from pykclient.types import TimestampType
from tests.records.batches import CODECS, ROWS, Row, build, read
from tests.records.golden import GAPS, PLAIN, PRODUCER, RECORDS, golden, write_all
from tests.records.record_mirror import JavaRecord, RecordMirror

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.records.batch import RecordBatch

GOLDEN = golden()
CODEC_NAMES = [codec.name.lower() for codec in CODECS]
NO_JVM_IS_SLOW = settings(deadline=None, max_examples=40)


def records_of(batch: RecordBatch) -> list[JavaRecord]:
    return [JavaRecord(*row) for row in batch.records()]


def read_golden(name: str) -> RecordBatch:
    (batch,) = read(GOLDEN[name])
    return batch


# What Java wrote once.


@pytest.mark.parametrize("codec", CODECS)
def test_records_that_java_wrote_are_read(codec: Codec) -> None:
    batch = read_golden(codec.name.lower())
    assert records_of(batch) == RECORDS
    assert (batch.codec, batch.base_offset, batch.last_offset) == (codec, 100, 103)
    assert batch.max_timestamp_ms == 1_700_000_100_000
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert (batch.is_transactional, batch.is_control) == (False, False)


@pytest.mark.promise("Java reads our batches, and we read Java's")
def test_what_is_written_here_is_byte_for_byte_what_java_wrote() -> None:
    rows: list[Row] = [record[1:] for record in RECORDS]
    assert build(rows, base_offset=100) == GOLDEN["none"]
    producer = dict(zip(("producer_id", "producer_epoch", "base_sequence"), PRODUCER, strict=True))
    written = build(rows, Codec.NONE, 100, **producer, partition_leader_epoch=6)
    assert written == GOLDEN["idempotent"]
    written = build(rows, Codec.NONE, 100, **producer, is_transactional=True)
    assert written == GOLDEN["transactional"]


def test_the_producer_of_java_is_read() -> None:
    for name, is_transactional in (("idempotent", False), ("transactional", True)):
        batch = read_golden(name)
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == PRODUCER
        assert batch.is_transactional is is_transactional
        assert records_of(batch) == RECORDS
    assert read_golden("idempotent").partition_leader_epoch == 6


def test_log_append_time_of_java_is_read() -> None:
    batch = read_golden("log append time")
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    stamped = [record._replace(timestamp_ms=1_700_000_500_000) for record in RECORDS]
    assert records_of(batch) == stamped


def test_offsets_with_gaps_that_java_wrote_are_read() -> None:
    assert records_of(read_golden("compacted")) == GAPS


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_markers_that_java_wrote_are_read(kind: ControlType) -> None:
    batch = read_golden(kind.name.lower())
    assert batch.is_control
    assert (control_type(batch), batch.producer_id, batch.base_offset) == (kind, 4711, 104)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_messages_of_the_old_formats_that_java_wrote_are_read(codec: str) -> None:
    records = [record for batch in read(GOLDEN[f"magic 1 {codec}"]) for record in records_of(batch)]
    assert records == PLAIN
    if codec != "lz4":
        records = [
            record for batch in read(GOLDEN[f"magic 0 {codec}"]) for record in records_of(batch)
        ]
        assert records == [record._replace(timestamp_ms=-1) for record in PLAIN]


# What Java returns now.


@pytest.fixture(scope="module")
def java() -> Iterator[RecordMirror]:
    with RecordMirror() as started:
        yield started


def test_java_still_writes_what_the_file_holds(java: RecordMirror) -> None:
    for name, data in write_all(java).items():
        if "gzip" in name:
            # The machine that made it stands in gzip's header, and its zlib in the bytes.
            assert [records_of(batch) for batch in read(data)] == [
                records_of(batch) for batch in read(GOLDEN[name])
            ]
        else:
            assert data == GOLDEN[name], name


@pytest.mark.promise("Java reads our batches, and we read Java's")
@NO_JVM_IS_SLOW
@given(rows=ROWS, codec=st.sampled_from(CODECS), base_offset=st.integers(0, 2**62))
def test_java_reads_what_is_written_here(
    java: RecordMirror, rows: list[Row], codec: Codec, base_offset: int
) -> None:
    data = build(rows, codec, base_offset, producer_id=5, producer_epoch=2, base_sequence=77)
    (batch,) = java.read(data)
    assert batch.records == [
        JavaRecord(base_offset + index, *row) for index, row in enumerate(rows)
    ]
    assert (batch.magic, batch.codec, batch.timestamp_type) == (2, codec, 0)
    assert (batch.base_offset, batch.last_offset) == (base_offset, base_offset + len(rows) - 1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (5, 2, 77)
    assert batch.max_timestamp_ms == max(row[0] for row in rows)
    assert (batch.is_transactional, batch.is_control) == (0, 0)


@pytest.mark.promise("Java reads our batches, and we read Java's")
@NO_JVM_IS_SLOW
@given(rows=ROWS, codec=st.sampled_from(CODEC_NAMES), base_offset=st.integers(0, 2**62))
def test_what_java_writes_is_read_here(
    java: RecordMirror, rows: list[Row], codec: str, base_offset: int
) -> None:
    records = [JavaRecord(base_offset + index, *row) for index, row in enumerate(rows)]
    (batch,) = read(java.write(records, codec=codec, base_offset=base_offset))
    assert records_of(batch) == records


@NO_JVM_IS_SLOW
@given(rows=ROWS)
def test_uncompressed_batches_are_byte_for_byte_the_same(
    java: RecordMirror, rows: list[Row]
) -> None:
    records = [JavaRecord(index, *row) for index, row in enumerate(rows)]
    assert build(rows) == java.write(records)


@pytest.mark.parametrize(
    ("codec", "level"),
    [("gzip", 1), ("gzip", 9), ("lz4", 1), ("lz4", 17), ("zstd", -5), ("zstd", 22)],
)
def test_levels_are_read_both_ways(java: RecordMirror, codec: str, level: int) -> None:
    records = [JavaRecord(n, 1000 + n, None, b"%d flights" % n) for n in range(1000)]
    (batch,) = read(java.write(records, codec=codec, level=level))
    assert records_of(batch) == records
    builder = RecordBatchBuilder[None](
        batch_size_bytes=10**6, codec=Codec[codec.upper()], level=level
    )
    for record in records:
        builder.try_append(*record[1:])
    assert java.read(builder.close())[0].records == records


@pytest.mark.parametrize("codec", CODECS)
def test_large_records_go_both_ways(java: RecordMirror, codec: Codec) -> None:
    # Several blocks of snappy and lz4, some of them incompressible.
    noise = gzip.compress(b"".join(b"%d," % (n * 7919) for n in range(100_000)), mtime=0)
    records = [JavaRecord(0, 1, None, noise), JavaRecord(1, 2, b"key", bytes(900_000))]
    rows: list[Row] = [record[1:] for record in records]
    assert java.read(build(rows, codec))[0].records == records
    assert records_of(read(java.write(records, codec=codec.name.lower()))[0]) == records


def test_java_reads_markers_written_here(java: RecordMirror) -> None:
    key, value = b"\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00\x09"
    data = build(
        [(5, key, value, ())],
        base_offset=104,
        producer_id=4711,
        producer_epoch=1,
        is_transactional=True,
        is_control=True,
        partition_leader_epoch=3,
    )
    assert data[HEADER_SIZE_BYTES:] == GOLDEN["abort"][HEADER_SIZE_BYTES:]
    (batch,) = java.read(data)
    assert (batch.is_control, batch.is_transactional, batch.producer_id) == (1, 1, 4711)


@pytest.mark.promise("a record with a key goes to the same partition as with Java")
@NO_JVM_IS_SLOW
@given(key=st.binary(max_size=100))
def test_murmur2_is_that_of_java(java: RecordMirror, key: bytes) -> None:
    assert partition_of_key(key, 2**31) == java.murmur2(key) & 0x7FFFFFFF
