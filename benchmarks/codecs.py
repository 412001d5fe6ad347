"""Cost of compressing and decompressing a batch: cramjam beside lz4 and zstandard.

    python benchmarks/codecs.py [--seconds N]

A figure is the least time of a call, in microseconds, one thread. A batch is JSON lines, 3 to 6
times smaller when compressed. cramjam and zstandard are called through `pykclient.records`, with
all checks of a consumer; lz4 directly, with the settings that Java's reader needs.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

import lz4.frame

from pykclient.records.compression import Codec, compress, decompress, zstandard

if TYPE_CHECKING:
    from collections.abc import Callable

    Calls = tuple[Callable[[bytes], object], Callable[[bytes], object]]

SIZES = {"1 kB": 1_000, "16 kB": 16_000, "1 MB": 1_000_000}
LIMIT_BYTES = 64 * 1_048_576


def lines(size_bytes: int) -> bytes:
    """Flights, one a line."""
    chance, parts, size = random.Random(1), [], 0
    while size < size_bytes:
        flight = {
            "flight": chance.randrange(9999),
            "carrier": chance.choice(["AA", "UA", "DL", "B6"]),
            "origin": chance.choice(["JFK", "LGA", "EWR"]),
            "delay": chance.randrange(-20, 200),
        }
        parts.append(json.dumps(flight).encode())
        size += len(parts[-1]) + 1
    return b"\n".join(parts)[:size_bytes]


def of_codec(codec: Codec) -> Calls:
    """Our two calls of a codec."""
    return (
        lambda data: compress(codec, data),
        lambda data: decompress(codec, data, LIMIT_BYTES),
    )


def of_lz4() -> Calls:
    """Return compress and decompress of the library lz4."""
    return (
        lambda data: lz4.frame.compress(
            data,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        ),
        lambda data: lz4.frame.LZ4FrameDecompressor().decompress(data, LIMIT_BYTES),
    )


def least_us(call: Callable[[bytes], object], data: bytes, seconds: float) -> float:
    """Return the least time of one call."""
    least_ns, end_s = sys.maxsize, time.monotonic() + seconds
    while time.monotonic() < end_s:
        start_ns = time.perf_counter_ns()
        call(data)
        least_ns = min(least_ns, time.perf_counter_ns() - start_ns)
    return least_ns / 1000


def show(name: str, calls: Calls, seconds: float) -> None:
    """One row: compress and decompress for each size."""
    cells = []
    for size in SIZES.values():
        data = lines(size)
        compressed = calls[0](data)
        assert isinstance(compressed, bytes)
        cells += [f"{least_us(calls[0], data, seconds):.1f}"]
        cells += [f"{least_us(calls[1], compressed, seconds):.1f}"]
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each figure")
    seconds = parser.parse_args().seconds
    titles = [f"{work}, {size}" for size in SIZES for work in ("compress", "decompress")]
    print(f"| microseconds | {' | '.join(titles)} |\n|{' --- |' * (len(titles) + 1)}")
    show("lz4: lz4", of_lz4(), seconds)
    show("lz4: cramjam", of_codec(Codec.LZ4), seconds)
    show("snappy: cramjam", of_codec(Codec.SNAPPY), seconds)
    if zstandard() is not None:
        show("zstd: zstandard", of_codec(Codec.ZSTD), seconds)
        sys.modules["zstandard"] = None  # type: ignore[assignment]  # as if it were not installed
        zstandard.cache_clear()
    show("zstd: cramjam", of_codec(Codec.ZSTD), seconds)
    show("gzip: zlib", of_codec(Codec.GZIP), seconds)


if __name__ == "__main__":
    main()
