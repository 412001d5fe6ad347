"""Timeouts and closed connections, and their errors and messages."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from pykclient.errors import (
    AuthenticationError,
    ConnectionFailedError,
    DecodeError,
    DisconnectedError,
    KafkaError,
    KafkaTimeoutError,
)
from pykclient.network.broker.errors import UNREACHED_CURE, both, grouped
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.message import encode_response
from pykclient.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.types import Node
from tests.network.scripted_network import BOOTSTRAP, BROKERS, ScriptedNetwork

if TYPE_CHECKING:
    from pykclient.protocol.message import Message


# Timeouts.


@pytest.mark.promise("a request times out")
def test_an_overdue_request_times_out_and_takes_the_connection_with_it(
    network: ScriptedNetwork,
) -> None:
    peer = network.make_ready(1)
    late, lost = network.send(1, timeout_ms=1_000), network.write(1, timeout_ms=2_000)
    network.turn(1_000)
    assert isinstance(late.error, KafkaTimeoutError)
    assert isinstance(lost.error, DisconnectedError)
    assert peer.is_closed()
    assert network.client.is_unavailable(1, network.now_ms)


@pytest.mark.promise("a request times out")
@pytest.mark.parametrize(
    ("options", "allowed_ms"),
    [
        ({}, 700),
        ({"timeout_ms": 1_000}, 1_000),
        ({"timeout_ms": 10_000, "held_ms": 20_000}, 30_000),
    ],
)
def test_a_request_has_the_time_of_its_own_or_of_the_setting_and_what_it_may_be_held_back(
    options: dict[str, int], allowed_ms: int
) -> None:
    network = ScriptedNetwork(*BROKERS, request_timeout_ms=700)
    network.make_ready(1)
    completion = network.write(1, **options)
    assert network.turn(allowed_ms - 1) == network.now_ms + 1
    assert not completion.is_done()
    network.turn(1)
    assert str(completion.error) == (
        f"broker-1:9092 (id 1) did not respond to METADATA within {allowed_ms} ms; it is "
        f"overloaded or unreachable; if it needs longer, raise request_timeout_ms"
    )


def test_a_response_in_time_ends_the_waiting(network: ScriptedNetwork) -> None:
    peer = network.make_ready(1)
    completion = network.write(1, timeout_ms=1_000)
    peer.respond(MetadataResponse())
    network.turn(999)
    assert completion.response is not None
    network.turn(10)
    assert not peer.is_closed()


def test_a_request_that_no_broker_takes_times_out_with_the_reasons() -> None:
    network = ScriptedNetwork(bootstrap=BOOTSTRAP[:2])
    completion = network.write(timeout_ms=300)
    network.refuse()
    network.turn()
    network.turn(300)
    assert isinstance(completion.error, KafkaTimeoutError)
    text = str(completion.error)
    assert text.startswith("no broker accepted the METADATA request within 300 ms: ")
    assert f"cannot connect to {network.port.peers[0].host}:9092: refused" in text
    second = network.port.peers[1].host
    assert f"bootstrap server {second}:9092 has not accepted" in text


def test_a_request_that_its_broker_does_not_take_times_out_with_the_reason(
    network: ScriptedNetwork,
) -> None:
    completion = network.write(1, timeout_ms=300)
    network.turn(300)
    assert str(completion.error) == (
        "broker 1 did not accept the METADATA request within 300 ms: broker-1:9092 (id 1) has not "
        "accepted the connection yet"
    )


def test_a_connection_that_is_never_accepted_is_given_up_and_tried_again(
    network: ScriptedNetwork,
) -> None:
    completion = network.send(1, timeout_ms=100_000)
    deadline_ms = network.turn()
    setup_ms = network.turn() - network.now_ms
    assert deadline_ms <= network.now_ms + setup_ms
    assert 8_000 <= setup_ms <= 12_000
    network.turn(setup_ms)
    assert isinstance(completion.error, ConnectionFailedError)
    assert f"broker-1:9092 (id 1) did not accept a connection within {setup_ms} ms" in str(
        completion.error
    )
    assert "socket_connection_setup_timeout_ms" in str(completion.error)
    network.send(1)
    network.turn(60)
    assert len(network.port.peers) == 2


def test_a_handshake_that_is_never_responded_to_is_given_up_with_the_cure() -> None:
    network = ScriptedNetwork(*BROKERS, request_timeout_ms=5_000)
    network.client.connect(1, network.now_ms)
    network.peer.accept()
    network.turn()
    assert network.turn() == network.now_ms + 5_000
    network.turn(5_000)
    text = network.client.describe_failures()
    assert "did not respond to the Kafka handshake within 5000 ms" in text
    assert "security_protocol" in text


@pytest.mark.parametrize(
    ("prepare_count", "after_ms", "is_late"),
    [(0, 4_999, False), (0, 5_000, True), (3, 5_000, True)],
)
def test_time_without_a_driver_does_not_count_but_for_a_second(
    network: ScriptedNetwork, prepare_count: int, after_ms: int, is_late: bool
) -> None:
    # A consumer processes records outside poll, with its next fetch in flight. A group may make
    # several steps before anything waits.
    peer = network.make_ready(1)
    completion = network.send(1, timeout_ms=10_000)
    network.turn(4_000)
    network.now_ms += 600_000
    for _ in range(prepare_count):
        network.client.prepare(network.now_ms)
    network.turn(after_ms)
    assert peer.is_closed() is is_late
    if is_late:
        assert isinstance(completion.error, KafkaTimeoutError)
    else:
        network.respond(peer)
        assert completion.response is not None


@pytest.mark.parametrize("absence_ms", [200, 1_000, 60_000])
def test_a_broker_that_never_responds_is_given_up_however_rarely_it_is_driven(
    network: ScriptedNetwork, absence_ms: int
) -> None:
    network.make_ready(1)
    completion = network.send(1, timeout_ms=10_000)
    turn_count = 0
    while not completion.is_done():
        network.turn()
        network.now_ms += absence_ms
        turn_count += 1
        assert turn_count <= 10_000 // min(absence_ms, 1_000) + 1
    assert isinstance(completion.error, KafkaTimeoutError)


def test_a_response_that_lies_unread_is_read_before_its_request_is_given_up(
    network: ScriptedNetwork,
) -> None:
    peer = network.make_ready(1)
    completion = network.write(1, timeout_ms=1_000)
    peer.respond(MetadataResponse())
    network.turn(1_000)
    assert completion.response is not None


def test_what_waited_to_be_written_still_gives_the_broker_its_whole_time(
    network: ScriptedNetwork,
) -> None:
    completion = network.write(1, timeout_ms=10_000)
    network.turn(7_000)
    assert len(network.shake_hands().requests) == 1
    network.turn(9_999)
    assert not completion.is_done()
    network.turn(1)
    assert "within 10000 ms" in str(completion.error)


def test_an_absence_uses_up_the_time_of_no_attempt_and_of_no_request_that_waits(
    network: ScriptedNetwork,
) -> None:
    # The name was looked up without a driver; the connection starts only now.
    completion = network.write(1, timeout_ms=10_000)
    network.now_ms += 600_000
    network.turn()
    assert not network.peer.is_closed()
    assert not completion.is_done()
    network.peer.accept()
    network.turn()
    network.now_ms += 600_000
    network.turn()
    network.peer.respond_versions()
    network.serve()
    assert completion.response is not None
    assert len(network.port.peers) == 1


def test_an_attempt_that_cannot_even_begin_has_failed_and_the_next_one_may_succeed(
    network: ScriptedNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    completion = network.send(1)
    with monkeypatch.context() as limits:
        limits.setattr(network.port, "open", None)  # which cannot be called
        limits.setattr(network.port, "close", lambda _: None)
        assert network.client.prepare(network.now_ms) == network.now_ms
        network.client.complete(network.now_ms)
    assert isinstance(completion.error, ConnectionFailedError)
    assert "no connection to broker-1:9092 (id 1) could be opened: TypeError" in str(
        completion.error
    )
    network.turn(300)
    network.make_ready(1)


def test_what_is_waited_for_is_reported_to_another_thread_while_the_driver_goes_on(
    network: ScriptedNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = network.make_ready(1)
    network.write(1)

    class InTheMiddle(MetadataRequest):
        """A message that lets the driver continue whenever its name is looked up."""

        @property
        def api_key(self) -> ApiKey:  # type: ignore[override]
            network.write(1)
            return ApiKey.METADATA

    [entry] = network.client._connections[1]._in_flight
    monkeypatch.setattr(entry.request, "message", InTheMiddle())
    assert "has not responded to METADATA yet" in network.client.describe_failures()
    assert len(peer.requests) == 2


# Losing a connection.


def test_a_connection_that_never_was_is_not_called_lost(
    network: ScriptedNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    network.client.connect(1, network.now_ms)
    network.refuse()
    network.turn(1_000)
    network.make_ready(1).hang_up()
    network.turn()
    assert caplog.messages == ["[test] could not connect to broker-1:9092 (id 1): refused"]
    caplog.clear()
    caplog.set_level(logging.INFO)
    network.now_ms += 60_000
    network.make_ready(1).hang_up()
    network.turn()
    again, lost = caplog.messages
    assert "[test] lost the connection to broker-1:9092 (id 1): " in lost
    assert again == "[test] connected again to broker-1:9092 (id 1)"


@pytest.mark.parametrize("error", [AuthenticationError("refused"), DisconnectedError("reset")])
def test_a_node_that_refuses_after_it_was_lost_for_the_same_reason_is_a_warning_at_once(
    error: KafkaError, network: ScriptedNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    """A later authentication that is refused ends a connection, and the next ones."""
    caplog.set_level(logging.INFO)
    network.make_ready(1)
    network.client._connections[1].failure = error
    network.turn()
    for _ in range(20):
        network.turn(1_100)
        network.client.connect(1, network.now_ms)
        network.client._connections[1].failure = error
        network.turn()
    levels = [(each.levelname, each.getMessage()) for each in caplog.records]
    lost, refused = levels
    assert lost == ("INFO", f"[test] lost the connection to broker-1:9092 (id 1): {error}")
    assert refused == ("WARNING", f"[test] could not connect to broker-1:9092 (id 1): {error}")
    assert network.client.refusal() is (error if error.is_refusal else None)


def test_everything_in_flight_or_queued_fails_with_the_connection() -> None:
    network = ScriptedNetwork(*BROKERS, in_flight_max=2)
    peer = network.make_ready(1)
    completions = [network.send(1) for _ in range(4)]
    elsewhere = network.write(2)
    peer.hang_up()
    network.turn()
    assert all(isinstance(completion.error, DisconnectedError) for completion in completions)
    assert not elsewhere.is_done()
    assert peer.is_closed()


def test_a_lost_connection_requests_metadata(network: ScriptedNetwork) -> None:
    [request] = network.metadata.poll(network.now_ms).requests
    request.on_response(MetadataResponse(), network.now_ms)
    network.update_brokers(*BROKERS)
    fresh_until_ms = network.client.metadata_due_ms()
    peer = network.make_ready(1)
    peer.hang_up()
    network.turn()
    assert network.client.metadata_due_ms() < fresh_until_ms


@pytest.mark.parametrize(
    "data",
    [
        bytes(encode_response(MetadataResponse(), 12, 99)),
        b"\x00\x00\x00\x05\x00\x00\x00\x01Z",
        b"\xff\xff\xff\xff",
    ],
    ids=["unasked", "unreadable", "oversized"],
)
def test_bytes_that_cannot_be_read_end_the_connection_but_the_request_may_be_tried_again(
    network: ScriptedNetwork, data: bytes
) -> None:
    peer = network.make_ready(1)
    completion = network.write(1)
    peer.feed(data)
    network.turn()
    assert isinstance(completion.error, DisconnectedError)
    assert completion.error.retriable
    assert isinstance(completion.error.__cause__, DecodeError)
    text = str(completion.error)
    assert "the connection to broker-1:9092 (id 1) was closed: broker-1:9092" in text
    assert peer.is_closed()


def test_a_response_that_contradicts_its_request_ends_the_connection_as_well(
    network: ScriptedNetwork,
) -> None:
    seen: list[Message] = []

    def check(response: Message) -> None:
        seen.append(response)
        if len(seen) == 2:
            raise DecodeError("names another topic")

    peer = network.make_ready(1)
    good, *completions = [
        network.send(1, check=check),
        network.send(1, check=check),
        network.write(1),
    ]
    network.respond(peer)
    network.respond(peer)
    assert good.response is seen[0]
    for completion in completions:
        assert isinstance(completion.error, DisconnectedError)
        assert completion.error.retriable
        assert "sent malformed data: names another topic" in str(completion.error)
    assert peer.is_closed()


def test_responses_before_the_end_are_delivered(network: ScriptedNetwork) -> None:
    peer = network.make_ready(1)
    served, lost = network.send(1), network.write(1)
    peer.respond(MetadataResponse())
    peer.hang_up()
    network.turn()
    assert served.response is not None
    assert isinstance(lost.error, DisconnectedError)


def test_a_peer_that_sends_before_a_request_and_hangs_up_is_no_broker(
    network: ScriptedNetwork,
) -> None:
    network.client.connect(1, network.now_ms)
    versions = ApiVersionsResponse(api_keys=[ApiVersion(3, 0, 12)])
    network.peer.accept()
    network.peer.feed(bytes(encode_response(versions, 4, 0)))
    network.peer.hang_up()
    network.turn()
    assert not network.client.is_ready(1, network.now_ms)
    assert "closed the connection" in network.client.describe_failures()


# Reconnecting.


@pytest.mark.promise("reconnects back off, exponentially and with jitter")
def test_a_node_that_refuses_is_tried_again_after_its_back_off(network: ScriptedNetwork) -> None:
    completion = network.write(1)
    network.refuse()
    assert isinstance(completion.error, ConnectionFailedError)
    again = network.send(1)
    deadline_ms = network.turn()
    assert len(network.port.peers) == 1
    assert network.client.next_ready_ms(1, network.now_ms) == deadline_ms
    network.turn(deadline_ms - network.now_ms)
    assert len(network.port.peers) == 2
    assert network.peer.attempt == 1, "the host's next address comes first"
    assert not again.is_done()


@pytest.mark.parametrize("shakes_hands", [False, True])
def test_a_peer_that_hangs_up_is_tried_at_most_five_times_a_second(
    network: ScriptedNetwork, shakes_hands: bool
) -> None:
    attempts_ms: list[int] = []
    for _ in range(3_000):
        network.client.connect(1, network.now_ms)
        if len(network.port.peers) > len(attempts_ms):
            attempts_ms.append(network.now_ms)
            network.peer.accept()
            network.turn()
            if shakes_hands:
                network.peer.respond_versions()
            network.peer.hang_up()
        network.turn(1)
    windows = [sum(ms <= other < ms + 1_000 for other in attempts_ms) for ms in attempts_ms]
    assert max(windows) <= 5
    assert len(attempts_ms) >= 5, "it goes on trying"


# Messages.


def test_the_last_error_of_a_node_is_listed_until_it_is_reached(network: ScriptedNetwork) -> None:
    assert network.client.last_error(1) is None
    network.client.connect(1, network.now_ms)
    network.refuse()
    assert isinstance(network.client.last_error(1), ConnectionFailedError)
    network.turn(1_000)
    network.client.connect(1, network.now_ms)
    assert network.client.describe_failures() == (
        f"cannot connect to broker-1:9092: refused; {UNREACHED_CURE}"
    )
    network.shake_hands()
    assert network.client.last_error(1) is None
    assert network.client.describe_failures() == ""


def test_each_broker_in_trouble_is_reported_with_its_reason(network: ScriptedNetwork) -> None:
    network.client.connect(1, network.now_ms)
    network.refuse()
    network.client.connect(2, network.now_ms)
    network.make_ready(3)
    network.write(3)
    assert network.client.describe_failures() == (
        "cannot connect to broker-1:9092: refused; "
        "broker-2:9092 (id 2) has not accepted the connection yet; "
        f"broker-3:9092 (id 3) has not responded to METADATA yet; {UNREACHED_CURE}"
    )


def test_a_bad_metadata_response_is_reported(network: ScriptedNetwork) -> None:
    [request] = network.metadata.poll(network.now_ms).requests
    request.on_failure(DecodeError("broker 1: it is at port 0"), network.now_ms)
    assert network.client.describe_failures() == (
        "the last metadata update failed: broker 1: it is at port 0"
    )


def test_a_reason_of_both_a_broker_and_the_metadata_is_reported_once(
    network: ScriptedNetwork,
) -> None:
    network.make_ready(3)
    network.write(3)
    (trouble,) = network.client.describe_failures().split("; ")
    [request] = network.metadata.poll(network.now_ms).requests
    request.on_failure(DisconnectedError(trouble), network.now_ms)
    assert network.client.describe_failures() == trouble
    assert both(trouble, trouble) == both("", trouble) == both(trouble, "") == trouble
    assert both("moved", trouble) == f"moved; {trouble}"


def test_a_large_cluster_that_is_down_is_described_in_one_short_message() -> None:
    network = ScriptedNetwork(*(Node(number, f"broker-{number}", 9092) for number in range(100)))
    for number in range(100):
        network.client.connect(number, network.now_ms)
        network.refuse()
    text = network.client.describe_failures()
    assert text.count("refused") == 8
    assert text.endswith(f"; and 92 more; {UNREACHED_CURE}")


def test_a_reason_that_several_nodes_have_is_told_once() -> None:
    """E.g. a password that every broker rejects."""
    nodes = [Node(number, f"broker-{number}", 9092) for number in range(5)]
    refused = [(node, f"{node}: no such user") for node in nodes]
    expired = [(node, f"{node.host}:{node.port}: has expired") for node in nodes[:2]]
    waiting = [(node, f"{node} has not responded yet") for node in nodes[:2]]
    assert grouped([*refused, *expired, *waiting]) == [
        "broker-0:9092 (id 0), broker-1:9092 (id 1), broker-2:9092 (id 2) and 2 more: no such user",
        "broker-0:9092, broker-1:9092: has expired",
        "broker-0:9092 (id 0) has not responded yet",
        "broker-1:9092 (id 1) has not responded yet",
    ]
