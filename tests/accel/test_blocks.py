"""Blocks of snappy and LZ4: both cores give the same, and odd input the same errors."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.accel import pure
from pykclient.accel.pure.blocks import BLOCK_COUNT_FREE
from tests.accel.fuzzing import fuzz

if TYPE_CHECKING:
    from types import ModuleType

LIMIT = 100_000

CONTENTS = st.binary(max_size=80) | st.sampled_from(
    [b"", b"a" * 70, b"ab" * 600, b"0123456789" * 400, random.Random(1).randbytes(1_500)]
)


def framed(block: bytes) -> bytes:
    return len(block).to_bytes(4) + block


def stream(contents: list[bytes]) -> bytes:
    return b"".join(framed(bytes(cramjam.snappy.compress_raw(each))) for each in contents)


def outcome(core: ModuleType, data: bytes, limit: int) -> object:
    """Return the result, or the error's type and text."""
    try:
        return bytes(core.unsnappy_blocks(memoryview(data), 0, limit, cramjam))
    except (ValueError, OverflowError, cramjam.DecompressionError) as error:
        return type(error), str(error)


@given(st.lists(CONTENTS, max_size=20), st.integers(0, 20))
def test_both_cores_read_the_same(core: ModuleType, contents: list[bytes], missing: int) -> None:
    expected = b"".join(contents)
    assert outcome(core, stream(contents), len(expected)) == expected
    limit = max(0, len(expected) - missing)
    if limit < len(expected):
        assert outcome(core, stream(contents), limit) == (OverflowError, "")


@given(st.lists(CONTENTS, max_size=8), st.data())
def test_both_cores_refuse_the_same(
    core: ModuleType, contents: list[bytes], draw: st.DataObject
) -> None:
    damaged = bytearray(stream(contents))
    for _ in range(draw.draw(st.integers(0, 4))):
        if damaged:
            at = draw.draw(st.integers(0, len(damaged) - 1))
            damaged[at] = draw.draw(st.integers(0, 255))
    data = bytes(damaged[: draw.draw(st.integers(0, len(damaged)))])
    assert outcome(core, data, LIMIT) == outcome(pure, data, LIMIT)


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(bytes.fromhex(block), id=name)
        for name, block in {
            "no size": "",
            "a size without an end": "808080",
            "a size of six bytes": "808080808000",
            "a size of 64 GB": "ffffffffff01",
            "nothing, in two bytes": "8000",
            "more than it says": "000061",
            "less than it says": "050061",
            "a literal that goes on": "011061",
            "a long literal without its length": "40f0",
            "a copy from before the start": "05006105",
            "a copy of offset 0": "050061010000",
            "a copy with an offset of 4 bytes": "0500610f01000000",
            "a copy that is cut off": "0500610f0100",
            "a literal with a length of 4 bytes": "01fc0000000061",
            "a copy that goes on too long": "03006109 01".replace(" ", ""),
        }.items()
    ],
)
def test_odd_blocks_are_the_librarys_to_judge(core: ModuleType, block: bytes) -> None:
    for data in (framed(block), stream([b"good"]) + framed(block) + stream([b"good"])):
        assert outcome(core, data, LIMIT) == outcome(pure, data, LIMIT)


@pytest.mark.parametrize("block_size_bytes", [1024, 32 * 1024, 512 * 1024])
def test_blocks_of_other_writers_are_read_by_both(core: ModuleType, block_size_bytes: int) -> None:
    """snappy-java's sizes: its smallest, its default, which Kafka uses, and its largest."""
    data = b"".join(b'{"number":%d}' % number for number in range(200_000))
    blocks = [
        data[start : start + block_size_bytes] for start in range(0, len(data), block_size_bytes)
    ]
    assert outcome(core, stream(blocks), len(data)) == data


def test_the_pure_core_reads_a_few_flushes_whatever_their_size(core: ModuleType) -> None:
    flushed = [b"x"] * BLOCK_COUNT_FREE
    assert outcome(core, stream(flushed), LIMIT) == b"x" * BLOCK_COUNT_FREE


@pytest.mark.parametrize("size_bytes", [0, 1, 4, 65_536, 65_537, 1_000_000])
@pytest.mark.parametrize("has_checksums", [False, True])
def test_the_room_of_lz4_is_the_same_and_enough(
    core: ModuleType, size_bytes: int, has_checksums: bool
) -> None:
    chance = random.Random(2)
    for content in (bytes(size_bytes), chance.randbytes(size_bytes)):
        frame = lz4.frame.compress(
            content, block_checksum=has_checksums, content_checksum=has_checksums
        )
        for data in (frame, frame * 3, frame[:-3], frame + b"rest"):
            room = core.lz4_room_bytes(data, 10**7)
            assert room == pure.lz4_room_bytes(data, 10**7)
        assert core.lz4_room_bytes(frame * 3, 10**7) >= 3 * size_bytes


@given(st.binary(max_size=60))
def test_the_room_of_anything_is_the_same(core: ModuleType, data: bytes) -> None:
    for start in (b"", b"\x04\x22\x4d\x18", b"\x04\x22\x4d\x18\x60\x40\x82"):
        assert core.lz4_room_bytes(start + data, 1_000) == pure.lz4_room_bytes(start + data, 1_000)


def test_the_pure_core_does_not_count_blocks_without_end() -> None:
    head = b"\x04\x22\x4d\x18\x60\x40\x82"
    assert pure.lz4_room_bytes(head + b"\0\0\0\x80" * 10_000, 1_000) is None
    assert pure.lz4_room_bytes((head + bytes(4)) * 10_000, 1_000) is None


SMALL_SIZE_BYTES_MAX, SMALL_CONTENT_SIZE_BYTES_MAX = 512, 4_096


def by_library(data: bytes, limit: int) -> bytes | None:
    """Decompress frames with cramjam; return None for an error."""
    room = bytearray(limit)
    try:
        return bytes(room[: cramjam.lz4.decompress_into(data, room)])
    except cramjam.DecompressionError:
        return None


FRAMES = st.builds(
    lz4.frame.compress,
    CONTENTS,
    block_linked=st.booleans(),
    block_checksum=st.booleans(),
    content_checksum=st.booleans(),
    store_size=st.booleans(),
    block_size=st.sampled_from([4, 5, 6, 7]),
)


@fuzz
@given(st.lists(FRAMES, min_size=1, max_size=3), st.data())
def test_small_frames_of_lz4_are_read_as_the_library_reads_them(
    frames: list[bytes], draw: st.DataObject
) -> None:
    compiled = pytest.importorskip("pykclient.accel.compiled", reason="not built")
    good = b"".join(frames)
    expected = by_library(good, LIMIT)
    assert expected is not None
    is_small = len(good) <= SMALL_SIZE_BYTES_MAX and len(expected) <= SMALL_CONTENT_SIZE_BYTES_MAX
    assert compiled.unlz4_small(good, LIMIT) == (expected if is_small else None)
    if expected:
        assert compiled.unlz4_small(good, len(expected) - 1) is None
    damaged = bytearray(good)
    for _ in range(draw.draw(st.integers(0, 3))):
        damaged[draw.draw(st.integers(0, len(damaged) - 1))] = draw.draw(st.integers(0, 255))
    data = bytes(damaged[: draw.draw(st.integers(0, len(damaged)))])
    found = compiled.unlz4_small(data, LIMIT)
    assert found is None or found == by_library(data, LIMIT)


@fuzz
@given(st.lists(st.binary(max_size=40), max_size=4), st.booleans())
def test_any_blocks_of_lz4_are_read_as_the_library_reads_them(
    blocks: list[bytes], is_linked: bool
) -> None:
    compiled = pytest.importorskip("pykclient.accel.compiled", reason="not built")
    head = b"\x04\x22\x4d\x18\x40\x40\xc0" if is_linked else b"\x04\x22\x4d\x18\x60\x40\x82"
    data = head + b"".join(len(each).to_bytes(4, "little") + each for each in blocks if each)
    found = compiled.unlz4_small(data + bytes(4), LIMIT)
    assert found is None or found == by_library(data + bytes(4), LIMIT)


@pytest.mark.parametrize("attribute", ["block_checksum", "content_checksum", "store_size"])
def test_a_tiny_batch_in_lz4_makes_no_decoder(attribute: str) -> None:
    compiled = pytest.importorskip("pykclient.accel.compiled", reason="not built")
    for content in (b"v", b"ab" * 60, b"0123456789" * 400):
        data = lz4.frame.compress(content, **{attribute: True})
        assert compiled.unlz4_small(data, LIMIT) == content
    assert pure.unlz4_small(data, LIMIT) is None
