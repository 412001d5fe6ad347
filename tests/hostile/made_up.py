"""Batches made up to be much work for their size, and usual ones beside them.

Owner: none; a seed stands for the same bytes again and again.
"""

from __future__ import annotations

import gzip
import json
import random
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.records.compression import Codec, compress
from tests.hostile.payloads import ATTRIBUTES_AT, INT32, INT64, around
from tests.records.batches import build, header_changed, resealed
from tests.records.test_legacy import message

if TYPE_CHECKING:
    from collections.abc import Callable

EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
COUNT_AT: Final = 57
LAST_DELTA_AT: Final = 23
PRODUCER_ID_AT: Final = 43
HEADER_SIZE_BYTES: Final = 61
APPEND_TIME, TRANSACTIONAL, CONTROL, HORIZON = 0x08, 0x10, 0x20, 0x40
CODECS: Final = tuple(Codec)
LEGACY_CODECS: Final = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
RECORD: Final = bytes.fromhex("100000000104767600")
"""One record without a key, with a value of two bytes."""
LZ4_HEAD: Final = bytes.fromhex("04224d18604082")


class MadeUp(NamedTuple):
    """The batches of a partition, from offset 0 to `end`, and what the broker says of them."""

    name: str
    codec: Codec
    data: bytes
    end: int
    aborted: list[tuple[int, int]]
    """Producer ids and first offsets of aborted transactions."""
    is_mixed: bool = False
    """True if neighbours that are not compressed differ, so that none are read as one."""


class Part(NamedTuple):
    """A batch at no offset yet, and how many offsets it takes."""

    data: bytes
    offset_count: int = 1


def usual(codec: Codec, size_bytes: int) -> MadeUp:
    """Batches of at most 50 kB that hold JSON."""
    chance = random.Random(1)
    rows = [
        (1, None, json.dumps({"number": chance.randrange(9999), "carrier": "UA"}).encode(), ())
        for _ in range(1_000)
    ]
    part = Part(build(rows, codec), len(rows))
    return placed("usual", codec, [part], size_bytes)


def made_up(seed: int, size_bytes: int) -> MadeUp:
    """Build the case of a seed."""
    chance = random.Random(seed)
    codec = CODECS[seed % len(CODECS)]
    kinds = chance.sample(KINDS, chance.choice([1, 1, 2, 3]))
    parts = [kind(chance, codec) for kind in kinds]
    names = [kind.__name__ for kind in kinds]
    changes = [change for change in CHANGES if chance.random() < 0.2]
    parts = [change(chance, part) for part in parts for change in (*changes, lambda _, part: part)]
    names += [change.__name__ for change in changes]
    has_gaps = chance.random() < 0.3
    has_epochs = chance.random() < 0.2
    aborted = []
    if chance.random() < 0.3:
        aborted = [(number, number) for number in range(size_bytes // 40)]
    names += ["gaps"] * has_gaps + ["epochs"] * has_epochs + ["aborted"] * bool(aborted)
    name = f"{seed}: {codec.name.lower()}, {', '.join(names)}"
    return placed(
        name, codec, parts, size_bytes, gap=2 * has_gaps, has_epochs=has_epochs, aborted=aborted
    )


def placed(
    name: str,
    codec: Codec,
    parts: list[Part],
    size_bytes: int,
    *,
    gap: int = 0,
    has_epochs: bool = False,
    aborted: list[tuple[int, int]] | None = None,
) -> MadeUp:
    """Repeat parts in turns; no checksum covers where a batch stands, and its epoch."""
    found = bytearray()
    offset = number = 0
    while len(found) < size_bytes:
        part, offset_count = parts[number % len(parts)]
        is_legacy = part[MAGIC_AT] < 2
        epoch = INT32(number) if has_epochs and not is_legacy else part[12:16]
        # A message of the old formats stands where its last record does.
        at = offset + offset_count - 1 if is_legacy else offset
        found += INT64(at) + part[8:12] + epoch + part[16:]
        offset += offset_count + gap
        number += 1
    is_mixed = codec is Codec.NONE and (len(parts) > 1 or has_epochs)
    return MadeUp(name, codec, bytes(found), offset - gap, aborted or [], is_mixed)


# Kinds of batches.


def tiny(chance: random.Random, codec: Codec) -> Part:
    count = chance.choice([1, 1, 3])
    return Part(build([(1, None, chance.choice([None, b"vv"]), ())] * count, codec), count)


def short_records(chance: random.Random, codec: Codec) -> Part:
    return Part(build([(1, None, None, ())] * 5_000, codec), 5_000)


def headers(chance: random.Random, codec: Codec) -> Part:
    """Build records with so many headers that they decompress to a lot."""
    count = 2_000 if codec is Codec.NONE else 300
    return Part(build([(1, None, None, (("", b""),) * count)], codec))


def empty_parts(chance: random.Random, codec: Codec) -> Part:
    """One record in front of many blocks, frames or members that hold nothing."""
    part = {
        Codec.GZIP: gzip.compress(b"", mtime=0),
        Codec.SNAPPY: b"\0\0\0\x01\0",
        Codec.LZ4: LZ4_HEAD + bytes(4),
        Codec.ZSTD: compress(Codec.ZSTD, b""),
    }.get(codec)
    if part is None:
        return tiny(chance, codec)
    return Part(around(compress(codec, RECORD) + part * chance.choice([1, 10, 2_000]), 1, codec))


def old_message(chance: random.Random, codec: Codec) -> Part:
    return Part(
        message(
            0,
            chance.choice([None, b""]),
            chance.choice([None, b"vv"]),
            magic=chance.choice([0, 1]),
            attributes=chance.choice([0, APPEND_TIME]),
        )
    )


def nested_messages(chance: random.Random, codec: Codec) -> Part:
    """Messages inside a compressed one, perhaps of another magic."""
    if codec not in LEGACY_CODECS:
        return old_message(chance, codec)
    count = chance.choice([1, 3, 3_000])
    magic = chance.choice([0, 1])
    inner = b"".join(message(at, None, b"v", magic=magic) for at in range(count))
    data = compress(codec, inner)
    return Part(message(0, None, data, attributes=codec), count)


def marker(chance: random.Random, codec: Codec) -> Part:
    data = build([(1, INT32(chance.choice([0, 1])), bytes(6), ())])
    data = header_changed(data, ATTRIBUTES_AT, CONTROL | TRANSACTIONAL, 2)
    return Part(header_changed(data, PRODUCER_ID_AT, chance.randrange(100), 8))


def emptied(chance: random.Random, codec: Codec) -> Part:
    """Return a batch whose records compaction has removed."""
    return Part(header_changed(resealed(build([(1, None, b"", ())])[:61]), COUNT_AT, 0, 4))


KINDS: Final[tuple[Callable[[random.Random, Codec], Part], ...]] = (
    tiny, short_records, headers, empty_parts, old_message, nested_messages, marker, emptied
)  # fmt: skip


# Changes to batches of version 2.


def appended(_: random.Random, part: Part) -> Part:
    return _with_attribute(part, APPEND_TIME)


def transactional(chance: random.Random, part: Part) -> Part:
    if part.data[MAGIC_AT] < 2:
        return part
    changed = _with_attribute(part, TRANSACTIONAL)
    data = header_changed(changed.data, PRODUCER_ID_AT, chance.randrange(100), 8)
    return changed._replace(data=data)


def horizon(_: random.Random, part: Part) -> Part:
    return _with_attribute(part, HORIZON)


def thinned(_: random.Random, part: Part) -> Part:
    """Compaction has removed the last records."""
    if part.data[MAGIC_AT] < 2:
        return part
    data = header_changed(part.data, LAST_DELTA_AT, part.offset_count + 1, 4)
    return Part(data, part.offset_count + 2)


def damaged(_: random.Random, part: Part) -> Part:
    data = bytearray(part.data)
    data[-1] ^= 1
    return part._replace(data=bytes(data))


CHANGES: Final = (appended, transactional, horizon, thinned, damaged)


def _with_attribute(part: Part, attribute: int) -> Part:
    if part.data[MAGIC_AT] < 2:
        return part
    attributes = int.from_bytes(part.data[ATTRIBUTES_AT : ATTRIBUTES_AT + 2]) | attribute
    return part._replace(data=header_changed(part.data, ATTRIBUTES_AT, attributes, 2))
