"""What waits in one direction: for a pause, for the rate, for the receiver; in a made-up time."""

from __future__ import annotations

from pykclient.testing.proxy.faults import Blackhole, Cut, Delay, Direction, Fault
from pykclient.testing.proxy.frames import Ending, FrameStream
from pykclient.testing.proxy.link import WAITING_BYTES_MAX, ProxyChannel
from pykclient.testing.proxy.plan import Strike

FRAME = (16).to_bytes(4, "big") + bytes(range(16))
RATE = 1000
PIECE_BYTES = 64 * 1024


def channel_with(fault: Fault | None = None, byte: int = 0) -> ProxyChannel:
    strike = None if fault is None else Strike(fault, byte, 0)
    return ProxyChannel(FrameStream(Direction.RESPONSE, lambda head: strike))


def test_what_the_receiver_did_not_take_stays_ready() -> None:
    channel = channel_with()
    channel.feed(FRAME)
    assert channel.ready(0, None) == FRAME
    channel.sent(7)
    assert channel.ready(0, None) == FRAME[7:]
    channel.sent(13)
    assert channel.ready(0, None) == b""
    assert channel.next_ms(0, None) is None


def test_a_pause_begins_when_its_turn_has_come() -> None:
    channel = channel_with(Delay(delay_ms=50))
    channel.feed(FRAME)
    assert channel.ready(1000, None) == b""
    assert channel.next_ms(1000, None) == 1050
    assert channel.ready(1049, None) == b""
    assert channel.ready(1050, None) == FRAME


def test_a_rate_is_kept_whatever_the_pace_of_asking() -> None:
    for step_ms in (1, 7, 20):
        channel = channel_with()
        channel.feed(b"\xff" * 50_000)
        channel.ready(0, RATE)
        sent_bytes = 0
        for now_ms in range(0, 10_001, step_ms):
            sent = len(channel.ready(now_ms, RATE))
            if sent:
                channel.sent(sent)
            sent_bytes += sent
        assert 0.95 * 10 * RATE < sent_bytes <= 10 * RATE


def test_it_says_when_the_rate_allows_more() -> None:
    channel = channel_with()
    channel.feed(b"\xff" * 100)
    assert channel.ready(0, RATE) == b""
    wait_ms = channel.next_ms(0, RATE)
    assert wait_ms is not None
    assert 0 < wait_ms <= 1
    assert channel.ready(wait_ms, RATE) == b"\xff"


def test_little_is_held() -> None:
    channel = channel_with()
    fed_bytes = 0
    while channel.wants_data:
        channel.feed(b"\xff" * PIECE_BYTES)
        fed_bytes += PIECE_BYTES
    assert fed_bytes <= WAITING_BYTES_MAX + PIECE_BYTES
    channel.sent(PIECE_BYTES)
    assert channel.wants_data


def test_an_end_comes_after_what_was_before_it() -> None:
    for fault, ending in ((Cut(), Ending.CLOSE), (Blackhole(), Ending.BLACKHOLE)):
        channel = channel_with(fault, byte=10)
        channel.feed(FRAME)
        data = channel.ready(0, None)
        if data:
            assert channel.ending is None
            assert data == FRAME[: len(data)]
            while data := channel.ready(0, None):
                channel.sent(len(data))
        assert channel.ending is ending
        channel.feed(FRAME)
        assert channel.ready(0, None) == b""
        assert channel.next_ms(0, None) is None


def test_a_cut_between_two_pieces_ends_it_too() -> None:
    channel = channel_with(Cut(), byte=10)
    channel.feed(FRAME[:10])
    channel.feed(FRAME[10:])
    assert channel.ready(0, None) == FRAME[:10]
    channel.sent(10)
    assert channel.ready(0, None) == b""
    assert channel.ending is Ending.CLOSE


def test_the_senders_end_comes_after_the_start_of_a_head() -> None:
    channel = channel_with()
    channel.feed(FRAME[:3])
    channel.end()
    assert channel.ready(0, None) == FRAME[:3]
    channel.sent(3)
    assert channel.ready(0, None) == b""
    assert channel.ending is Ending.CLOSE
