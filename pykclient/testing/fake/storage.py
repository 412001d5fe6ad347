"""Where a fake cluster keeps its segments, and what else shall outlive it.

The cluster writes through these classes alone, and opens no file. `Storage`, the default, keeps
segments in memory and nothing beyond the cluster's life; `data_directory` has the one of a broker
that is served from files, which overrides every method.

Owner: the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pykclient.errors.base import KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pykclient.types import TopicPartition

    OffsetFields = tuple[int, int, str]
    """A committed offset: the offset, the leader epoch, the note."""


class StorageError(KafkaError):
    """What must be kept cannot be written or read; a broker stops then, as Kafka's does."""


class SegmentData(Protocol):
    """The bytes of one segment. Each call may raise `StorageError`."""

    def __len__(self) -> int: ...

    def append(self, data: bytes) -> None:
        """Add bytes behind the last."""
        ...

    def read(self, position: int, size_bytes: int) -> bytes:
        """The bytes from `position` on, fewer where the segment ends."""
        ...

    def overwrite(self, position: int, data: bytes) -> None:
        """Change bytes that are there."""
        ...

    def truncate(self, size_bytes: int) -> None:
        """Keep so many bytes."""
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
    """The segments of one partition. `log_start_offset` is where the log began when it was kept."""

    log_start_offset = 0

    def base_offsets(self) -> list[int]:
        """The segments that were kept, ascending."""
        return []

    def segment(self, base_offset: int) -> SegmentData:
        """A segment, made where there is none."""
        return MemoryData()

    def remove(self, base_offset: int) -> None:
        """Lose a segment."""

    def replacement(self, base_offset: int) -> SegmentData:
        """An empty segment beside those of the log, which becomes one of them by `replace`."""
        return MemoryData()

    def replace(self, base_offsets: Sequence[int], replacement: SegmentData) -> None:
        """Have a replacement for the first of these segments in the place of all of them.

        A process that is killed meanwhile leaves the old segments, or the new one with some of the
        old ones behind the first.
        """

    def on_log_start(self, offset: int) -> None:
        """The log begins at `offset` from now on."""


class Storage:
    """What a cluster keeps. Each call may raise `StorageError`."""

    def log_store(self, partition: TopicPartition) -> LogStore:
        """The segments of a partition; of a topic that is new there are none."""
        return LogStore()

    def on_topic(
        self, topic: str, topic_id: bytes, assignments: Sequence[Sequence[int]],
        config: Mapping[str, str],
    ) -> None:  # fmt: skip
        """A topic was made, or has more partitions or other settings now."""

    def on_topic_deleted(self, topic: str, partition_count: int) -> None:
        """A topic is gone, and its segments."""

    def on_committed(
        self, group: str, partition: TopicPartition, committed: OffsetFields | None
    ) -> None:
        """A group has committed an offset; None: it has lost it."""

    def on_group_deleted(self, group: str) -> None:
        """A group is gone, and its offsets."""

    def close(self) -> None:
        """The cluster has ended."""
