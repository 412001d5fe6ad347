"""Sources of records for ``produce``: delimited lines, whole files, or lines of JSON.

Standard input and files with lines are read incrementally, so a line is sent as soon as it is
complete.

Owner: the main thread.
"""

from __future__ import annotations

import select
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.cli.complaint import named
from pykclient.cli.record_json import NewRecord, parse_record
from pykclient.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from pykclient.cli.record_json import Headers

    Settle = Callable[[], bool]

WAIT_S: Final = 0.05
READ_BYTES: Final = 65_536
DELIMITER: Final = b"\n"
RECORD_BYTES_MAX: Final = 100 * 1024 * 1024
"""Maximum size of a record. Brokers accept no larger one unless configured to."""
STANDARD_INPUT: Final = "standard input"


class LineForm(NamedTuple):
    """The format of a line; without a key delimiter the record has no key."""

    delimiter: bytes = DELIMITER
    key_delimiter: bytes | None = None
    key: bytes | None = None
    headers: Headers = ()
    is_empty_null: bool = False

    def record(self, data: bytes) -> NewRecord:
        key, value = self.key, data
        if self.key_delimiter is not None:
            head, found, rest = data.partition(self.key_delimiter)
            key, value = (head, rest) if found else (self.key, data)
        if self.is_empty_null:
            return NewRecord(value or None, key or None, self.headers)
        return NewRecord(value, key, self.headers)


def lines_of(
    paths: Sequence[Path], delimiter: bytes, settle: Settle
) -> Iterator[tuple[str, bytes]]:
    """Yield each line with its location; no paths mean standard input.

    While waiting for input, `settle` is called, and its exception ends the wait.

    Raises:
        OSError: a file cannot be read.
        UsageError: a line is too long.
    """
    if not paths and sys.stdin is None:  # `<&-` in a shell
        raise UsageError(f"{STANDARD_INPUT} is closed; name a file, or write to it")
    for path in paths or (None,):
        place = STANDARD_INPUT if path is None else str(path)
        with named(place), ExitStack() as stack:
            file = sys.stdin.buffer if path is None else stack.enter_context(path.open("rb"))
            for number, line in enumerate(_delimited(file, delimiter, place, settle), 1):
                yield f"line {number} of {place}", line


def records_of_lines(paths: Sequence[Path], form: LineForm, settle: Settle) -> Iterator[NewRecord]:
    """Yield a record for each line. Raises the errors of `lines_of`."""
    for _, line in lines_of(paths, form.delimiter, settle):
        yield form.record(line)


def records_of_files(paths: Sequence[Path], form: LineForm) -> Iterator[NewRecord]:
    """Yield a record for each file, whose contents are the value.

    Raises:
        OSError: a file cannot be read.
        UsageError: a file is too large.
    """
    for path in paths:
        with named(str(path)), path.open("rb") as file:
            data = file.read(RECORD_BYTES_MAX + 1)
        if len(data) > RECORD_BYTES_MAX:
            raise UsageError(
                f"{path} has more than {RECORD_BYTES_MAX} bytes; give -l to send its lines"
            )
        yield form.record(data)


def records_of_json(paths: Sequence[Path], settle: Settle) -> Iterator[NewRecord]:
    """Yield a record for each line of JSON, except blank lines.

    Raises:
        UsageError: a line is not a record; the message has its number.
        OSError: a file cannot be read.
    """
    for place, line in lines_of(paths, DELIMITER, settle):
        if not line.strip():
            continue
        try:
            yield parse_record(line)
        except UsageError as error:
            raise UsageError(f"{place}: {error}") from error


def _delimited(file: BinaryIO, delimiter: bytes, place: str, settle: Settle) -> Iterator[bytes]:
    read: Callable[[int], bytes] = getattr(file, "read1", file.read)  # read1 does not wait for more
    rest = bytearray()
    while data := _when_ready(file, read, settle):
        searched_from = max(0, len(rest) - len(delimiter) + 1)  # a delimiter may be split
        rest += data
        if rest.find(delimiter, searched_from) >= 0:
            *lines, rest = rest.split(delimiter)
            yield from map(bytes, lines)
        if len(rest) > RECORD_BYTES_MAX:
            raise UsageError(
                f"{place} has a line of more than {RECORD_BYTES_MAX} bytes; give its delimiter "
                "with -D, or send a file as one record"
            )
    if rest:
        yield bytes(rest)


def _when_ready(file: BinaryIO, read: Callable[[int], bytes], settle: Settle) -> bytes:
    while settle() and not _is_ready(file):
        pass
    return read(READ_BYTES)


def _is_ready(file: BinaryIO) -> bool:
    """Return whether there is input, after a short wait; True if the file cannot be waited for."""
    try:
        return bool(select.select([file], [], [], WAIT_S)[0])
    except (OSError, ValueError):  # on Windows only sockets can
        return True
