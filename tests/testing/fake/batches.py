"""Batches as a producer sends them, for tests of the fake broker."""

from __future__ import annotations

from pykclient.records.builder import RecordBatchBuilder

__all__ = ["batch_of", "many"]


def batch_of(
    *values: bytes | None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    timestamp_ms: int = 1_000,
    is_transactional: bool = False,
) -> bytes:
    """One batch; its records' timestamps go up by one."""
    builder: RecordBatchBuilder[None] = RecordBatchBuilder(batch_size_bytes=10_000_000)
    for number, value in enumerate(values):
        builder.try_append(timestamp_ms + number, None, value)
    return bytes(
        builder.close(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )
    )


def many(count: int) -> list[bytes]:
    """Some values."""
    return [b"%d" % number for number in range(count)]
