"""Batches for these tests: random ones, and bytes that can be damaged with a right checksum."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import strategies as st

from pykclient.accel import crc32c
from pykclient.accel.batch_layout import CRC_AT, CRC_START
from pykclient.errors.base import CorruptRecordError
from pykclient.records.batch import RecordBatch, iterate_batches
from pykclient.records.builder import RecordBatchBuilder
from pykclient.records.compression import Codec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.types import Headers

Row = tuple[int, bytes | None, bytes | None, "Headers"]
"""Timestamp, key, value, headers."""

CODECS = tuple(Codec)

_BYTES = st.none() | st.binary(max_size=30) | st.sampled_from([b"a" * 200, b"{}" * 40_000])
_HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2)
ROWS = st.lists(
    st.tuples(st.integers(0, 2**60), _BYTES, _BYTES, _HEADERS.map(tuple)), min_size=1, max_size=8
)


def build(
    rows: Iterable[Row], codec: Codec = Codec.NONE, base_offset: int = 0, **header: int
) -> bytes:
    """Build a batch of these records; `header` has further arguments of `close`."""
    builder = RecordBatchBuilder[None](batch_size_bytes=10**9, codec=codec)
    for row in rows:
        builder.try_append(*row)
    return bytes(builder.close(base_offset=base_offset, **header))  # type: ignore[arg-type]


def read(data: bytes | bytearray | memoryview, start_offset: int = 0) -> list[RecordBatch]:
    """Return the batches of `data` as one of ``flights-3``."""
    view = memoryview(data)
    return list(iterate_batches(view, topic="flights", partition=3, start_offset=start_offset))


def read_all(data: bytes) -> None:
    """Read the batches of `data` with their records."""
    for batch in read(data):
        batch.records()


def assert_corrupt(data: bytes, reason: str, offset: int = 0) -> None:
    """Assert that reading `data` raises an error with the reason and the offset."""
    with pytest.raises(CorruptRecordError, match=reason) as caught:
        read_all(data)
    error = caught.value
    assert (error.topic, error.partition, error.offset) == ("flights", 3, offset)
    assert f"flights-3: the record batch at offset {offset} is corrupt" in str(error)


def rows_of(batch: RecordBatch) -> list[Row]:
    """Its records, without their offsets."""
    columns = batch.records()
    return list(
        zip(columns.timestamps_ms, columns.keys, columns.values, columns.headers, strict=True)
    )


def resealed(batch: bytes | bytearray) -> bytes:
    """Return the batch with the length and the checksum that its bytes should have."""
    data = bytearray(batch)
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[CRC_AT:CRC_START] = crc32c(bytes(data[CRC_START:])).to_bytes(4, "big")
    return bytes(data)


def header_changed(batch: bytes, position: int, value: int, size_bytes: int) -> bytes:
    """Replace one number of the batch's header and correct the checksum."""
    data = bytearray(batch)
    data[position : position + size_bytes] = value.to_bytes(size_bytes, "big", signed=True)
    return resealed(data)
