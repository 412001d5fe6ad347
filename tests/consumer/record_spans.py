"""Runs of records as the buffer hands them out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.accel import ListColumns
from pykclient.consumer.record import RecordSpan
from pykclient.types import TimestampType, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient.types import Headers

__all__ = ["TIMESTAMP_MS", "A", "B", "span"]

A, B = TopicPartition("t", 0), TopicPartition("u", 1)
TIMESTAMP_MS = 1_700_000_000_000


def span(
    partition: TopicPartition,
    offsets: Sequence[int],
    *,
    values: Sequence[bytes | None] | None = None,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Headers] | None = None,
    timestamps_ms: Sequence[int] | None = None,
) -> RecordSpan:
    """A span with records at these offsets; what is not given is made up."""
    count = len(offsets)
    columns = ListColumns(
        offsets,
        [TIMESTAMP_MS] * count if timestamps_ms is None else timestamps_ms,
        [None] * count if keys is None else keys,
        [b"v%d" % offset for offset in offsets] if values is None else values,
        [()] * count if headers is None else headers,
        size_bytes=0,
    )
    return RecordSpan(partition, columns, TimestampType.CREATE_TIME, 5)
