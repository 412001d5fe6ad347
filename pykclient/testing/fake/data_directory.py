"""A folder in which a served broker keeps its topics, records and committed offsets.

Records are in segments of Kafka's own format, with a folder for each partition:
``flights-0/00000000000000000000.log``. All other state is in ``metadata.jsonl``, one JSON object a
line: topics with their ids, replicas and settings, log start offsets, and committed offsets. The
file is rewritten without obsolete lines at each start, and whenever it has more than `LINES_MIN`
lines and `GROWTH_MAX` times as many as after the last rewrite.

What is acknowledged has been passed to the operating system: killing the broker loses nothing. A
power failure may lose unwritten data and leave an incomplete batch or line at the end, which is cut
off at the next start, with a warning. Compaction writes new files and renames them, so that it can
be killed at any time. Nothing else is repaired: damage in the middle ends the log there, as in
Kafka, and a damaged ``metadata.jsonl`` is an error. Only sparse indexes of the records are in
memory, an entry for about 4 KiB of a log; each start rebuilds them, and reads and checks every
record once.

Owner: the broker's thread; a lock on the folder keeps other processes out.
Source: Java classes ``LogManager``, ``LogLoader``; Kafka's partition folders.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
from collections import OrderedDict
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from pykclient.config.setting import INT_MAX, LONG_MAX
from pykclient.errors.base import UsageError
from pykclient.testing.fake.groups.classic.group import ClassicGroup
from pykclient.testing.fake.groups.offsets import CommittedOffset
from pykclient.testing.fake.storage import LogStore, SegmentData, Storage, StorageError
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pykclient.testing.fake.state import ClusterState
    from pykclient.testing.fake.storage import OffsetFields

METADATA_NAME = "metadata.jsonl"
LOCK_NAME = ".lock"
VERSION = 1
OPEN_FILES_MAX = 200
"""Limit of open segment files; others are reopened when used."""
GROWTH_MAX = 4
LINES_MIN = 1_000
"""Number of lines up to which ``metadata.jsonl`` is not rewritten."""
REPLACEMENT_SUFFIX = ".cleaned"
"""File suffix of a segment that compaction has not finished writing."""

_SEGMENT_NAME = re.compile(r"(\d{20})\.log")

log = logging.getLogger("pykclient.testing")

Event = dict[str, Any]


class _KeptTopic(NamedTuple):
    """A topic as stored in a line."""

    topic_id: UUID
    assignments: list[list[int]]
    config: dict[str, str]

    @classmethod
    def of(cls, event: Event) -> _KeptTopic:
        """Parse a line. Raises KeyError, TypeError or ValueError if it is damaged."""
        assignments = [
            [_number(replica, "a replica", INT_MAX) for replica in replicas]
            for replicas in event["assignments"]
        ]
        if not assignments or not all(assignments):
            raise ValueError("it has no partition, or one without a replica")
        config = {key: _text(value, key) for key, value in dict(event["config"]).items()}
        return cls(UUID(hex=_text(event["topic_id"], "topic_id")), assignments, config)


class _Kept:
    """The contents of ``metadata.jsonl``."""

    def __init__(self) -> None:
        self.run_number = 0
        self.cluster_id: str | None = None
        """None in a new folder, or one written before cluster ids were stored."""
        self.topics: dict[str, _KeptTopic] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        self.offsets: dict[str, dict[TopicPartition, CommittedOffset]] = {}

    def add(self, event: Event) -> None:
        """Apply a line. Raises KeyError, TypeError or ValueError if it is damaged."""
        kind = event["type"]
        if kind == "broker":
            if event["version"] != VERSION:
                raise ValueError(f"its version is {event['version']}, not {VERSION}")
            self.run_number = _number(event["run"], "run", INT_MAX)
            if "cluster_id" in event:
                self.cluster_id = _text(event["cluster_id"], "cluster_id")
        elif kind == "topic":
            self.topics[_text(event["topic"], "topic")] = _KeptTopic.of(event)
        elif kind == "topic_deleted":
            self._drop_topic(_text(event["topic"], "topic"))
        elif kind == "log_start":
            self.log_starts[_partition_of(event)] = _number(event["offset"], "offset", LONG_MAX)
        elif kind == "offset":
            offsets = self.offsets.setdefault(_text(event["group"], "group"), {})
            offsets[_partition_of(event)] = CommittedOffset(
                _number(event["offset"], "offset", LONG_MAX),
                _number(event["leader_epoch"], "leader_epoch", INT_MAX),
                _text(event["metadata"], "metadata"),
            )
        elif kind == "offset_deleted":
            self.offsets.get(_text(event["group"], "group"), {}).pop(_partition_of(event), None)
        elif kind == "group_deleted":
            self.offsets.pop(_text(event["group"], "group"), None)
        else:
            raise ValueError(f"there is no type {kind!r}")

    def _drop_topic(self, topic: str) -> None:
        self.topics.pop(topic, None)
        for partition in [each for each in self.log_starts if each.topic == topic]:
            del self.log_starts[partition]
        for group, offsets in self.offsets.items():
            self.offsets[group] = {p: each for p, each in offsets.items() if p.topic != topic}


class DataDirectory(Storage):
    """Storage in a folder, created if needed. Call `restore` first.

    Raises:
        StorageError: another broker uses the folder, it contains something else, it cannot be
            read or written, or its ``metadata.jsonl`` is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = _OpenFiles()
        self._metadata: IO[bytes] | None = None
        self._line_count = 0
        self._line_count_max = LINES_MIN
        with _explained(path):
            path.mkdir(parents=True, exist_ok=True)
            is_ours = (path / METADATA_NAME).exists() or (path / LOCK_NAME).exists()
            if not is_ours and any(path.iterdir()):
                raise StorageError(
                    f"{path} has files that are not a broker's and no {METADATA_NAME}; "
                    "name an empty folder"
                )
            self._lock = _locked(path)
            try:
                self._kept = self._read_metadata()
            except BaseException:
                self._lock.close()
                raise

    def restore(self, cluster: ClusterState) -> None:
        """Load the stored state into an empty cluster, and store every change from now on.

        Raises:
            StorageError: a stored topic is invalid or needs more brokers than the cluster has, or a
                file cannot be read or written.
        """
        kept = self._kept
        cluster.run_number = kept.run_number + 1
        cluster.cluster_id = kept.cluster_id or cluster.cluster_id
        with self._rewritten(cluster.run_number, cluster.cluster_id):
            for name, topic in kept.topics.items():
                self._restore_topic(cluster, name, topic)
            for partition, offset in kept.log_starts.items():
                self._note_log_start(partition, offset)
            for group, offsets in kept.offsets.items():
                cluster.groups.put(ClassicGroup(group, cluster.groups))
                for partition, committed in offsets.items():
                    cluster.groups.offsets(group).commit(partition, committed, cluster.now_ms)
            for group in cluster.load_coordinators():
                if cluster.groups.find(group) is None:
                    cluster.groups.put(ClassicGroup(group, cluster.groups))
        self._kept = _Kept()

    def _restore_topic(self, cluster: ClusterState, name: str, topic: _KeptTopic) -> None:
        try:
            cluster.create_topic(
                name, assignments=topic.assignments, config=topic.config, topic_id=topic.topic_id
            )
        except UsageError as error:
            raise StorageError(
                f"{self.path / METADATA_NAME} does not fit: {error}; start as many brokers as "
                "before, fix it, or name another folder"
            ) from error

    # Changes of the cluster.

    def log_store(self, partition: TopicPartition) -> LogStore:
        folder = self.path / str(partition)
        with _explained(folder):
            if partition.topic not in self._kept.topics and folder.exists():
                shutil.rmtree(folder)  # the broker was killed while it deleted this topic
            folder.mkdir(exist_ok=True)
        store = _FolderStore(folder, self._files, partial(self._note_log_start, partition))
        store.log_start_offset = self._kept.log_starts.get(partition, 0)
        return store

    def on_topic(
        self, topic: str, topic_id: bytes, assignments: Sequence[Sequence[int]],
        config: Mapping[str, str],
    ) -> None:  # fmt: skip
        self._note(
            "topic",
            topic=topic,
            topic_id=topic_id.hex(),
            assignments=[list(replicas) for replicas in assignments],
            config=dict(config),
        )

    def on_topic_deleted(self, topic: str, partition_count: int) -> None:
        self._note("topic_deleted", topic=topic)
        for number in range(partition_count):
            folder = self.path / str(TopicPartition(topic, number))
            self._files.close_below(folder)
            with _explained(folder):
                shutil.rmtree(folder)

    def on_committed(
        self, group: str, partition: TopicPartition, committed: OffsetFields | None
    ) -> None:
        place = {"group": group, **partition._asdict()}
        if committed is None:
            self._note("offset_deleted", **place)
        else:
            fields = zip(("offset", "leader_epoch", "metadata"), committed, strict=True)
            self._note("offset", **place, **dict(fields))

    def on_group_deleted(self, group: str) -> None:
        self._note("group_deleted", group=group)

    def close(self) -> None:
        """Sync everything to disk and release the folder. Idempotent."""
        with _explained(self.path), ExitStack() as ending:
            ending.callback(self._lock.close)
            ending.callback(self._close_metadata)
            ending.callback(self._files.close)

    # The metadata file.

    def _note_log_start(self, partition: TopicPartition, offset: int) -> None:
        self._note("log_start", **partition._asdict(), offset=offset)

    def _note(self, kind: str, **fields: object) -> None:
        assert self._metadata is not None, "restore comes first"
        line = json.dumps({"type": kind, **fields}) + "\n"
        with _explained(self.path / METADATA_NAME):
            _write_all(self._metadata, line.encode())
        self._line_count += 1
        if self._line_count > self._line_count_max:
            self._shorten()

    def _shorten(self) -> None:
        """Rewrite the file without obsolete lines."""
        kept = self._read_metadata()
        with self._rewritten(kept.run_number, kept.cluster_id):
            for name, topic in kept.topics.items():
                self.on_topic(name, topic.topic_id.bytes, topic.assignments, topic.config)
            for partition, offset in kept.log_starts.items():
                self._note_log_start(partition, offset)
            for group, offsets in kept.offsets.items():
                for partition, committed in offsets.items():
                    self.on_committed(group, partition, committed)

    @contextmanager
    def _rewritten(self, run_number: int, cluster_id: str | None) -> Iterator[None]:
        """Replace the file by a new one with the lines noted in the block."""
        metadata = self.path / METADATA_NAME
        written = metadata.with_suffix(".new")
        with _explained(written):
            self._close_metadata()
            self._metadata = written.open("wb", buffering=0)
        self._line_count, self._line_count_max = 0, sys.maxsize
        kept_id = {} if cluster_id is None else {"cluster_id": cluster_id}
        self._note("broker", version=VERSION, run=run_number, **kept_id)
        yield
        with _explained(metadata):
            self._close_metadata()  # Windows cannot rename an open file
            written.replace(metadata)
            self._metadata = metadata.open("ab", buffering=0)
        self._line_count_max = max(LINES_MIN, GROWTH_MAX * self._line_count)

    def _close_metadata(self) -> None:
        """Sync the file to disk and close it, unless it is closed. Raises OSError."""
        if self._metadata is not None:
            with self._metadata as file:
                self._metadata = None
                os.fsync(file.fileno())

    def _read_metadata(self) -> _Kept:
        kept, path = _Kept(), self.path / METADATA_NAME
        if not path.exists():
            return kept
        with _explained(path), path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    log.warning("%s: ignoring the incomplete last line", path)
                    break
                try:
                    kept.add(json.loads(line))
                except (KeyError, TypeError, ValueError, RecursionError) as error:
                    raise StorageError(
                        f"line {number} of {path} is damaged ({error}); fix it, or name another "
                        "folder"
                    ) from error
        return kept


class _FolderStore(LogStore):
    """Segments in a partition's folder."""

    def __init__(self, folder: Path, files: _OpenFiles, note_start: Callable[[int], None]) -> None:
        self._folder = folder
        self._files = files
        self._note_start = note_start

    def base_offsets(self) -> list[int]:
        with _explained(self._folder):
            for unfinished in self._folder.glob(f"*{REPLACEMENT_SUFFIX}"):
                unfinished.unlink()
            found = (_SEGMENT_NAME.fullmatch(path.name) for path in self._folder.iterdir())
            return sorted(int(name[1]) for name in found if name is not None)

    def segment(self, base_offset: int) -> SegmentData:
        return _FileData(self._path(base_offset), self._files)

    def remove(self, base_offset: int) -> None:
        path = self._path(base_offset)
        self._files.close_below(path)
        with _explained(path):
            path.unlink()

    def replacement(self, base_offset: int) -> SegmentData:
        path = self._path(base_offset).with_suffix(REPLACEMENT_SUFFIX)
        with _explained(path):
            path.unlink(missing_ok=True)
        return _FileData(path, self._files)

    def replace(self, base_offsets: Sequence[int], replacement: SegmentData) -> None:
        assert isinstance(replacement, _FileData)
        first, *others = base_offsets
        replacement.rename(self._path(first))
        for base_offset in others:
            self.remove(base_offset)

    def on_log_start(self, offset: int) -> None:
        self._note_start(offset)

    def _path(self, base_offset: int) -> Path:
        return self._folder / f"{base_offset:020}.log"


class _FileData:
    """A segment in a file, written without buffering."""

    def __init__(self, path: Path, files: _OpenFiles) -> None:
        self._path = path
        self._files = files
        with _explained(path):
            path.touch()
            self._size_bytes = path.stat().st_size

    def __len__(self) -> int:
        return self._size_bytes

    def append(self, data: bytes) -> None:
        self.overwrite(self._size_bytes, data)
        self._size_bytes += len(data)

    def read(self, position: int, size_bytes: int) -> bytes:
        with _explained(self._path):
            file = self._files.open(self._path)
            file.seek(position)
            return file.read(size_bytes)

    def overwrite(self, position: int, data: bytes) -> None:
        with _explained(self._path):
            file = self._files.open(self._path, to_write=True)
            file.seek(position)
            _write_all(file, data)

    def truncate(self, size_bytes: int) -> None:
        with _explained(self._path):
            self._files.open(self._path, to_write=True).truncate(size_bytes)
        self._size_bytes = size_bytes

    def rename(self, path: Path) -> None:
        """Rename atomically over another file, after syncing the bytes to disk."""
        with _explained(path):
            os.fsync(self._files.open(self._path).fileno())
            for each in (self._path, path):
                self._files.close_below(each)  # Windows cannot rename an open file
            self._path.replace(path)
        self._path = path


class _OpenFiles:
    """Recently used files, at most `OPEN_FILES_MAX` of them open.

    A file that is closed to make room is not synced, because that is slow; `close` syncs it.
    """

    def __init__(self) -> None:
        self._files: OrderedDict[Path, IO[bytes]] = OrderedDict()
        self._unsynced: set[Path] = set()

    def open(self, path: Path, *, to_write: bool = False) -> IO[bytes]:
        """Return an open file, opening it if needed. Raises OSError."""
        file = self._files.pop(path, None)
        if file is None:
            while len(self._files) >= OPEN_FILES_MAX:
                self._files.popitem(last=False)[1].close()
            file = path.open("r+b", buffering=0)
        self._files[path] = file
        if to_write:
            self._unsynced.add(path)
        return file

    def close_below(self, path: Path) -> None:
        """Close a file, or those in a folder, before it is removed or renamed."""
        for each in [each for each in self._files if each.is_relative_to(path)]:
            self._files.pop(each).close()
        self._unsynced = {each for each in self._unsynced if not each.is_relative_to(path)}

    def close(self) -> None:
        """Sync everything to disk and close all files. Raises OSError."""
        try:
            for path in self._unsynced:
                os.fsync(self.open(path).fileno())
        finally:
            self._unsynced.clear()
            while self._files:
                self._files.popitem()[1].close()


def _partition_of(event: Event) -> TopicPartition:
    partition = _number(event["partition"], "partition", INT_MAX)
    return TopicPartition(_text(event["topic"], "topic"), partition)


def _number(value: object, what: str, largest: int) -> int:
    """Return an integer no wider than `largest`. Raises ValueError for anything else."""
    if not isinstance(value, int) or not -largest - 1 <= value <= largest:
        raise ValueError(f"{what} is {value!r}")
    return value


def _text(value: object, what: str) -> str:
    """Return a string. Raises ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(f"{what} is {value!r}")
    return value


def _write_all(file: IO[bytes], data: bytes) -> None:
    """Write all bytes: a nearly full disk accepts only some at first. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _locked(path: Path) -> IO[bytes]:
    """Lock the folder against other brokers while the file is open; no effect on Windows."""
    file = (path / LOCK_NAME).open("ab")
    try:
        import fcntl
    except ImportError:  # Windows
        return file
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise StorageError(
            f"another broker uses {path}; stop it, or name another folder"
        ) from error
    return file


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn errors of the operating system into a StorageError that names the path."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(
            f"{path} cannot be used: {reason}; make room or fix its permissions, and start again"
        ) from error
