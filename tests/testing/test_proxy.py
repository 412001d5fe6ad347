"""The fault proxy: the frames that a fault matches, its effect, and buffering.

Responses are matched to their requests; time is simulated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.errors.base import ConfigError
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.message import encode_request, encode_response
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
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
    Refuse,
)
from pykclient.testing.proxy.frames import Ending, Event, FrameStream, Pause
from pykclient.testing.proxy.link import (
    IN_FLIGHT_COUNT_MAX,
    WAITING_BYTES_MAX,
    ProxiedExchange,
    ProxyChannel,
)
from pykclient.testing.proxy.plan import DOUBLE_BYTES_MAX, FaultPlan, FrameHead, Strike

if TYPE_CHECKING:
    from collections.abc import Iterable

FRAME = (16).to_bytes(4, "big") + bytes(range(16))
OTHER = (5).to_bytes(4, "big") + b"other"


def stream_of(strikes: Iterable[Strike | None]) -> FrameStream:
    """Return a stream of responses whose frames get these strikes in turn."""
    upcoming = iter(strikes)
    return FrameStream(Direction.RESPONSE, lambda head: next(upcoming))


def feed(stream: FrameStream, data: bytes, piece_bytes: int) -> list[Event]:
    """Feed `data` in pieces and return the events, with consecutive bytes joined."""
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


@pytest.mark.parametrize(
    "start", [b"\xff\xff\xff\xff", b"HTTP", b"\x16\x03\x01\x00", b"\x00\x00\x00\x03"]
)
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


RESPONSE = FrameHead(Direction.RESPONSE, ApiKey.PRODUCE, 100)
SEED = 7
THROWS = 2000


def plan_of(*faults: Fault, seed: int = SEED) -> FaultPlan:
    plan = FaultPlan(seed)
    plan.replace(faults)
    return plan


@pytest.mark.parametrize(
    ("fault", "is_struck"),
    [
        (Lose(), True),
        (Lose(api=ApiKey.PRODUCE), True),
        (Lose(api=ApiKey.FETCH), False),
        (Lose(direction=Direction.REQUEST), False),
        (Lose(probability=0.0), False),
        (Lose(count_max=0), False),
        (Refuse(), False),
    ],
)
def test_which_frames_a_fault_strikes(fault: Fault, is_struck: bool) -> None:
    plan = plan_of(fault)
    strike = plan.strike_frame(RESPONSE)
    assert (strike is not None) is is_struck
    assert plan.counts["Lose"] == is_struck


def test_a_response_to_no_known_request_is_struck_by_faults_for_any_api() -> None:
    head = FrameHead(Direction.RESPONSE, None, 100)
    assert plan_of(Lose(api=ApiKey.PRODUCE)).strike_frame(head) is None
    assert plan_of(Lose()).strike_frame(head) is not None


def test_a_fault_strikes_as_often_as_it_may() -> None:
    plan = plan_of(Lose(count_max=3))
    struck = [plan.strike_frame(RESPONSE) is not None for _ in range(6)]
    assert struck == [True] * 3 + [False] * 3
    assert plan.counts == {"Lose": 3}


def test_the_first_fault_that_strikes_is_the_one() -> None:
    plan = plan_of(Cut(count_max=1), Lose())
    kinds = [type(strike.fault) for _ in range(2) if (strike := plan.strike_frame(RESPONSE))]
    assert kinds == [Cut, Lose]


def test_a_probability_is_kept_and_the_seed_repeats_it() -> None:
    runs = []
    for seed in (SEED, SEED, SEED + 1):
        plan = plan_of(Flip(probability=0.2), seed=seed)
        runs.append([plan.strike_frame(RESPONSE) for _ in range(THROWS)])
    struck = sum(strike is not None for strike in runs[0])
    assert THROWS * 0.15 < struck < THROWS * 0.25
    assert runs[0] == runs[1] != runs[2]


def test_places_lie_in_the_frame_behind_its_size() -> None:
    plan = plan_of(Flip())
    head = FrameHead(Direction.RESPONSE, None, 12)
    strikes = [strike for _ in range(THROWS) if (strike := plan.strike_frame(head))]
    assert {strike.byte for strike in strikes} == set(range(4, 12))
    assert {strike.bit for strike in strikes} == set(range(8))


def test_a_frame_too_large_to_keep_is_not_doubled() -> None:
    plan = plan_of(Double(), Lose())
    small, large = (
        plan.strike_frame(FrameHead(Direction.RESPONSE, None, size))
        for size in (DOUBLE_BYTES_MAX, DOUBLE_BYTES_MAX + 1)
    )
    assert small is not None
    assert isinstance(small.fault, Double)
    assert large is not None
    assert isinstance(large.fault, Lose)


def test_connections_are_refused_by_the_same_dice() -> None:
    plan = plan_of(Lose(), Refuse(count_max=2))
    assert [plan.strike_connection() for _ in range(3)] == [True, True, False]
    assert plan.counts == {"Refuse": 2}


def test_new_faults_count_anew_and_the_counts_go_on() -> None:
    plan = plan_of(Lose(count_max=1))
    assert plan.strike_frame(RESPONSE)
    plan.replace([Lose(count_max=1)])
    assert plan.strike_frame(RESPONSE)
    assert not plan.strike_frame(RESPONSE)
    assert plan.counts == {"Lose": 2}


@pytest.mark.parametrize(("probability", "count_max"), [(-0.1, None), (1.1, None), (1.0, -1)])
def test_impossible_faults_are_refused(probability: float, count_max: int | None) -> None:
    with pytest.raises(ConfigError, match="give a number from 0"):
        Lose(probability=probability, count_max=count_max)


def exchange_with(*faults: Fault) -> ProxiedExchange:
    plan = FaultPlan(seed=1)
    plan.replace(faults)
    return ProxiedExchange(plan)


def api_versions(correlation_id: int) -> bytes:
    return bytes(encode_request(ApiVersionsRequest(), 0, correlation_id, "client"))


def metadata(correlation_id: int) -> bytes:
    return bytes(encode_request(MetadataRequest(), 1, correlation_id, "client"))


def api_versions_response(correlation_id: int) -> bytes:
    return bytes(encode_response(ApiVersionsResponse(), 0, correlation_id))


def metadata_response(correlation_id: int) -> bytes:
    return bytes(encode_response(MetadataResponse(), 1, correlation_id))


@pytest.mark.parametrize("piece_bytes", [1, 5, 1000])
def test_only_responses_of_the_api_are_lost(piece_bytes: int) -> None:
    exchange = exchange_with(Lose(api=ApiKey.METADATA))
    requests = api_versions(1) + metadata(2)
    passed = [
        event
        for start in range(0, len(requests), piece_bytes)
        for event in exchange.requests.feed(requests[start : start + piece_bytes])
    ]
    assert b"".join(event for event in passed if isinstance(event, bytes)) == requests
    responses = api_versions_response(1) + metadata_response(2)
    events = [
        event
        for start in range(0, len(responses), piece_bytes)
        for event in exchange.responses.feed(responses[start : start + piece_bytes])
    ]
    assert events[-1] is Ending.CLOSE
    assert b"".join(event for event in events if isinstance(event, bytes)) == api_versions_response(
        1
    )


def test_a_request_can_be_struck_before_the_broker_receives_it() -> None:
    exchange = exchange_with(Cut(api=ApiKey.METADATA, direction=Direction.REQUEST))
    *passed, end = exchange.requests.feed(api_versions(1) + metadata(2))
    data = b"".join(event for event in passed if isinstance(event, bytes))
    assert end is Ending.CLOSE
    assert data.startswith(api_versions(1))
    assert len(api_versions(1)) < len(data) < len(api_versions(1) + metadata(2))


def test_a_request_without_a_response_is_passed_over() -> None:
    exchange = exchange_with(Lose(api=ApiKey.METADATA))
    exchange.requests.feed(api_versions(1) + metadata(2) + api_versions(3))
    assert exchange.responses.feed(api_versions_response(3)) == [api_versions_response(3)]
    # The second request can no longer get a response, so this one matches no known request.
    assert exchange.responses.feed(metadata_response(2)) == [metadata_response(2)]


def test_a_response_without_a_request_leaves_the_others_alone() -> None:
    exchange = exchange_with(Lose(api=ApiKey.METADATA))
    exchange.requests.feed(metadata(2))
    assert exchange.responses.feed(metadata_response(7)) == [metadata_response(7)]
    assert exchange.responses.feed(metadata_response(2)) == [Ending.CLOSE]


def test_requests_without_a_response_are_dropped_in_the_end() -> None:
    exchange = exchange_with(Lose(api=ApiKey.METADATA))
    exchange.requests.feed(metadata(0))
    for correlation_id in range(1, IN_FLIGHT_COUNT_MAX + 1):
        exchange.requests.feed(api_versions(correlation_id))
    assert exchange.responses.feed(metadata_response(0)) == [metadata_response(0)]


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


def test_a_rate_is_kept_whatever_the_pace_of_calls() -> None:
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


def test_it_returns_when_the_rate_allows_more() -> None:
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
