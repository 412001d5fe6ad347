"""The codecs: round trips, limits that hold in memory too, and nothing but DecodeError."""

from __future__ import annotations

import gzip
import random
import subprocess
import sys
import time
import tracemalloc
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Final

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from pykclient.errors.base import ConfigError, DecodeError
from pykclient.records import compression
from pykclient.records.compression import (
    DECOMPRESSED_SIZE_BYTES_MAX,
    Codec,
    compress,
    decompress,
    require_library,
)
from pykclient.records.compression import (
    zstandard as zstandard_if_installed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

COMPRESSED = tuple(Codec)[1:]
LIMIT = 10**7

DATA = st.binary(max_size=2000) | st.sampled_from([b"", b"a" * 100_000, bytes(range(256)) * 500])


@pytest.fixture(scope="module", params=["zstandard", "cramjam"])
def zstd_library(request: pytest.FixtureRequest) -> Iterator[str]:
    """Which library compresses with zstd; every test that takes it runs with each."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "cramjam":
            patch.setitem(sys.modules, "zstandard", None)
        zstandard_if_installed.cache_clear()
        assert (zstandard_if_installed() is None) == (request.param == "cramjam")
        yield request.param
    zstandard_if_installed.cache_clear()


either_zstd = pytest.mark.usefixtures("zstd_library")


@either_zstd
@given(DATA, st.sampled_from(tuple(Codec)))
def test_every_codec_gives_back_what_it_got(data: bytes, codec: Codec) -> None:
    compressed = compress(codec, data)
    assert decompress(codec, compressed, LIMIT) == data
    assert decompress(codec, memoryview(compressed), LIMIT) == data
    assert compress(codec, memoryview(bytearray(data))) == compressed


@either_zstd
@pytest.mark.promise(
    "a decompression bomb stops at the limit in every codec, and the error has its place"
)
@given(st.sampled_from(COMPRESSED), st.integers(1, 100_000))
def test_exactly_the_limit_is_allowed_and_one_byte_more_is_not(codec: Codec, size: int) -> None:
    compressed = compress(codec, b"z" * size)
    assert len(decompress(codec, compressed, size)) == size
    with pytest.raises(DecodeError, match=f"limit of {size - 1}"):
        decompress(codec, compressed, size - 1)


@either_zstd
@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (Codec.GZIP, [-1, 1, 9]),
        (Codec.LZ4, [1, 9, 17]),
        (Codec.ZSTD, [-131072, 1, 3, 22]),
    ],
)
def test_levels_are_used_and_all_can_be_read(codec: Codec, levels: Sequence[int]) -> None:
    words = random.Random(1).choices([b"flight ", b"carrier ", b"delay ", b"AA ", b"42 "], k=5000)
    data = b"".join(words)
    sizes = [len(compress(codec, data, level)) for level in levels]
    assert len(set(sizes)) > 1
    for level in levels:
        assert decompress(codec, compress(codec, data, level), LIMIT) == data


@either_zstd
@pytest.mark.parametrize(("codec", "default"), [(Codec.GZIP, -1), (Codec.LZ4, 9), (Codec.ZSTD, 3)])
def test_the_default_levels_are_those_of_kafka(codec: Codec, default: int) -> None:
    data = b"some words, some words and more words " * 500
    assert compress(codec, data) == compress(codec, data, default)


def test_lz4_is_written_in_the_blocks_that_java_reads() -> None:
    data = random.Random(2).randbytes(1000) * 200
    assert lz4.frame.decompress(compress(Codec.LZ4, data)) == data
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, data))
    assert info["block_linked"] is False
    assert info["block_size"] == 64 * 1024
    assert info["content_checksum"] is False
    assert info["content_size"] == 0


def test_snappy_is_written_in_the_framing_of_java() -> None:
    data = bytes(range(256)) * 300
    compressed = compress(Codec.SNAPPY, data)
    assert compressed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    size = int.from_bytes(compressed[16:20], "big")
    assert bytes(cramjam.snappy.decompress_raw(compressed[20 : 20 + size])) == data[: 32 * 1024]


def test_snappy_without_framing_is_read_too() -> None:
    data = b"librdkafka writes one bare block " * 3000
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), LIMIT) == data


@either_zstd
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_further_frames_of_any_size_are_read(codec: Codec) -> None:
    sizes = (10, 4096, 0, 100_000, 1, 5_000, 0)
    blocks = [random.Random(size).randbytes(size) for size in sizes]
    frames = b"".join(compress(codec, block) for block in blocks)
    assert decompress(codec, frames, sum(sizes)) == b"".join(blocks)
    with pytest.raises(DecodeError, match=f"limit of {sum(sizes) - 1} "):
        decompress(codec, frames, sum(sizes) - 1)
    for end in (len(frames) - 1, len(frames) - 6_000):
        with pytest.raises(DecodeError):
            decompress(codec, frames[:end], LIMIT)


@either_zstd
@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_many_tiny_frames_cost_what_their_size_is(codec: Codec) -> None:
    """Eight times as many take about eight times the CPU, and not the square of that."""
    frame = compress(codec, b"")

    def cpu_s(frame_count: int) -> float:
        started_s = time.process_time()
        assert decompress(codec, frame * frame_count, LIMIT) == b""
        return time.process_time() - started_s

    cpu_s(100)  # the library's import
    assert cpu_s(160_000) < 30 * cpu_s(20_000)


@pytest.mark.parametrize("content", [b"", b"x", bytes(4096), bytes(65_280), bytes(range(256))])
def test_gzip_members_of_other_writers_are_read(content: bytes) -> None:
    """A few of any size, and many of `bgzip`, which has 64 KiB in each, zeros too."""
    count = 300 if len(content) >= 256 else compression.GZIP_MEMBER_COUNT_FREE
    data = gzip.compress(content, mtime=0) * count
    assert decompress(Codec.GZIP, data, 10 * LIMIT) == content * count


@either_zstd
def test_frames_of_other_writers_are_read() -> None:
    data = random.Random(3).randbytes(500) * 400
    assert decompress(Codec.GZIP, gzip.compress(data, mtime=5), LIMIT) == data
    linked = lz4.frame.compress(data, content_checksum=True, block_checksum=True)
    assert decompress(Codec.LZ4, linked, LIMIT) == data
    streamed = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False)
    assert decompress(Codec.ZSTD, streamed.compress(data), LIMIT) == data


@pytest.mark.parametrize("size_bytes", [1, 65_537, 3_000_000])
@pytest.mark.parametrize(
    "frame",
    [
        partial(compress, Codec.LZ4),
        lz4.frame.compress,
        partial(lz4.frame.compress, block_size=lz4.frame.BLOCKSIZE_MAX4MB, store_size=False),
        partial(lz4.frame.compress, block_checksum=True, content_checksum=True),
        lambda data: lz4.frame.compress(data[:1000]) + lz4.frame.compress(data[1000:]),
    ],
    ids=["ours", "with its size", "large blocks", "checksums", "two frames"],
)
def test_the_buffer_of_lz4_is_made_once_and_has_the_size_of_the_records(
    frame: Callable[[bytes], bytes], size_bytes: int
) -> None:
    # A tenth is noise, so the records are far larger than the frame.
    data = (random.Random(4).randbytes(size_bytes // 10) + bytes(size_bytes))[:size_bytes]
    compressed = frame(data)
    tracemalloc.start()
    try:
        assert decompress(Codec.LZ4, compressed, LIMIT) == data
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 300_000 + 1.3 * size_bytes


PARTS_SIZE_BYTES = 50_000
LZ4_PLAIN: Final = bytes.fromhex("04224d18604082")
"""Header of a frame without checksums."""
LZ4_END: Final = bytes(4)
SNAPPY_HEAD: Final = compress(Codec.SNAPPY, b"")
ZSTD_HEAD: Final = bytes.fromhex("28b52ffd0058")

PARTS: Final[Mapping[str, tuple[Codec, bytes, bytes, bytes]]] = {
    "empty snappy blocks": (Codec.SNAPPY, SNAPPY_HEAD, bytes.fromhex("0000000100"), b""),
    "snappy blocks of a byte": (Codec.SNAPPY, SNAPPY_HEAD, bytes.fromhex("00000003010061"), b""),
    "empty lz4 blocks": (Codec.LZ4, LZ4_PLAIN, bytes.fromhex("00000080"), LZ4_END),
    "lz4 blocks of a byte": (Codec.LZ4, LZ4_PLAIN, bytes.fromhex("0100008061"), LZ4_END),
    "empty lz4 frames": (Codec.LZ4, b"", LZ4_PLAIN + LZ4_END, b""),
    "skippable lz4 frames": (Codec.LZ4, b"", bytes.fromhex("502a4d1800000000"), b""),
    "empty zstd frames": (Codec.ZSTD, b"", compress(Codec.ZSTD, b""), b""),
    "zstd frames of a byte": (Codec.ZSTD, b"", compress(Codec.ZSTD, b"a"), b""),
    "skippable zstd frames": (Codec.ZSTD, b"", bytes.fromhex("502a4d1800000000"), b""),
    "empty zstd blocks": (Codec.ZSTD, ZSTD_HEAD, bytes(3), bytes.fromhex("010000")),
    "empty gzip members": (Codec.GZIP, b"", gzip.compress(b"", mtime=0), b""),
    "gzip members of a byte": (Codec.GZIP, b"", gzip.compress(b"a", mtime=0), b""),
}
"""Valid input that decompresses to next to nothing."""


class CountedCalls:
    """Counts calls of functions of a library, and of objects that they return."""

    def __init__(self, library: object, counter: list[int]) -> None:
        self._library = library
        self._counter = counter

    def __getattr__(self, name: str) -> object:
        found = getattr(self._library, name)
        if isinstance(found, ModuleType):
            return CountedCalls(found, self._counter)
        if not callable(found) or (isinstance(found, type) and issubclass(found, Exception)):
            return found

        def call(*arguments: object, **keywords: object) -> object:
            self._counter.append(1)
            result = found(*arguments, **keywords)
            is_object = type(result).__module__.partition(".")[0] in ("zlib", "zstandard")
            return CountedCalls(result, self._counter) if is_object else result

        return call


@either_zstd
@pytest.mark.parametrize("core", ["pure", "compiled"])
@pytest.mark.parametrize("name", PARTS)
def test_what_is_cut_into_tiny_parts_makes_few_calls_and_keeps_nothing(
    name: str, core: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls of libraries are counted: there is no other work in Python that grows with parts."""
    codec, head, part, end = PARTS[name]
    data = head + part * (PARTS_SIZE_BYTES // len(part)) + end
    implementation = import_module(f"pykclient.accel.{core}")
    for function in ("lz4_room_bytes", "unsnappy_blocks"):
        monkeypatch.setattr(compression, function, getattr(implementation, function))
    counter: list[int] = []
    library = compression._cramjam(codec)
    monkeypatch.setattr(compression, "_cramjam", lambda _: CountedCalls(library, counter))
    monkeypatch.setattr(compression, "zlib", CountedCalls(zlib, counter))
    monkeypatch.setattr(compression, "_idle_decompressors", [])
    if zstandard_if_installed() is not None:
        zstd = CountedCalls(zstandard, counter)
        monkeypatch.setattr(compression, "zstandard", lambda: zstd)
    tracemalloc.start()
    try:
        if codec is Codec.GZIP:
            with pytest.raises(DecodeError, match=r"they have 21\d members or more"):
                decompress(codec, data, LIMIT)
        elif codec is Codec.SNAPPY and core == "pure":
            with pytest.raises(DecodeError, match=r"more than 45\d blocks in 500\d\d bytes"):
                decompress(codec, data, LIMIT)
        else:
            held_bytes = len(part) if "byte" in name else 0
            result = decompress(codec, data, LIMIT)
            assert len(result) == (PARTS_SIZE_BYTES // len(part) if held_bytes else 0)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    calls_max = {Codec.GZIP: 1_500, Codec.SNAPPY: 1_000}.get(codec, 150)
    assert len(counter) <= calls_max
    assert peak_bytes < 25 * PARTS_SIZE_BYTES


@either_zstd
@pytest.mark.parametrize("codec", COMPRESSED)
def test_input_cut_off_anywhere_is_an_error_or_shorter_by_whole_blocks(codec: Codec) -> None:
    compressed = compress(codec, b"hello world, " * 20)
    for end in range(len(compressed)):
        if codec is Codec.SNAPPY and end == 16:
            # Its framing has no end, so a header alone is an empty stream.
            assert decompress(codec, compressed[:end], LIMIT) == b""
            continue
        with pytest.raises(DecodeError, match=codec.name.lower()):
            decompress(codec, compressed[:end], LIMIT)


@either_zstd
@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("rest", [b"\x00", b"x", bytes(100), b"garbage after the end"])
def test_bytes_after_the_end_are_an_error(codec: Codec, rest: bytes) -> None:
    with pytest.raises(DecodeError):
        decompress(codec, compress(codec, b"hello " * 20) + rest, LIMIT)


@either_zstd
@given(st.sampled_from(COMPRESSED), st.binary(max_size=3000), st.data())
def test_damaged_input_gives_bytes_or_a_decode_error(
    codec: Codec, data: bytes, draw: st.DataObject
) -> None:
    damaged = bytearray(compress(codec, data))
    for _ in range(draw.draw(st.integers(1, 4))):
        damaged[draw.draw(st.integers(0, len(damaged) - 1))] = draw.draw(st.integers(0, 255))
    with suppress(DecodeError):
        decompress(codec, damaged, LIMIT)


@either_zstd
@given(st.sampled_from(COMPRESSED), st.binary(max_size=100))
def test_any_input_gives_bytes_or_a_decode_error(codec: Codec, data: bytes) -> None:
    with suppress(DecodeError):
        decompress(codec, data, LIMIT)


def run(program: str, *arguments: str) -> str:
    """Run a program in a Python of its own and return what it prints."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


BOMB_BYTES = 200 * 10**6


def _zeros() -> bytes:
    return bytes(BOMB_BYTES)


def _snappy_with_a_wrong_size() -> bytes:
    preamble = [BOMB_BYTES >> shift & 0x7F | 0x80 for shift in (0, 7, 14)] + [BOMB_BYTES >> 21]
    return bytes(preamble) + b"\x00a"


def _zstd_of_runs(window: int = 0x58) -> bytes:
    # A frame's header, then blocks of 4 bytes that each hold 128 KiB of zeros.
    return bytes.fromhex("28b52ffd00") + bytes((window,)) + bytes.fromhex("02001000") * 2000


@either_zstd
def test_a_zstd_frame_may_require_a_window_of_128_mib_and_no_more() -> None:
    last = bytes.fromhex("0b0000")  # a run of one byte, and the end
    head, block = _zstd_of_runs(17 << 3)[:6], last + b"z"
    assert decompress(Codec.ZSTD, head + block, 1) == b"z"
    with pytest.raises(DecodeError, match=r"zstd records are malformed: .*too much memory"):
        decompress(Codec.ZSTD, _zstd_of_runs(17 << 3 | 1)[:6] + block, 1)


BOMBS: Mapping[str, tuple[Codec, Callable[[], bytes]]] = {
    "gzip": (Codec.GZIP, lambda: gzip.compress(_zeros(), 1)),
    "gzip, many members": (Codec.GZIP, lambda: gzip.compress(bytes(10**6)) * 200),
    "snappy": (Codec.SNAPPY, lambda: compress(Codec.SNAPPY, _zeros())),
    "snappy, one block": (Codec.SNAPPY, lambda: bytes(cramjam.snappy.compress_raw(_zeros()))),
    "snappy that lies": (Codec.SNAPPY, _snappy_with_a_wrong_size),
    "lz4": (Codec.LZ4, lambda: lz4.frame.compress(_zeros())),
    "zstd": (Codec.ZSTD, lambda: zstandard.compress(_zeros())),
    "zstd of runs": (Codec.ZSTD, _zstd_of_runs),
    "zstd, many frames": (Codec.ZSTD, lambda: zstandard.compress(bytes(10**6)) * 200),
}
DEFUSE = """
import pathlib, resource, sys
if sys.argv[3] == "cramjam":
    sys.modules["zstandard"] = None
from pykclient.errors.base import DecodeError
from pykclient.records.compression import DECOMPRESSED_SIZE_BYTES_MAX, Codec, compress, decompress
codec = Codec(int(sys.argv[1]))
bomb = pathlib.Path(sys.argv[2]).read_bytes()
decompress(codec, compress(codec, b"the library is loaded"), 1000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(codec, bomb, DECOMPRESSED_SIZE_BYTES_MAX)
except DecodeError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.promise(
    "a decompression bomb stops at the limit in every codec, and the error has its place"
)
@pytest.mark.parametrize(
    ("name", "library"),
    [
        *((name, "cramjam") for name in BOMBS),
        *((name, "zstandard") for name in BOMBS if name.startswith("zstd")),
    ],
)
def test_a_bomb_is_refused_and_the_process_grows_by_less_than_200_mb(
    name: str, library: str, tmp_path: Path
) -> None:
    codec, make = BOMBS[name]
    path = tmp_path / "bomb"
    path.write_bytes(make())
    error, growth_kib = run(DEFUSE, str(int(codec)), str(path), library).splitlines()
    assert f"decompress to more than the limit of {DECOMPRESSED_SIZE_BYTES_MAX} bytes" in error
    assert int(growth_kib) * 1024 < 200 * 10**6


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_a_buffer_that_was_too_small_is_freed_before_the_next_one_is_made(codec: Codec) -> None:
    """Some of these limits are barely above what the last but one buffer holds."""
    zeros = bytes(4 * 10**6)
    data = compress(codec, zeros)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "zstandard", None)
        zstandard_if_installed.cache_clear()
        try:
            for limit in range(500_000, 2_000_000, 50_000):
                tracemalloc.start()
                with pytest.raises(DecodeError, match="more than the limit"):
                    decompress(codec, data, limit)
                _, peak_bytes = tracemalloc.get_traced_memory()
                tracemalloc.stop()
                assert peak_bytes < 1.2 * limit
        finally:
            tracemalloc.stop()
            zstandard_if_installed.cache_clear()


def test_a_codec_is_imported_when_it_is_first_used() -> None:
    program = """
import sys
from pykclient.records.compression import Codec, compress
libraries = {"cramjam", "zstandard"}
for codec in (Codec.GZIP, Codec.ZSTD, Codec.LZ4):
    compress(codec, b"")
    print(sorted(libraries & set(sys.modules)))
"""
    assert run(program) == "[]\n['zstandard']\n['cramjam', 'zstandard']\n"


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_library_that_is_not_installed_is_named_with_how_to_get_it(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = compress(codec, b"data")
    require_library(codec)
    monkeypatch.setitem(sys.modules, "cramjam", None)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    zstandard_if_installed.cache_clear()
    message = f"compression {codec.name.lower()} needs .*: pip install cramjam$"
    with pytest.raises(ConfigError, match=message):
        compress(codec, b"data")
    with pytest.raises(ConfigError, match=message):
        decompress(codec, data, LIMIT)
    with pytest.raises(ConfigError, match=message):
        require_library(codec)
    zstandard_if_installed.cache_clear()


@either_zstd
def test_many_threads_compress_and_decompress_at_once() -> None:
    """Contexts of zstd must not be shared while in use; each thread gets its own data only."""

    def work(number: int) -> bool:
        data = b"%d," % number * 20_000
        for _ in range(50):
            if decompress(Codec.ZSTD, compress(Codec.ZSTD, data), LIMIT) != data:
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


@pytest.mark.parametrize(
    ("codec", "data", "claimed"),
    [
        (Codec.GZIP, compress(Codec.GZIP, bytes(5_000)), 5_000),
        (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(bytes(5_000))), 5_000),
        (Codec.SNAPPY, compress(Codec.SNAPPY, bytes(5_000)), None),
        (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(9), 2**32 - 1),
        (Codec.LZ4, lz4.frame.compress(bytes(5_000)), 5_000),
        (Codec.LZ4, compress(Codec.LZ4, bytes(5_000)), None),
        (
            Codec.ZSTD,
            zstandard.ZstdCompressor(write_content_size=False).compress(bytes(5_000)),
            None,
        ),
        *(
            (Codec.ZSTD, zstandard.ZstdCompressor().compress(bytes(size)), size)
            for size in (2_000, 5_000, 70_000)
        ),
    ],
)
def test_a_batch_over_the_limit_is_reported_with_the_size_that_it_claims(
    codec: Codec, data: bytes, claimed: int | None
) -> None:
    with pytest.raises(DecodeError) as caught:
        decompress(codec, data, 1_024)
    claim = "" if claimed is None else f", and claim {claimed} bytes"
    assert str(caught.value) == (
        f"its {codec.name.lower()} records decompress to more than the limit of 1024 bytes{claim}"
    )
