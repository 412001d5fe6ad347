"""Memory for one large frame: it holds the received bytes, and takes no more than they do."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pykclient.accel.pure.frame_memory import ALLOCATION_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
ANNOUNCED_BYTES = 100_000_000
ARRIVED_BYTES = 20 * ALLOCATION_BYTES
OTHERS_BYTES = 8 * 1024 * 1024
"""Memory that the rest of the process may take meanwhile."""


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES


@pytest.mark.parametrize("size_bytes", [1, 70_000, ALLOCATION_BYTES, 3 * ALLOCATION_BYTES + 1])
@pytest.mark.parametrize("piece_bytes", [65_536, 10**9])
def test_a_frame_is_what_was_received(core: ModuleType, size_bytes: int, piece_bytes: int) -> None:
    content = os.urandom(size_bytes)
    memory = core.FrameMemory(size_bytes)
    filled_bytes = 0
    while filled_bytes < size_bytes:
        space = memory.space(filled_bytes)
        count = min(len(space), piece_bytes)
        assert 0 < count <= size_bytes - filled_bytes
        space[:count] = content[filled_bytes : filled_bytes + count]
        filled_bytes += count
    frame = memory.frame()
    assert frame == content
    assert frame.readonly


def test_a_frame_that_is_kept_is_not_overwritten_by_the_next(core: ModuleType) -> None:
    kept = []
    for number in range(5):
        memory = core.FrameMemory(2 * ALLOCATION_BYTES)
        for start in (0, ALLOCATION_BYTES):
            memory.space(start)[:ALLOCATION_BYTES] = bytes([number]) * ALLOCATION_BYTES
        frame = memory.frame()
        if number % 2 == 0:
            kept.append(frame[5 : 5 + ALLOCATION_BYTES])
        del memory, frame
    assert [(piece[0], piece[-1]) for piece in kept] == [(0, 0), (2, 2), (4, 4)]


def test_memory_with_a_view_on_it_does_not_move(core: ModuleType) -> None:
    memory = core.FrameMemory(ANNOUNCED_BYTES)
    space = memory.space(0)
    held = space[:10]
    held[:] = b"0123456789"
    with pytest.raises(BufferError):
        memory.space(len(space))
    assert bytes(held) == b"0123456789"


def test_the_space_of_before_is_not_used_any_more(core: ModuleType) -> None:
    memory = core.FrameMemory(ANNOUNCED_BYTES)
    before = memory.space(0)
    memory.space(len(before))
    with pytest.raises(ValueError, match="released"):
        before[0] = 1


def frames_and_batches(core_name: str) -> int:
    core = import_module(core_name)
    before_bytes = resident_bytes()
    kept = []
    for _ in range(20):
        memory = core.FrameMemory(8 * ALLOCATION_BYTES)
        for start in range(0, 8 * ALLOCATION_BYTES, ALLOCATION_BYTES):
            space = memory.space(start)
            space[:ALLOCATION_BYTES] = bytes(ALLOCATION_BYTES)
        del memory, space
        kept.append(core.RecordAppender(100_000, None, nullcontext()))
        assert kept[-1].append(1, None, bytes(70_000)) is not None
    return resident_bytes() - before_bytes


def part_of_a_frame(core_name: str) -> int:
    memory = import_module(core_name).FrameMemory(ANNOUNCED_BYTES)
    before_bytes = resident_bytes()
    filled_bytes = 0
    while filled_bytes < ARRIVED_BYTES:
        space = memory.space(filled_bytes)
        count = min(len(space), 65_536)
        space[:count] = bytes(count)
        filled_bytes += count
    return resident_bytes() - before_bytes


def grown_bytes(scenario: Callable[[str], int], core: ModuleType) -> int:
    """Measure the growth in a process of its own, where no other test's memory comes and goes."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(scenario, core.__name__).result()


def test_small_batches_do_not_keep_the_memory_of_large_frames(core: ModuleType) -> None:
    """Goal: what a batch takes is near what it reserves, whatever was received before."""
    # The spare pieces, and all batches together.
    most_bytes = 16 * 1024 * 1024 + 20 * 150_000 + OTHERS_BYTES
    assert grown_bytes(frames_and_batches, core) < most_bytes


def test_memory_grows_with_what_arrived(core: ModuleType) -> None:
    # Either core keeps room to grow; neither comes near what was announced.
    assert grown_bytes(part_of_a_frame, core) < 2 * ARRIVED_BYTES + OTHERS_BYTES
