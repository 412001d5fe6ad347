"""Framing: the same frames for any split of the bytes, and errors for invalid ones."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykclient.accel.pure.frame_memory import ALLOCATION_BYTES
from pykclient.errors.base import FrameTooLargeError, TlsError
from pykclient.protocol.framing import (
    SCRATCH_BYTES,
    FrameBuffer,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SIZE_BYTES = 4
LARGE_BYTES = SCRATCH_BYTES + 1000


def framed(frames: Iterable[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(SIZE_BYTES, "big") + frame for frame in frames)


def feed(buffer: FrameBuffer, data: bytes, chunk_size: int | None = None) -> Iterator[memoryview]:
    """Receive `data` in chunks of at most `chunk_size`, as a socket would put it there."""
    position = 0
    while position < len(data):
        space = buffer.get_buffer()
        count = min(len(space), len(data) - position, chunk_size or len(data))
        space[:count] = data[position : position + count]
        position += count
        yield from buffer.buffer_updated(count)


def received(data: bytes, chunk_size: int | None = None) -> list[bytes]:
    return [bytes(frame) for frame in feed(FrameBuffer(), data, chunk_size)]


def content(size: int) -> bytes:
    """Bytes of which no two neighbourhoods are alike."""
    return bytes(position * 7 % 251 for position in range(size))


FRAMES = [
    b"",
    b"a",
    b"bc" * 100,
    content(SCRATCH_BYTES - SIZE_BYTES),  # just fits the scratch buffer
    content(SCRATCH_BYTES - SIZE_BYTES + 1),  # just does not
    b"between",
    content(LARGE_BYTES),
    b"end",
]


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 5, 1000, SCRATCH_BYTES - 1, SCRATCH_BYTES, None])
def test_frames_come_out_of_pieces_of(chunk_size: int | None) -> None:
    assert received(framed(FRAMES), chunk_size) == FRAMES


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(0, 300) | st.integers(SCRATCH_BYTES - 8, 3 * SCRATCH_BYTES)),
    cuts=st.lists(st.integers(1, 2 * SCRATCH_BYTES), min_size=1),
)
def test_frames_come_out_of_any_pieces(sizes: Sequence[int], cuts: Sequence[int]) -> None:
    frames = [bytes([index % 256]) * size for index, size in enumerate(sizes)]
    data, buffer, found, position, turn = framed(frames), FrameBuffer(), [], 0, 0
    while position < len(data):
        chunk = data[position : position + cuts[turn % len(cuts)]]
        found += [bytes(frame) for frame in feed(buffer, chunk)]
        position += len(chunk)
        turn += 1
    assert found == frames


def test_many_small_frames_come_out_of_one_update() -> None:
    frames = [b"%d" % number for number in range(1000)]
    buffer = FrameBuffer()
    data = framed(frames)
    buffer.get_buffer()[: len(data)] = data
    assert buffer.buffer_updated(len(data)) == frames


def test_frame_that_was_handed_out_is_never_overwritten() -> None:
    buffer = FrameBuffer()
    kept = list(feed(buffer, framed([b"first", content(LARGE_BYTES)])))
    list(feed(buffer, framed([b"X" * 100, b"Y" * LARGE_BYTES, b"Z" * 100])))
    assert kept == [b"first", content(LARGE_BYTES)]
    assert all(frame.readonly for frame in kept)


def test_rest_of_a_large_frame_lands_in_its_own_buffer() -> None:
    """Goal: no copy after the first piece. Method: what is put there shows in the frame."""
    buffer = FrameBuffer()
    data = framed([content(LARGE_BYTES)])
    list(feed(buffer, data[:10]))
    rest = buffer.get_buffer()
    assert len(rest) == len(data) - 10
    rest[:] = data[10:]
    (frame,) = buffer.buffer_updated(len(rest))
    rest[-1] ^= 0xFF
    assert frame[-1] == data[-1] ^ 0xFF


def test_a_large_frame_reads_no_byte_beyond_its_end() -> None:
    buffer = FrameBuffer()
    data = framed([content(LARGE_BYTES)])
    list(feed(buffer, data[:-5]))
    assert len(buffer.get_buffer()) == 5


def test_a_view_that_the_caller_still_holds_does_not_hinder_growth() -> None:
    """The loop of asyncio has its own reference to the buffer while it reports new bytes."""
    frame = content(3 * ALLOCATION_BYTES)
    buffer, data, views, position = FrameBuffer(), framed([frame]), [], 0
    frames: list[memoryview] = []
    while position < len(data):
        views.append(buffer.get_buffer())
        count = min(len(views[-1]), len(data) - position, ALLOCATION_BYTES // 2)
        views[-1][:count] = data[position : position + count]
        position += count
        frames += buffer.buffer_updated(count)
    assert frames == [frame]
    assert len(views) > 2


def test_frame_of_exactly_the_limit_is_taken() -> None:
    assert list(feed(FrameBuffer(receive_max_bytes=3), framed([b"abc"]))) == [b"abc"]


@pytest.mark.parametrize(
    ("head", "complaint"),
    [
        (
            b"\x00\x00\x00\x04",
            "a frame of 4 bytes was announced .* but the limit is 3 .*receive_max_bytes",
        ),
        (b"\xff\xff\xff\xff", "a frame of -1 bytes"),
        (b"\x80\x00\x00\x00", "a frame of -2147483648 bytes"),
        (b"SSH-", "responded in text .*'SSH-'.* this is not a Kafka broker; check the port"),
        (b"HTTP", "this looks like an HTTP server"),
        (b"<!DO", "this looks like an HTTP server"),
        (b"\x7fELF", "first bytes b'.x7fELF'"),
    ],
)
def test_what_is_no_frame_is_refused(head: bytes, complaint: str) -> None:
    buffer = FrameBuffer(receive_max_bytes=3)
    with pytest.raises(FrameTooLargeError, match=complaint):
        list(feed(buffer, head, chunk_size=1))


def test_peers_that_are_no_brokers_are_refused_with_the_default_limit() -> None:
    with pytest.raises(FrameTooLargeError, match="this looks like"):
        received(b"HTTP/1.1 400 Bad Request\r\n")
    with pytest.raises(TlsError, match=r"TLS alert.*use its plaintext port"):
        received(b"\x15\x03\x03\x00\x02\x02\x28")


@pytest.mark.parametrize(
    ("head", "what"), [(b"\x15\x03\x03\x00", "alert"), (b"\x16\x03\x01\x02", "handshake")]
)
def test_a_peer_that_speaks_tls_is_named_with_the_setting(head: bytes, what: str) -> None:
    with pytest.raises(TlsError, match=f"TLS {what}: its listener is SSL.*set security_protocol"):
        list(feed(FrameBuffer(receive_max_bytes=3), head, chunk_size=1))


def test_a_bad_size_behind_a_good_frame_is_refused() -> None:
    with pytest.raises(FrameTooLargeError):
        received(framed([b"good"]) + b"\xff\xff\xff\xff")


OUT_OF_MEMORY = """
import resource
from pykclient import accel
from pykclient.protocol.framing import FrameBuffer
from pykclient.errors import FrameTooLargeError

with open("/proc/self/statm", encoding="ascii") as sizes:
    taken_bytes = int(sizes.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken_bytes + 32 * 1024 * 1024,) * 2)
buffers = [FrameBuffer() for _ in range(5)]
for buffer in buffers:
    buffer.get_buffer()[:4] = (100_000_000).to_bytes(4, "big")
    assert buffer.buffer_updated(4) == []
received_bytes = 0
try:
    while received_bytes < 100_000_000:
        count = min(65_536, len(buffer.get_buffer()))
        received_bytes += count
        buffer.buffer_updated(count)
except FrameTooLargeError as error:
    assert received_bytes > 8 * 1024 * 1024, received_bytes
    print(accel.implementation, error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc has the size of the address space")
@pytest.mark.parametrize("core", ["pure", "compiled"])
def test_a_frame_ends_with_an_error_when_its_memory_runs_out(core: str) -> None:
    """Goal: what is announced takes no address space, and what there is none for is an error.

    Method: a process that may grow by 32 MiB gets five announcements of 100 MB, then the bytes.
    """
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_MEMORY],
        env={**os.environ, "PYKCLIENT_ACCEL": core},
        capture_output=True,
        text=True,
        check=False,
    )
    if "ConfigError: PYKCLIENT_ACCEL=compiled" in done.stderr:
        pytest.skip("not built")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{core} there is no memory for a frame of 100000000 bytes")
