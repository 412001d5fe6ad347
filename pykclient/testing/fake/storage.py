"""Storage of a fake cluster: its segments, and the state that outlives it.

The cluster writes only through these classes and opens no files. `Storage`, the default, keeps
segments in memory and nothing else. `data_directory` overrides every method and uses files.

Owner: the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pykclient.errors.base import KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pykclient.types import TopicPartition

    OffsetFields = tuple[int, int, str]
    """A committed offset: offset, leader epoch and metadata."""


class StorageError(KafkaError):
    """Failure to read or write stored data; the broker stops, as Kafka's does."""


class SegmentData(Protocol):
    """Bytes of a segment. Every call may raise `StorageError`."""

    def __len__(self) -> int: ...

    def append(self, data: bytes) -> None:
        """Append bytes at the end."""
        ...

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return the bytes from `position` on; fewer at the end of the segment."""
        ...

    def overwrite(self, position: int, data: bytes) -> None:
        """Overwrite existing bytes."""
        ...

    def truncate(self, size_bytes: int) -> None:
        """Shorten the segment to `size_bytes`."""
        ...


class MemoryData:
    """A segment in memory."""

    def __init__(self) -> None:
        self._data = bytearray()

    def __len__(self) -> int:
        return len(self._data)

    def append(self, data: bytes) -> None:
        self._data += data

    def read(self, position: int, size_bytes: int) -> bytes:
        return bytes(memoryview(self._data)[position : position + size_bytes])  # one copy

    def overwrite(self, position: int, data: bytes) -> None:
        self._data[position : position + len(data)] = data

    def truncate(self, size_bytes: int) -> None:
        del self._data[size_bytes:]


class LogStore:
    """Segments of a partition. `log_start_offset` is the stored start of the log."""

    log_start_offset = 0

    def base_offsets(self) -> list[int]:
        """Return the base offsets of the stored segments, ascending."""
        return []

    def segment(self, base_offset: int) -> SegmentData:
        """Return a segment; create it if it does not exist."""
        return MemoryData()

    def remove(self, base_offset: int) -> None:
        """Remove a segment."""

    def replacement(self, base_offset: int) -> SegmentData:
        """Return an empty segment outside the log, for `replace`."""
        return MemoryData()

    def replace(self, base_offsets: Sequence[int], replacement: SegmentData) -> None:
        """Replace these segments by `replacement`, which takes the place of the first.

        If the process is killed meanwhile, either all old segments remain, or the new one and some
        old ones after the first.
        """

    def on_log_start(self, offset: int) -> None:
        """Store a new start of the log."""


class Storage:
    """Persistent state of a cluster. Every call may raise `StorageError`."""

    def log_store(self, partition: TopicPartition) -> LogStore:
        """Return the segments of a partition; a new topic has none."""
        return LogStore()

    def on_topic(
        self, topic: str, topic_id: bytes, assignments: Sequence[Sequence[int]],
        config: Mapping[str, str],
    ) -> None:  # fmt: skip
        """Store a topic that was created, or whose partitions or settings changed."""

    def on_topic_deleted(self, topic: str, partition_count: int) -> None:
        """Delete a topic and its segments."""

    def on_committed(
        self, group: str, partition: TopicPartition, committed: OffsetFields | None
    ) -> None:
        """Store a committed offset; None means it was deleted."""

    def on_group_deleted(self, group: str) -> None:
        """Delete a group's offsets."""

    def close(self) -> None:
        """Close the storage, when the cluster ends."""
