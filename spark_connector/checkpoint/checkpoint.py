"""Checkpoint: the contents of a checkpoint directory, as Spark sees them at the next start.

Spark takes the newest offsets file and the one before. If the commit log has that batch, or a later
one, the batch is finished, and the next one begins at its end. Otherwise the batch was planned and
is repeated: it begins at the end of the one before.

Owner: none; it is immutable. A directory is read once. Source: Spark's class
``MicroBatchExecution`` (``populateStartOffsets``).
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from pykclient.errors import DecodeError, UsageError
from spark_connector.checkpoint.log_file import (
    VOID,
    LoggedBatch,
    SourceOffset,
    commit_from_text,
    initial_from_text,
)
from spark_connector.offsets import StreamOffset

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

OFFSETS: Final = "offsets"
COMMITS: Final = "commits"
SOURCES: Final = "sources"
STATE: Final = "state"
METADATA: Final = "metadata"

FILE_SIZE_MAX: Final = 64 * 2**20
"""Maximum size of a log file; Spark writes none that is larger."""

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_STATE_FILE: Final = re.compile(r"(\d{1,18})(?:_[^.]*)?\.(?:delta|snapshot|zip|changelog)")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,17}")
_CRC_MAGIC: Final = b"crc\0"
_CRC_HEADER_LENGTH: Final = 8

Entry = TypeVar("Entry")


class Damage(NamedTuple):
    """A file that cannot be read, by its name in the directory, and the reason.

    `is_of_checksums` means that the file is whole, but Hadoop's checksums are of other contents.
    """

    file: str
    reason: str
    is_of_checksums: bool = False


class Positions(NamedTuple):
    """The range of one source that the next start reads.

    It begins at `starts`, and if a batch is repeated that batch ends at `ends`. `starts` is None if
    the log does not have it; `ends` is None if no batch is repeated.
    """

    starts: StreamOffset | None
    ends: StreamOffset | None


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a checkpoint directory (see the module).

    `offsets` and `commits` are the readable files of batches, by number, and `initial` those of
    sources of Spark's own connector, by name. `offset_numbers` and `commit_numbers` include
    unreadable files. `state_version` is the newest version of stateful operators, None if there are
    none. `temporary` are the files of unfinished writes. `changed_at_s` is when Spark last changed
    the logs, in seconds since 1970.
    """

    folder: Path
    query_id: str | None
    offsets: Mapping[int, LoggedBatch]
    commits: Mapping[int, str]
    initial: Mapping[str, SourceOffset]
    damaged: tuple[Damage, ...]
    offset_numbers: frozenset[int]
    commit_numbers: frozenset[int]
    state_version: int | None
    temporary: tuple[str, ...]
    changed_at_s: float
    texts: Mapping[str, bytes] = field(repr=False)
    """Every file that was read, to detect changes."""

    @classmethod
    def read(cls, place: str | Path) -> Checkpoint:
        """Read a directory.

        Raises:
            UsageError: it is remote, or no checkpoint.
            OSError: it cannot be read.
        """
        return _Reader(local_folder(place)).checkpoint()

    @property
    def last_number(self) -> int:
        """The greatest number in either log, -1 if both are empty."""
        return max(self.offset_numbers | self.commit_numbers, default=-1)

    @property
    def newest(self) -> int | None:
        """The newest batch whose offsets can be read."""
        return max(self.offsets, default=None)

    @property
    def last_commit(self) -> int:
        """The newest batch that Spark considers finished, -1 if there is none."""
        return max(self.commit_numbers, default=-1)

    @property
    def is_repeated(self) -> bool:
        """True if the next start repeats the newest batch."""
        return self.newest is not None and self.last_commit < self.newest

    @property
    def last_finished(self) -> int | None:
        """The newest batch that is finished and whose offsets can be read."""
        return max((one for one in self.offsets if one <= self.last_commit), default=None)

    def start_lines(self) -> Mapping[str, SourceOffset | None]:
        """Return the start of the next batch in each source, None if the log does not have it."""
        newest = self.newest
        if newest is None:
            return {}
        batch = self.offsets[newest]
        if not self.is_repeated:
            return batch.sources
        if newest > 0 and newest - 1 not in self.offsets:
            return dict.fromkeys(batch.sources)
        before = self.offsets[newest - 1].sources if newest > 0 else {}
        return {
            name: self._start_line(name, line, before.get(name))
            for name, line in batch.sources.items()
        }

    def _start_line(
        self, name: str, line: SourceOffset, former: SourceOffset | None
    ) -> SourceOffset | None:
        """Return the start of a repeated batch in one source."""
        if former is None or former.text == VOID:
            former = self.initial.get(name)  # the batch is the first one of this source
        if line.offset is None:
            return former or SourceOffset(VOID)
        starts = line.offset.starts
        if former is not None and former.offset is not None:
            return line.moved(StreamOffset({**former.offset.ends, **starts}))
        return line.moved(StreamOffset(starts)) if starts else None

    def positions(self) -> Mapping[str, Positions]:
        """Return the range that the next start reads of each Kafka source, by name."""
        if self.newest is None:
            return {}
        starts = self.start_lines()
        return {
            name: Positions(
                None if (start := starts[name]) is None else start.offset,
                line.offset if self.is_repeated else None,
            )
            for name, line in self.offsets[self.newest].sources.items()
            if line.offset is not None
        }


def local_folder(place: str | Path) -> Path:
    """Return the directory that a path or a ``file:`` address names.

    Raises:
        UsageError: the address is remote.
    """
    text = str(place)
    scheme = _SCHEME.match(text)
    if scheme is None:
        return Path(place)
    if scheme[1].lower() != "file":
        raise UsageError(
            f"{text} is in a remote store, and this command changes local directories alone: copy "
            f"the whole directory here (state/ says what may change), mend the copy, and copy "
            f"offsets, commits and sources back while the query is stopped"
        )
    return Path(unquote(urlsplit(text).path))


def checksum_file(file: Path) -> Path:
    """Return the file in which Hadoop keeps the checksums of another one."""
    return file.with_name(f".{file.name}.crc")


def checksum_is_right(data: bytes, checksums: bytes) -> bool:
    """Return True if Hadoop accepts the data: it stores a CRC-32 for every block of bytes."""
    if len(checksums) < _CRC_HEADER_LENGTH or not checksums.startswith(_CRC_MAGIC):
        return False
    (chunk_size,) = struct.unpack_from(">I", checksums, len(_CRC_MAGIC))
    if chunk_size == 0:
        return False
    found = b"".join(
        struct.pack(">I", zlib.crc32(data[at : at + chunk_size]))
        for at in range(0, len(data), chunk_size)
    )
    return checksums[_CRC_HEADER_LENGTH:] == found


class _Reader:
    """A reader of one directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._damaged: list[Damage] = []
        self._texts: dict[str, bytes] = {}
        self._temporary: list[str] = []
        self._changed_at_s = 0.0

    def checkpoint(self) -> Checkpoint:
        folder = self._folder
        if not folder.is_dir():
            raise UsageError(f"{folder} is no directory; name the query's checkpointLocation")
        if not (folder / OFFSETS).is_dir():
            raise UsageError(_no_checkpoint(folder))
        offset_numbers, offsets = self._log(OFFSETS, LoggedBatch.from_text)
        commit_numbers, commits = self._log(COMMITS, _checked_commit)
        return Checkpoint(
            folder=folder,
            query_id=self._query_id(),
            offsets=offsets,
            commits=commits,
            initial=self._initial(),
            damaged=tuple(self._damaged),
            offset_numbers=frozenset(offset_numbers),
            commit_numbers=frozenset(commit_numbers),
            state_version=_state_version(folder / STATE),
            temporary=tuple(self._temporary),
            changed_at_s=self._changed_at_s,
            texts=self._texts,
        )

    def _log(self, name: str, parse: Callable[[str], Entry]) -> tuple[list[int], dict[int, Entry]]:
        folder = self._folder / name
        numbers: list[int] = []
        found: dict[int, Entry] = {}
        if not folder.is_dir():
            return numbers, found
        self._changed_at_s = max(self._changed_at_s, folder.stat().st_mtime)
        for file in folder.iterdir():
            if file.name.endswith(".tmp"):
                self._temporary.append(f"{name}/{file.name}")
            elif _NUMBER.fullmatch(file.name) is not None:
                numbers.append(int(file.name))
        for number in sorted(numbers):
            entry = self._parsed(f"{name}/{number}", parse)
            if entry is not None:
                found[number] = entry
        return numbers, found

    def _initial(self) -> dict[str, SourceOffset]:
        found = {}
        folder = self._folder / SOURCES
        for source in sorted(folder.iterdir()) if folder.is_dir() else ():
            name = f"{SOURCES}/{source.name}/0"
            if not (self._folder / name).is_file():
                continue
            # Sources of other formats keep other files there.
            data = (self._folder / name).read_bytes()[:2]
            if data[:1] == b"\0" or not data:
                entry = self._parsed(name, initial_from_text)
                if entry is not None:
                    found[source.name] = entry
        return found

    def _query_id(self) -> str | None:
        if not (self._folder / METADATA).is_file():
            return None
        return self._parsed(METADATA, _query_id)

    def _parsed(self, name: str, parse: Callable[[str], Entry]) -> Entry | None:
        """Parse a file; return None and record a damage if it cannot be read."""
        file = self._folder / name
        try:
            data = _bounded(file)
            self._texts[name] = data
            checksums = checksum_file(file)
            found = parse(data.decode())
            if checksums.is_file() and not checksum_is_right(data, checksums.read_bytes()):
                reason = f"the checksums in {checksums.name} are of other contents: Spark fails"
                self._damaged.append(Damage(name, reason, is_of_checksums=True))
                return None
        except (DecodeError, UnicodeDecodeError) as error:
            self._damaged.append(Damage(name, str(error)))
            return None
        return found


def _no_checkpoint(folder: Path) -> str:
    below = sorted(one.parent.name for one in folder.glob(f"*/{OFFSETS}") if one.is_dir())
    if below:
        return f"{folder} holds checkpoints, and is none itself: name {', '.join(below[:5])} in it"
    return f"{folder} has no {OFFSETS}/: it is no checkpoint, or its query has planned no batch yet"


def _bounded(file: Path) -> bytes:
    with file.open("rb") as opened:
        data = opened.read(FILE_SIZE_MAX + 1)
    if len(data) > FILE_SIZE_MAX:
        raise DecodeError(f"the file has more than {FILE_SIZE_MAX} bytes")
    return data


def _checked_commit(text: str) -> str:
    commit_from_text(text)
    return text


def _query_id(text: str) -> str:
    try:
        return str(json.loads(text)["id"])
    except (ValueError, TypeError, KeyError) as error:
        raise DecodeError('the file is not {"id": "..."}') from error


def _state_version(folder: Path) -> int | None:
    """Return the newest state version of stateful operators; 0 if there are no files yet."""
    if not folder.is_dir():
        return None
    found = [_STATE_FILE.fullmatch(file.name) for file in folder.rglob("*")]
    return max((int(one[1]) for one in found if one is not None), default=0)
