"""One direction of a proxied connection: what each fault makes of a frame, however it arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.testing.proxy.faults import (
    Blackhole,
    Cut,
    Delay,
    Direction,
    Double,
    Fault,
    Flip,
    ForgeLength,
    Lose,
)
from pykclient.testing.proxy.frames import Ending, Event, FrameStream, Pause
from pykclient.testing.proxy.plan import Strike

if TYPE_CHECKING:
    from collections.abc import Iterable

FRAME = (16).to_bytes(4, "big") + bytes(range(16))
OTHER = (5).to_bytes(4, "big") + b"other"


def stream_of(strikes: Iterable[Strike | None]) -> FrameStream:
    """A stream of answers whose frames meet these strikes in turn."""
    upcoming = iter(strikes)
    return FrameStream(Direction.RESPONSE, lambda head: next(upcoming))


def feed(stream: FrameStream, data: bytes, piece_bytes: int) -> list[Event]:
    """What becomes of `data` that arrives in pieces; bytes in a row are put together."""
    events: list[Event] = []
    for start in range(0, len(data), piece_bytes):
        events += stream.feed(data[start : start + piece_bytes])
    joined: list[Event] = []
    for event in events:
        if isinstance(event, bytes) and joined and isinstance(joined[-1], bytes):
            joined[-1] += event
        else:
            joined.append(event)
    return joined


def struck(fault: Fault, byte: int = 0, bit: int = 0) -> list[Strike | None]:
    return [Strike(fault, byte, bit), None]


FLIPPED = FRAME[:9] + bytes([FRAME[9] ^ 8]) + FRAME[10:]
FORGED = b"\x7f\xff\xff\xff" + FRAME[4:]


@pytest.mark.promise("the fault proxy delays")
@pytest.mark.parametrize("piece_bytes", [1, 3, 7, 1000])
@pytest.mark.parametrize(
    ("strikes", "expected"),
    [
        pytest.param([None, None], [FRAME + OTHER], id="nothing"),
        pytest.param(struck(Delay(delay_ms=70)), [Pause(70), FRAME + OTHER], id="delay"),
        pytest.param(struck(Lose()), [Ending.CLOSE], id="lose"),
        pytest.param(struck(Cut(), byte=10), [FRAME[:10], Ending.CLOSE], id="cut"),
        pytest.param(struck(Cut(), byte=5), [FRAME[:5], Ending.CLOSE], id="cut in the head"),
        pytest.param(struck(Flip(), byte=9, bit=3), [FLIPPED + OTHER], id="flip"),
        pytest.param(struck(ForgeLength(length_bytes=2**31 - 1)), [FORGED + OTHER], id="forge"),
        pytest.param(struck(Double()), [FRAME + FRAME + OTHER], id="double"),
        pytest.param(struck(Blackhole()), [Ending.BLACKHOLE], id="blackhole"),
        pytest.param([None, Strike(Lose(), 0, 0)], [FRAME, Ending.CLOSE], id="the second"),
    ],
)
def test_what_a_frame_meets(
    strikes: list[Strike | None], expected: list[Event], piece_bytes: int
) -> None:
    assert feed(stream_of(strikes), FRAME + OTHER, piece_bytes) == expected


@pytest.mark.parametrize(
    ("direction", "head_bytes"), [(Direction.REQUEST, 12), (Direction.RESPONSE, 8)]
)
def test_the_decision_is_made_from_the_head_alone(direction: Direction, head_bytes: int) -> None:
    heads: list[bytes] = []
    stream = FrameStream(direction, lambda head: heads.append(head))
    assert stream.feed(FRAME[: head_bytes - 1]) == []
    assert heads == []
    assert stream.feed(FRAME[head_bytes - 1 : head_bytes]) == [FRAME[:head_bytes]]
    assert heads == [FRAME[:head_bytes]]


@pytest.mark.parametrize("start", [b"\xff\xff\xff\xff", b"HTTP", b"\x00\x00\x00\x03"])
def test_what_is_no_frame_passes_as_it_is(start: bytes) -> None:
    stream = stream_of([])
    data = start + b" and anything else"
    assert feed(stream, data, 5) == [data]
    assert feed(stream, FRAME, 5) == [FRAME]


@pytest.mark.parametrize("direction", Direction)
def test_what_is_no_frame_is_not_held_back(direction: Direction) -> None:
    stream = FrameStream(direction, lambda head: None)
    assert stream.feed(b"HTT") == []
    assert stream.feed(b"P") == [b"HTTP"]


def test_the_start_of_a_head_is_not_held_back_for_ever() -> None:
    stream = stream_of([])
    assert stream.feed(FRAME[:5]) == []
    assert stream.end() == [FRAME[:5]]
    assert stream.end() == []


def test_nothing_comes_after_the_end() -> None:
    stream = stream_of(struck(Lose()))
    assert stream.feed(FRAME) == [Ending.CLOSE]
    assert stream.feed(OTHER) == []
    assert stream.end() == []


@given(st.lists(st.binary(min_size=4, max_size=40)), st.integers(1, 60), st.binary(max_size=7))
def test_unharmed_streams_are_not_changed(
    bodies: list[bytes], piece_bytes: int, rest: bytes
) -> None:
    data = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    data += (100).to_bytes(4, "big") + rest
    stream = FrameStream(Direction.RESPONSE, lambda head: None)
    passed = [*feed(stream, data, piece_bytes), *stream.end()]
    assert b"".join(event for event in passed if isinstance(event, bytes)) == data
