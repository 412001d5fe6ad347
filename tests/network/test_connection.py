"""A connection matches responses to requests, and closes if its peer violates the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.admin.config import AdminConfig
from pykclient.errors import (
    DecodeError,
    DisconnectedError,
    FrameTooLargeError,
    TlsError,
)
from pykclient.network.broker import connection
from pykclient.network.broker.connection import (
    HANDSHAKE_BYTES_MAX,
    SUSPECT_MS,
    THROTTLE_MS_MAX,
    Connection,
    ConnectionState,
)
from pykclient.network.manager import NEVER_MS, Request
from pykclient.protocol.message import encode_response
from pykclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from pykclient.types import Node
from tests.network.scripted_network import Completion
from tests.network.scripted_port import ScriptedPeer, ScriptedPort

if TYPE_CHECKING:
    from pykclient.protocol.message import Message

NODE = Node(1, "broker", 9092)
NOW_MS = 1_000
RECEIVE_MAX_BYTES = 100_000
PIECES = [None, 1, 3]


class Line:
    """A connection and its scripted peer."""

    def __init__(self, receive_max_bytes: int = RECEIVE_MAX_BYTES) -> None:
        self.port = ScriptedPort()
        config = AdminConfig.from_settings(
            bootstrap_servers="boot:9092", client_id="me", receive_max_bytes=receive_max_bytes
        )
        self.connection = Connection(NODE, self.port, config, NOW_MS)
        self.connection.open(0)
        self.peer: ScriptedPeer = self.port.peers[0]

    def make_ready(self) -> None:
        self.accept()
        self.peer.respond_versions()
        assert self.take() == []
        assert self.connection.state is ConnectionState.READY

    def accept(self) -> None:
        self.peer.accept()
        self.port.wait(0)
        self.connection.begin_handshake(deadline_ms=NOW_MS + 30_000)

    def send(self, *, expects_response: bool = True, deadline_ms: int = NEVER_MS) -> Request:
        completion = Completion()
        request = Request(
            MetadataRequest(),
            1,
            completion.on_response,
            completion.on_failure,
            expects_response=expects_response,
        )
        request.deadline_ms = deadline_ms
        self.connection.send(request, NOW_MS)
        return request

    def take(self, now_ms: int = NOW_MS) -> list[tuple[Request, Message]]:
        self.port.wait(0)
        return self.connection.take_responses(now_ms)


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def ready() -> Line:
    line = Line()
    line.make_ready()
    return line


# Opening.


def test_the_handshake_is_the_first_thing_that_is_sent(line: Line) -> None:
    line.accept()
    assert line.connection.state is ConnectionState.HANDSHAKING
    [received] = line.peer.requests
    assert received.header.client_id == "me"
    assert received.message.api_key.name == "API_VERSIONS"
    assert line.connection.next_deadline_ms() == NOW_MS + 30_000


def test_a_refused_version_is_tried_again_in_another(line: Line) -> None:
    line.accept()
    line.peer.respond_versions({}, error_code=35, respond_version=0)
    assert line.take() == []
    assert line.peer.requests[0].header.api_version == 0
    assert line.connection.versions is None
    line.peer.respond_versions()
    line.take()
    assert line.connection.state is ConnectionState.READY


# Requests and responses.


@pytest.mark.parametrize("piece_bytes", PIECES)
def test_responses_come_with_their_requests_in_order_however_the_bytes_are_cut(
    ready: Line, piece_bytes: int | None
) -> None:
    requests = [ready.send() for _ in range(3)]
    for number in range(3):
        ready.peer.respond(MetadataResponse(controller_id=number), piece_bytes=piece_bytes)
    responded: list[tuple[Request, Message]] = []
    while len(responded) < 3:
        responded += ready.take()
    assert [request for request, _ in responded] == requests
    assert [getattr(m, "controller_id", None) for _, m in responded] == [0, 1, 2]
    assert ready.connection.in_flight_count == 0


def test_correlation_ids_count_up_over_handshake_and_requests(line: Line) -> None:
    line.accept()
    handshake_id = line.peer.requests[0].header.correlation_id
    line.peer.respond_versions()
    line.take()
    line.send()
    line.send()
    sent = [received.header.correlation_id for received in line.peer.requests]
    assert [handshake_id, *sent] == [0, 1, 2]


def test_correlation_ids_start_over_after_the_largest(
    ready: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CORRELATION_ID_LIMIT", 3)
    for _ in range(3):  # the handshake's was 0
        ready.send()
    assert [sent.header.correlation_id for sent in ready.peer.requests] == [1, 2, 0]


def test_the_time_until_it_is_suspect_counts_from_the_last_response_on(ready: Line) -> None:
    ready.send()
    ready.send()
    ready.peer.respond(MetadataResponse())
    ready.take(now_ms=2_000)
    assert ready.connection.suspect_ms() == 2_000 + SUSPECT_MS


def test_a_large_response_is_taken_whole(ready: Line) -> None:
    ready.send()
    names = [letter * 30_000 for letter in "abc"]  # in all beyond the buffer for small frames
    ready.peer.respond(MetadataResponse(topics=[MetadataResponseTopic(name=n) for n in names]))
    [(_, response)] = ready.take()
    assert isinstance(response, MetadataResponse)
    assert [topic.name for topic in response.topics] == names


# Throttling (KIP-219).


@pytest.mark.parametrize("later_ms", [-5, 300])
def test_a_later_response_does_not_shorten_the_throttling(ready: Line, later_ms: int) -> None:
    for throttle_ms in (700, later_ms):
        ready.send()
        ready.peer.respond(MetadataResponse(throttle_time_ms=throttle_ms))
    ready.take(now_ms=2_000)
    assert ready.connection.throttled_until_ms == 2_700


@pytest.mark.parametrize("throttle_ms", [THROTTLE_MS_MAX + 1, 2**31 - 1])
def test_no_broker_throttles_us_for_longer_than_the_limit(ready: Line, throttle_ms: int) -> None:
    ready.send()
    ready.peer.respond(MetadataResponse(throttle_time_ms=throttle_ms))
    ready.take(now_ms=2_000)
    assert ready.connection.throttled_until_ms == 2_000 + THROTTLE_MS_MAX


# Peers that violate the protocol.


def test_a_response_that_was_not_requested_ends_it(ready: Line) -> None:
    ready.peer.feed(bytes(encode_response(MetadataResponse(), 12, 5)))
    assert ready.take() == []
    assert isinstance(ready.connection.failure, DecodeError)
    assert "broker:9092 (id 1)" in str(ready.connection.failure)
    assert "correlation id 5 came while none is due" in str(ready.connection.failure)


def test_a_response_out_of_turn_ends_it_and_leaves_the_requests_in_flight(ready: Line) -> None:
    requests = [ready.send(), ready.send()]
    ready.peer.requests.popleft()
    ready.peer.respond(MetadataResponse())
    assert ready.take() == []
    assert "correlation id 2 came while 1 is due" in str(ready.connection.failure)
    assert ready.connection.take_in_flight() == requests


def test_a_response_that_cannot_be_read_ends_it_and_leaves_its_request_in_flight(
    ready: Line,
) -> None:
    request = ready.send()
    ready.peer.feed(b"\x00\x00\x00\x06" + b"\x00\x00\x00\x01" + b"\xff\xff")
    assert ready.take() == []
    text = str(ready.connection.failure)
    assert text.startswith("broker:9092 (id 1) sent malformed data: MetadataResponse")
    assert "Kafka listener" not in text  # it has proved that it is one
    assert ready.connection.take_in_flight() == [request]


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP server"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "its listener is SSL or SASL_SSL"),
        (b"\xff\xff\xff\xff", "a frame of -1 bytes"),
        (b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes"),
    ],
)
def test_a_size_that_no_response_has_ends_it(line: Line, data: bytes, what: str) -> None:
    line.accept()
    line.peer.feed(data)
    assert line.take() == []
    is_tls = data.startswith(b"\x15")
    assert isinstance(line.connection.failure, TlsError if is_tls else FrameTooLargeError)
    assert str(line.connection.failure).startswith("broker:9092 (id 1): ")
    assert what in str(line.connection.failure)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x04\x00\x00\x00\x09",
        b"\x00\x00\x00\x05\x00\x00\x00\x00Z",
    ],
)
def test_nonsense_in_the_handshake_suggests_that_it_is_not_kafka(line: Line, data: bytes) -> None:
    line.accept()
    line.peer.feed(data)
    line.take()
    assert isinstance(line.connection.failure, DecodeError)
    text = str(line.connection.failure)
    assert text.startswith("broker:9092 (id 1) sent malformed data: ")
    assert "is it a Kafka listener, of this security_protocol" in text


def test_after_a_failure_bytes_are_dropped_and_no_other_failure_counts(ready: Line) -> None:
    ready.peer.feed((RECEIVE_MAX_BYTES + 1).to_bytes(4))
    ready.port.wait(0)
    failure = ready.connection.failure
    assert f"the limit is {RECEIVE_MAX_BYTES} (receive_max_bytes" in str(failure)
    ready.peer.feed(b"\x00" * 200_000)
    ready.peer.hang_up()
    assert ready.take() == []
    assert ready.connection.failure is failure


# Closing.


@pytest.mark.parametrize("is_accepted", [True, False])
def test_hanging_up_in_the_handshake_suggests_that_it_is_not_kafka(
    line: Line, is_accepted: bool
) -> None:
    if is_accepted:
        line.accept()
    else:
        line.peer.accept()
    line.peer.hang_up()
    line.port.wait(0)
    failure = line.connection.failure
    assert isinstance(failure, DisconnectedError)
    assert "accepted the connection but hung up during the Kafka handshake" in str(failure)
    assert "security_protocol" in str(failure)
    assert str(failure.__cause__) == "broker:9092 closed the connection"


def test_hanging_up_on_the_first_request_suggests_sasl(ready: Line) -> None:
    ready.send()
    ready.peer.hang_up()
    ready.port.wait(0)
    assert "does its listener require SASL? Check security_protocol" in str(
        ready.connection.failure
    )


def test_hanging_up_later_is_a_lost_connection(ready: Line) -> None:
    ready.send()
    ready.peer.respond(MetadataResponse())
    assert len(ready.take()) == 1
    ready.send()
    ready.peer.hang_up()
    ready.port.wait(0)
    assert str(ready.connection.failure) == "broker:9092 closed the connection"


def test_a_response_of_the_handshake_is_small() -> None:
    """Even if `receive_max_bytes` allows more for a verified broker."""
    line = Line(receive_max_bytes=100_000_000)
    line.accept()
    line.peer.feed((HANDSHAKE_BYTES_MAX + 1).to_bytes(4))
    line.take()
    assert f"a frame of {HANDSHAKE_BYTES_MAX + 1} bytes" in str(line.connection.failure)
    ready = Line(receive_max_bytes=100_000_000)
    ready.make_ready()
    ready.peer.feed((HANDSHAKE_BYTES_MAX + 1).to_bytes(4))
    ready.take()
    assert ready.connection.failure is None


def test_what_it_waits_for_is_reported(line: Line) -> None:
    assert line.connection.describe_wait() == (
        "broker:9092 (id 1) has not accepted the connection yet"
    )
    line.accept()
    assert (
        "has not responded to the Kafka handshake yet; is it a" in line.connection.describe_wait()
    )
    line.peer.respond_versions()
    line.take()
    assert line.connection.describe_wait() == ""
    line.send()
    line.send()
    assert line.connection.describe_wait() == "broker:9092 (id 1) has not responded to METADATA yet"


def test_a_response_to_a_request_that_needs_none_is_dropped_and_counts_once(ready: Line) -> None:
    # Azure Event Hubs responds to Produce with acks=0, too.
    ready.send(expects_response=False)
    request = ready.send()
    unneeded = ready.peer.requests[0]
    ready.peer.respond(MetadataResponse())
    assert ready.take() == []
    ready.peer.respond(MetadataResponse())
    [(taken, _)] = ready.take()
    assert taken is request
    header = unneeded.header
    again = encode_response(MetadataResponse(), header.api_version, header.correlation_id)
    ready.peer.feed(bytes(again))
    ready.take()
    assert isinstance(ready.connection.failure, DecodeError)


def test_its_failure_keeps_nothing_of_the_call_in_which_it_was_found(ready: Line) -> None:
    """A kept traceback holds the application's frames, and a loop that it has left."""
    ready.send()
    ready.peer.feed(b"\x00\x00\x00\x06" + b"\x00\x00\x00\x01" + b"\xff\xff")
    ready.take()
    found: BaseException | None = ready.connection.failure
    while found is not None:
        assert found.__traceback__ is None
        found = found.__cause__ or found.__context__
