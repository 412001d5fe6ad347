r"""Format strings like kcat's: ``%t %p %o %k %s`` and others stand for parts of a record.

    %t topic             %k key     %K its size in bytes, -1 for null
    %p partition         %s value   %S its size in bytes, -1 for null
    %o offset            %R the size of the value in four bytes, big-endian
    %T time, in ms       %h headers, as name=value,name=value
    %% a percent sign    \n \r \t \0 \\ \xNN

Owner: none; it holds no state.
Source: kcat's manual page and its ``format.c``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pykclient.cli.argument import as_bytes
from pykclient.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient import ConsumerRecord

    Piece = Callable[[ConsumerRecord], bytes]

NULL: Final = b"NULL"
NULL_SIZE: Final = -1

_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|(.?))", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_PIECE: Final = re.compile(r"%(.?)|([^%]+)", re.DOTALL)


def _or_null(data: bytes | None, null: bytes) -> bytes:
    return null if data is None else data


def size_bytes(data: bytes | None) -> int:
    """Return the size of a key or value, -1 for null."""
    return NULL_SIZE if data is None else len(data)


def _headers(record: ConsumerRecord) -> bytes:
    return b",".join(
        name.encode() + b"=" + (NULL if data is None else data) for name, data in record.headers
    )


PIECES: Final[dict[str, Piece]] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "K": lambda record: b"%d" % size_bytes(record.key),
    "S": lambda record: b"%d" % size_bytes(record.value),
    "R": lambda record: size_bytes(record.value).to_bytes(4, "big", signed=True),
    "T": lambda record: b"%d" % record.timestamp_ms,
    "h": _headers,
    "%": lambda record: b"%",
}


def unescaped(text: str) -> bytes:
    """Return the bytes for a text with escapes, an argument of the command line.

    Raises:
        UsageError: an escape is unknown.
    """
    pieces, end = [], 0
    for found in _ESCAPE.finditer(text):
        pieces.append(as_bytes(text[end : found.start()]))
        digits, sign = found.groups()
        if digits is None and sign not in _ESCAPES:
            raise UsageError(f"{text!r}: there is no escape \\{sign}; use \\n \\r \\t \\0 \\xNN")
        pieces.append(bytes((int(digits, 16),)) if digits else _ESCAPES[sign])
        end = found.end()
    return b"".join([*pieces, as_bytes(text[end:])])


def record_format(text: str, *, null: bytes = b"") -> Piece:
    """Return a function that formats a record by `text`; `null` replaces a null key or value.

    Raises:
        UsageError: the text has an unknown escape or letter after %.
    """
    pieces: list[Piece] = []
    for found in _PIECE.finditer(text):
        letter, literal = found.groups()
        if literal is not None:
            pieces.append(_literal(unescaped(literal)))
        elif letter == "k":
            pieces.append(lambda record: _or_null(record.key, null))
        elif letter == "s":
            pieces.append(lambda record: _or_null(record.value, null))
        elif letter in PIECES:
            pieces.append(PIECES[letter])
        else:
            known = " ".join(f"%{each}" for each in ("k", "s", *PIECES))
            raise UsageError(f"{text!r}: there is no %{letter}; use {known}")
    return lambda record: b"".join([piece(record) for piece in pieces])


def _literal(data: bytes) -> Piece:
    return lambda record: data
