"""Conversion of columns to buffers in Arrow's layout, one column at a time.

Owner: no state.
Source: the Arrow columnar format, "Variable-size Binary Layout" and "Validity bitmaps".
"""

from __future__ import annotations

from array import array
from itertools import accumulate, chain, repeat
from typing import TYPE_CHECKING, Final

from pykclient.accel.arrow_buffers import ArrowBuffers, BinaryBuffers, HeaderBuffers

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pykclient.accel.abc import RecordColumns
    from pykclient.types import Headers

OFFSET_MAX: Final = 2**31 - 1
"""Maximum 32-bit offset, and so the maximum size of a binary array."""

TIMESTAMP_MS_MAX: Final = (2**63 - 1) // 1000
"""Latest time that fits in 64-bit microseconds; Kafka's milliseconds go further."""

_BINARY_DIGITS: Final = bytes.maketrans(b"\0\1", b"01")


def arrow_buffers(columns: Sequence[RecordColumns], *, wanted: Collection[str]) -> ArrowBuffers:
    """Return the records of all `columns`, in that order, in Arrow's layout.

    ``key``, ``value`` and ``headers`` are copied if they are in `wanted`.

    Raises:
        OverflowError: keys, values or headers are too large for 32-bit offsets.
    """
    times_ms = list(chain.from_iterable(part.timestamps_ms for part in columns))
    null_count, validity = 0, None
    if times_ms and not -TIMESTAMP_MS_MAX <= min(times_ms) <= max(times_ms) <= TIMESTAMP_MS_MAX:
        are_held = [abs(ms) <= TIMESTAMP_MS_MAX for ms in times_ms]
        null_count, validity = _validity(are_held)
        times_ms = [ms if is_held else 0 for ms, is_held in zip(times_ms, are_held, strict=True)]
    return ArrowBuffers(
        len(times_ms),
        _binary(list(chain.from_iterable(part.keys for part in columns)))
        if "key" in wanted
        else None,
        _binary(list(chain.from_iterable(part.values for part in columns)))
        if "value" in wanted
        else None,
        array("q", chain.from_iterable(part.offsets for part in columns)),
        array("q", [ms * 1000 for ms in times_ms]),
        null_count,
        validity,
        _headers(list(chain.from_iterable(part.headers for part in columns)))
        if "headers" in wanted
        else None,
    )


def repeated(items: Sequence[tuple[bytes, int]]) -> BinaryBuffers:
    """Return each item repeated by the number beside it, in Arrow's layout.

    Raises:
        OverflowError: together they are too large for 32-bit offsets.
    """
    sizes = list(chain.from_iterable(repeat(len(item), count) for item, count in items))
    offsets = _offsets(sizes)
    return BinaryBuffers(0, None, offsets, b"".join([item * count for item, count in items]))


def _binary(items: Sequence[bytes | None]) -> BinaryBuffers:
    null_count, validity = _validity([item is not None for item in items])
    present = [item or b"" for item in items]
    offsets = _offsets([len(item) for item in present])
    return BinaryBuffers(null_count, validity, offsets, b"".join(present))


def _headers(rows: Sequence[Headers]) -> HeaderBuffers:
    headers = list(chain.from_iterable(rows))
    return HeaderBuffers(
        len(headers),
        _offsets([len(row) for row in rows]),
        _binary([name.encode() for name, _ in headers]),
        _binary([value for _, value in headers]),
    )


def _offsets(sizes: Sequence[int]) -> array[int]:
    size = sum(sizes)
    if size > OFFSET_MAX:
        raise OverflowError(f"{size} bytes do not fit a column with 32-bit offsets")
    return array("i", accumulate(sizes, initial=0))


def _validity(are_there: Sequence[bool]) -> tuple[int, bytes | None]:
    """Return the number of nulls, and a validity bit per item, the first one lowest."""
    null_count = are_there.count(False)
    if not null_count:
        return 0, None
    digits = bytes(are_there)[::-1].translate(_BINARY_DIGITS)
    return null_count, int(digits, 2).to_bytes((len(are_there) + 7) // 8, "little")
