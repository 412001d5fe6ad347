"""The files of a segment on disk: the log or a snapshot of it, and beside it its two indexes.

This is where the command line opens files; what is in them is for `pykclient.records` to read,
through a function that reads at a position. The size of a file is taken once, when it is opened, so
that the segment which a broker is writing has an end.

Owner: the calling thread; `stack` closes the files.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from pykclient.cli.log.index import OffsetIndex, TimeIndex
from pykclient.cli.log.segment import LogSegment
from pykclient.errors.base import ConfigError
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack
    from pathlib import Path

    from pykclient.cli.log.index import ReadAt

__all__ = [
    "AnyIndex",
    "SnapshotId",
    "base_offset_of",
    "open_index",
    "open_log",
    "snapshot_of",
]

SEGMENT_NAME: Final = re.compile(r"(\d{20})\.")
SNAPSHOT_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
PARTITION_FOLDER: Final = re.compile(r"(.+)-(\d+)(?:\.[0-9a-f]{32}-(?:delete|future|stray))?")
"""``<topic>-<partition>``; a broker marks a folder that it will remove or is moving."""

UNKNOWN_PARTITION: Final = -1

AnyIndex = TypeVar("AnyIndex", OffsetIndex, TimeIndex)


class SnapshotId(NamedTuple):
    """Up to where in the metadata log a snapshot says everything: all before `end_offset`."""

    end_offset: int
    epoch: int


def base_offset_of(path: Path) -> int | None:
    """Return the offset at which a segment begins, which is its name; None when it is not."""
    found = SEGMENT_NAME.match(path.name)
    return None if found is None else int(found[1])


def snapshot_of(path: Path) -> SnapshotId | None:
    """Return what a snapshot of the metadata log is of, which is its name; None when it is not."""
    found = SNAPSHOT_NAME.fullmatch(path.name)
    return None if found is None else SnapshotId(int(found[1]), int(found[2]))


def open_log(
    stack: ExitStack,
    path: Path,
    *,
    offset_index: OffsetIndex | None,
    time_index: TimeIndex | None,
    batch_size_bytes_max: int,
) -> LogSegment:
    """Open the segment in the file `path`.

    Raises:
        OSError: the file cannot be opened.
        ConfigError: it is no regular file.
    """
    read_at, size_bytes = _open(stack, path)
    return LogSegment(
        read_at,
        size_bytes,
        partition=_partition_of(path),
        offset_index=offset_index,
        time_index=time_index,
        batch_size_bytes_max=batch_size_bytes_max,
    )


def open_index(stack: ExitStack, path: Path, kind: type[AnyIndex]) -> AnyIndex:
    """Open the index in the file `path`.

    Raises:
        OSError: the file cannot be opened.
        ConfigError: it is no regular file, or its name has no offset.
        CorruptIndexError: it cannot be an index.
    """
    read_at, size_bytes = _open(stack, path)
    base_offset = base_offset_of(path)
    if base_offset is None:
        raise ConfigError(
            f"offsets in {path.name} count from the segment's first, which its name should say in "
            f"20 digits, as in {0:020}{path.suffix}"
        )
    return kind(read_at, size_bytes, base_offset=base_offset)


def _open(stack: ExitStack, path: Path) -> tuple[ReadAt, int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    stack.callback(os.close, descriptor)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{path} is no regular file; give the file of a segment")
    return _reader(descriptor), status.st_size


def _reader(descriptor: int) -> Callable[[int, int], bytes]:
    def read_at(position: int, size_bytes: int) -> bytes:
        data = os.pread(descriptor, size_bytes, position)
        # The system reads at most 2 GiB at once, and may be interrupted before.
        while 0 < len(data) < size_bytes:
            more = os.pread(descriptor, size_bytes - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    return read_at


def _partition_of(path: Path) -> TopicPartition:
    found = PARTITION_FOLDER.fullmatch(path.absolute().parent.name)
    if found is None:
        return TopicPartition(path.name, UNKNOWN_PARTITION)
    return TopicPartition(found[1], int(found[2]))
