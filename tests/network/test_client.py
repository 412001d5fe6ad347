"""The client connects, writes, expires and gives up, each at its time; time is a number here."""

from __future__ import annotations

import pytest

from pykclient.errors import (
    ConnectionFailedError,
    DecodeError,
    DisconnectedError,
    KafkaTimeoutError,
    UnsupportedVersionError,
)
from pykclient.network.client import STAGGER_MS, NetworkClient
from pykclient.network.manager import NEVER_MS
from pykclient.network.metadata import Metadata
from pykclient.producer.config import ProducerConfig
from pykclient.protocol.message import encode_response
from pykclient.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.protocol.messages.produce import ProduceRequest
from pykclient.types import Node
from tests.network.scripted_network import BOOTSTRAP, BROKERS, ScriptedNetwork
from tests.network.scripted_port import ScriptedPort

TOO_OLD = {3: (0, 1)}


@pytest.fixture
def network() -> ScriptedNetwork:
    """One bootstrap address, three brokers."""
    network = ScriptedNetwork()
    network.know(*BROKERS)
    return network


# The way of a request.


def test_a_request_to_a_node_connects_shakes_hands_and_is_answered(
    network: ScriptedNetwork,
) -> None:
    outcome = network.send(2)
    network.turn()
    assert (network.peer.host, network.peer.port) == BROKERS[1].address
    network.peer.accept()
    network.turn()
    network.peer.answer_versions()
    network.turn()
    network.turn()
    network.peer.answer(MetadataResponse(cluster_id="c"))
    network.turn(5)
    assert isinstance(outcome.response, MetadataResponse)
    assert outcome.response.cluster_id == "c"
    assert outcome.done_ms == network.now_ms


def test_send_calls_nobody_back(network: ScriptedNetwork) -> None:
    outcome = network.send(77)
    assert not outcome.is_done()
    network.turn()
    assert outcome.is_done()


def test_requests_to_one_node_are_written_in_order(network: ScriptedNetwork) -> None:
    peer = network.make_ready(1)
    messages = [MetadataRequest(include_topic_authorized_operations=n % 2 == 0) for n in range(4)]
    for message in messages:
        network.send(1, message=message)
    network.turn()
    assert [received.message for received in peer.requests] == messages


def test_a_request_to_an_unknown_node_fails_and_says_so(network: ScriptedNetwork) -> None:
    outcome = network.send(77)
    network.turn()
    assert isinstance(outcome.error, ConnectionFailedError)
    assert outcome.error.retriable
    assert "broker 77 is not in the metadata" in str(outcome.error)


def test_a_version_that_the_broker_lacks_fails_the_request_alone(network: ScriptedNetwork) -> None:
    peer = network.make_ready(1)
    bad = network.send(1, max_version=-1)
    good = network.send(1)
    network.turn()
    assert isinstance(bad.error, UnsupportedVersionError)
    peer.answer(MetadataResponse())
    network.turn()
    assert good.response is not None


def test_a_cap_on_the_version_holds(network: ScriptedNetwork) -> None:
    peer = network.make_ready(1)
    network.send(1, max_version=10)
    network.turn()
    assert peer.requests[0].header.api_version == 10


# acks=0.


def test_a_request_without_an_answer_is_done_without_any_event(network: ScriptedNetwork) -> None:
    network.make_ready(1)
    outcome = network.send(1, message=ProduceRequest(acks=0), expects_response=False)
    deadline_ms = network.client.prepare(network.now_ms)
    assert deadline_ms == network.now_ms, "nothing would ever end a wait"
    network.client.complete(network.now_ms)
    assert outcome.is_done()
    assert outcome.response is None
    assert outcome.error is None


def test_a_request_without_an_answer_is_done_once_the_system_took_it(
    network: ScriptedNetwork,
) -> None:
    peer = network.make_ready(1)
    peer.takes_bytes = False
    outcome = network.send(1, expects_response=False)
    network.turn()
    assert not outcome.is_done()
    peer.unsent_bytes = 0
    network.turn()
    assert outcome.is_done()
    assert outcome.error is None


def test_a_request_without_an_answer_fails_with_its_stream(network: ScriptedNetwork) -> None:
    peer = network.make_ready(1)
    peer.takes_bytes = False
    outcome = network.send(1, expects_response=False)
    network.turn()
    peer.hang_up()
    network.turn()
    assert isinstance(outcome.error, DisconnectedError)


# Being ready.


def test_readiness_follows_the_connection(network: ScriptedNetwork) -> None:
    client = network.client
    assert not client.is_ready(1, network.now_ms)
    client.connect(1, network.now_ms)
    assert not client.is_ready(1, network.now_ms)
    peer = network.peer
    peer.accept()
    network.turn()
    assert not client.is_ready(1, network.now_ms)
    peer.answer_versions()
    network.turn()
    assert client.is_ready(1, network.now_ms)
    peer.hang_up()
    network.turn()
    assert not client.is_ready(1, network.now_ms)
    assert client.is_unavailable(1, network.now_ms)


def test_a_queued_request_makes_a_node_busy_for_others(network: ScriptedNetwork) -> None:
    network.make_ready(1)
    network.send(1)
    assert not network.client.is_ready(1, network.now_ms)


def test_the_in_flight_limit_holds_and_the_rest_waits() -> None:
    network = ScriptedNetwork(in_flight_max=2)
    network.know(*BROKERS)
    peer = network.make_ready(1)
    outcomes = [network.send(1) for _ in range(3)]
    network.turn()
    assert len(peer.requests) == 2
    assert network.client.in_flight_count(1) == network.client.in_flight_count() == 3
    assert network.client.next_ready_ms(1, network.now_ms) == NEVER_MS
    peer.answer(MetadataResponse())
    network.turn()
    network.turn()
    assert len(peer.requests) == 2
    assert [outcome.is_done() for outcome in outcomes] == [True, False, False]


def test_connecting_twice_opens_once(network: ScriptedNetwork) -> None:
    network.client.connect(1, network.now_ms)
    network.client.connect(1, network.now_ms)
    network.make_ready(2)
    network.client.connect(2, network.now_ms)
    assert len(network.port.peers) == 2


def test_connecting_to_an_unknown_node_does_nothing_and_metadata_will_tell(
    network: ScriptedNetwork,
) -> None:
    network.client.connect(77, network.now_ms)
    assert network.port.peers == []
    assert network.client.next_ready_ms(77, network.now_ms) == NEVER_MS


def test_the_versions_of_a_node_are_known_after_the_handshake(network: ScriptedNetwork) -> None:
    assert network.client.supported_versions(1, MetadataRequest) is None
    network.make_ready(1)
    assert network.client.supported_versions(1, MetadataRequest) == (
        MetadataRequest.min_version,
        MetadataRequest.max_version,
    )


# Throttling (KIP-219).


def test_a_throttled_node_gets_nothing_until_its_time_is_over(network: ScriptedNetwork) -> None:
    peer = network.make_ready(1)
    network.send(1)
    network.turn()
    peer.answer(MetadataResponse(throttle_time_ms=700))
    network.turn()
    until_ms = network.now_ms + 700
    network.send(1)
    assert network.turn() == until_ms
    assert peer.requests == type(peer.requests)()
    assert not network.client.is_ready(1, network.now_ms)
    assert network.client.next_ready_ms(1, network.now_ms) == until_ms
    network.turn(700)
    assert len(peer.requests) == 1


def test_throttling_without_end_does_not_hold_a_request_beyond_its_time(
    network: ScriptedNetwork,
) -> None:
    peer = network.make_ready(1)
    network.send(1)
    network.turn()
    peer.answer(MetadataResponse(throttle_time_ms=2**31 - 1))
    network.turn()
    outcome = network.send(1, timeout_ms=400)
    assert network.turn() == network.now_ms + 400
    network.turn(400)
    assert isinstance(outcome.error, KafkaTimeoutError)
    assert str(outcome.error) == (
        "broker 1 did not take the METADATA request within 400 ms: the connection is busy or "
        "throttled"
    )


# Time-outs.


def test_an_unanswered_request_times_out_and_takes_the_connection_with_it(
    network: ScriptedNetwork,
) -> None:
    peer = network.make_ready(1)
    late, lost = network.send(1, timeout_ms=1_000), network.send(1, timeout_ms=2_000)
    network.turn()
    assert network.turn(999) == network.now_ms + 1
    assert not late.is_done()
    network.turn(1)
    assert isinstance(late.error, KafkaTimeoutError)
    assert str(late.error) == (
        "broker-1:9092 (id 1) did not answer METADATA within 1000 ms; it is overloaded or out of "
        "reach; if it needs longer, raise request_timeout_ms"
    )
    assert isinstance(lost.error, DisconnectedError)
    assert peer.is_closed()
    assert network.client.is_unavailable(1, network.now_ms)


def test_the_default_time_out_is_the_setting() -> None:
    network = ScriptedNetwork(request_timeout_ms=700)
    network.know(*BROKERS)
    network.make_ready(1)
    outcome = network.send(1)
    network.turn()
    network.turn(700)
    assert "within 700 ms" in str(outcome.error)


def test_an_answer_in_time_ends_the_waiting(network: ScriptedNetwork) -> None:
    peer = network.make_ready(1)
    outcome = network.send(1, timeout_ms=1_000)
    network.turn()
    peer.answer(MetadataResponse())
    network.turn(999)
    assert outcome.response is not None
    network.turn(10)
    assert not peer.is_closed()


def test_a_request_that_no_broker_takes_times_out_with_the_reasons() -> None:
    network = ScriptedNetwork(bootstrap=BOOTSTRAP[:2])
    outcome = network.send(timeout_ms=300)
    network.turn()
    network.peer.refuse()
    network.turn()
    network.turn()
    network.turn(300)
    assert isinstance(outcome.error, KafkaTimeoutError)
    text = str(outcome.error)
    assert text.startswith("no broker took the METADATA request within 300 ms: ")
    assert f"cannot connect to {network.port.peers[0].host}:9092: refused" in text
    second = network.port.peers[1].host
    assert f"{second}:9092 (id {-1 if second == 'boot-a' else -2}) has not accepted" in text


def test_a_request_that_its_broker_does_not_take_times_out_with_the_reason(
    network: ScriptedNetwork,
) -> None:
    outcome = network.send(1, timeout_ms=300)
    network.turn()
    network.turn(300)
    assert str(outcome.error) == (
        "broker 1 did not take the METADATA request within 300 ms: broker-1:9092 (id 1) has not "
        "accepted the connection yet"
    )


def test_a_connection_that_is_never_accepted_is_given_up_and_tried_again(
    network: ScriptedNetwork,
) -> None:
    outcome = network.send(1, timeout_ms=100_000)
    deadline_ms = network.turn()
    setup_ms = network.turn() - network.now_ms
    assert deadline_ms <= network.now_ms + setup_ms
    assert 8_000 <= setup_ms <= 12_000
    network.turn(setup_ms)
    assert isinstance(outcome.error, ConnectionFailedError)
    assert f"broker-1:9092 (id 1) did not accept a connection within {setup_ms} ms" in str(
        outcome.error
    )
    assert "socket_connection_setup_timeout_ms" in str(outcome.error)
    network.send(1)
    network.turn(60)
    assert len(network.port.peers) == 2


def test_a_handshake_that_is_never_answered_is_given_up_with_the_cure() -> None:
    network = ScriptedNetwork(request_timeout_ms=5_000)
    network.know(*BROKERS)
    network.client.connect(1, network.now_ms)
    network.peer.accept()
    network.turn()
    assert network.turn() == network.now_ms + 5_000
    network.turn(5_000)
    text = network.client.describe_failures()
    assert "did not answer the Kafka handshake within 5000 ms" in text
    assert "security protocol PLAINTEXT" in text


# Losing a connection.


def test_everything_in_flight_or_queued_fails_with_the_connection() -> None:
    network = ScriptedNetwork(in_flight_max=2)
    network.know(*BROKERS)
    peer = network.make_ready(1)
    outcomes = [network.send(1) for _ in range(4)]
    elsewhere = network.send(2)
    network.turn()
    peer.hang_up()
    network.turn()
    assert all(isinstance(outcome.error, DisconnectedError) for outcome in outcomes)
    assert not elsewhere.is_done()
    assert peer.is_closed()


def test_a_lost_connection_asks_for_metadata(network: ScriptedNetwork) -> None:
    [request] = network.metadata.poll(network.now_ms).requests
    request.on_response(MetadataResponse(), network.now_ms)
    network.know(*BROKERS)
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
    outcome = network.send(1)
    network.turn()
    peer.feed(data)
    network.turn()
    assert isinstance(outcome.error, DisconnectedError)
    assert outcome.error.retriable
    assert isinstance(outcome.error.__cause__, DecodeError)
    assert "the connection to broker-1:9092 (id 1) was given up: broker-1:9092" in str(
        outcome.error
    )
    assert peer.is_closed()


def test_answers_before_the_end_are_delivered(network: ScriptedNetwork) -> None:
    peer = network.make_ready(1)
    answered, lost = network.send(1), network.send(1)
    network.turn()
    peer.answer(MetadataResponse())
    peer.hang_up()
    network.turn()
    assert answered.response is not None
    assert isinstance(lost.error, DisconnectedError)


def test_a_peer_that_answers_before_it_is_asked_and_hangs_up_is_no_broker(
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


def test_a_node_that_refuses_is_tried_again_after_its_back_off(network: ScriptedNetwork) -> None:
    outcome = network.send(1)
    network.turn()
    network.peer.refuse()
    network.turn()
    assert isinstance(outcome.error, ConnectionFailedError)
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
                network.peer.answer_versions()
            network.peer.hang_up()
        network.turn(1)
    windows = [sum(ms <= other < ms + 1_000 for other in attempts_ms) for ms in attempts_ms]
    assert max(windows) <= 5
    assert len(attempts_ms) >= 5, "it goes on trying"


# Any node.


def test_any_node_means_the_least_loaded(network: ScriptedNetwork) -> None:
    peers = [network.make_ready(node.id) for node in BROKERS]
    network.send(1)
    network.send(2)
    network.turn()
    assert network.client.least_loaded_node(network.now_ms) == BROKERS[2]
    network.send()
    network.turn()
    assert [len(peer.requests) for peer in peers] == [1, 1, 1]


def test_requests_for_any_node_are_spread(network: ScriptedNetwork) -> None:
    peers = [network.make_ready(node.id) for node in BROKERS]
    for _ in range(9):
        network.send()
    network.turn()
    assert [len(peer.requests) for peer in peers] == [3, 3, 3]


def test_bootstrap_addresses_are_tried_beside_each_other_while_one_keeps_us_waiting() -> None:
    network = ScriptedNetwork(bootstrap=BOOTSTRAP)
    outcome = network.send()
    assert network.turn() == network.now_ms + STAGGER_MS
    network.turn(STAGGER_MS - 1)
    assert len(network.port.peers) == 1
    network.turn(1)
    assert len(network.port.peers) == 2
    network.turn(STAGGER_MS)
    assert {peer.host for peer in network.port.peers} == {node.host for node in BOOTSTRAP}
    network.turn(10_000)
    assert len(network.port.peers) == 3
    network.serve()
    assert outcome.response is not None


def test_a_refused_bootstrap_address_gives_way_to_the_next_at_once() -> None:
    network = ScriptedNetwork(bootstrap=BOOTSTRAP)
    network.send()
    for count in range(1, 4):
        network.turn()
        assert len(network.port.peers) == count
        network.peer.refuse()
        network.turn()
    assert {peer.host for peer in network.port.peers} == {node.host for node in BOOTSTRAP}


def test_known_brokers_serve_any_node_and_bootstrap_addresses_do_not(
    network: ScriptedNetwork,
) -> None:
    network.send()
    network.turn(STAGGER_MS)
    network.turn(STAGGER_MS)
    network.turn(STAGGER_MS)
    network.turn(STAGGER_MS)
    assert {peer.host for peer in network.port.peers} == {node.host for node in BROKERS}


def test_when_every_known_broker_is_gone_the_bootstrap_addresses_are_tried_again(
    network: ScriptedNetwork,
) -> None:
    network.send()
    for _ in BROKERS:
        network.turn()
        network.peer.refuse()
        network.turn()
    network.turn()
    assert {peer.host for peer in network.port.peers[:3]} == {node.host for node in BROKERS}
    assert network.port.peers[3].host == BOOTSTRAP[0].host


def test_without_that_strategy_only_known_brokers_are_tried() -> None:
    network = ScriptedNetwork(falls_back_to_bootstrap=False)
    network.know(*BROKERS)
    network.send()
    for _ in range(100):
        network.turn(50)
        network.peer.refuse()
    assert {peer.host for peer in network.port.peers} == {node.host for node in BROKERS}


def test_one_old_broker_does_not_end_it_while_another_may_do() -> None:
    network = ScriptedNetwork(bootstrap=BOOTSTRAP[:2])
    outcome = network.send()
    network.turn()
    network.peer.accept()
    network.turn()
    network.peer.answer_versions(TOO_OLD)
    network.turn()
    assert not outcome.is_done()
    network.turn()
    network.serve()
    assert outcome.response is not None


@pytest.mark.parametrize("old_comes_first", [True, False])
def test_an_old_broker_and_no_other_to_try_is_told_at_once(old_comes_first: bool) -> None:
    network = ScriptedNetwork(bootstrap=BOOTSTRAP[:2])
    outcome = network.send()
    for is_old in (old_comes_first, not old_comes_first):
        network.turn()
        peer = network.peer
        if is_old:
            peer.accept()
            network.turn()
            peer.answer_versions(TOO_OLD)
        else:
            peer.refuse()
        network.turn()
    assert isinstance(outcome.error, UnsupportedVersionError)
    assert "is older than Kafka 2.1" in str(outcome.error)


def test_an_old_broker_fails_what_is_meant_for_it(network: ScriptedNetwork) -> None:
    outcome = network.send(1)
    network.turn()
    network.peer.accept()
    network.turn()
    network.peer.answer_versions(TOO_OLD)
    network.turn()
    assert isinstance(outcome.error, UnsupportedVersionError)


# Brokers that move, and connections that idle.


MOVED = Node(1, "elsewhere", 9093)


def test_a_broker_that_moved_is_left_once_its_answers_are_in(network: ScriptedNetwork) -> None:
    old = network.make_ready(1)
    before = network.send(1)
    network.turn()
    network.know(MOVED)
    network.turn()
    after = network.send(1)
    network.turn()
    assert not network.client.is_ready(1, network.now_ms)
    assert not old.is_closed()
    old.answer(MetadataResponse())
    network.turn()
    assert before.response is not None
    network.turn()
    assert old.is_closed()
    network.turn()
    assert (network.peer.host, network.peer.port) == MOVED.address
    assert not after.is_done()


@pytest.mark.parametrize("is_accepted", [False, True])
def test_an_attempt_at_an_old_address_is_dropped_for_the_new_one(
    network: ScriptedNetwork, is_accepted: bool
) -> None:
    outcome = network.send(1)
    network.turn()
    old = network.peer
    if is_accepted:
        old.accept()
        network.turn()
    network.know(MOVED)
    network.turn()
    assert old.is_closed()
    assert network.peer.host == MOVED.host
    assert not outcome.is_done()


def test_a_broker_that_stays_keeps_its_connection(network: ScriptedNetwork) -> None:
    peer = network.make_ready(1)
    network.know(*BROKERS, Node(4, "broker-4", 9092))
    network.turn()
    assert not peer.is_closed()
    assert network.client.is_ready(1, network.now_ms)


def test_an_idle_connection_is_closed_and_opened_again_when_wanted() -> None:
    network = ScriptedNetwork(idle_max_ms=60_000)
    network.know(*BROKERS)
    peer = network.make_ready(1)
    assert network.turn() == network.now_ms + 60_000
    network.turn(59_999)
    assert not peer.is_closed()
    network.turn(1)
    assert peer.is_closed()
    network.send(1)
    network.turn()
    assert len(network.port.peers) == 2


def test_a_connection_with_an_answer_due_does_not_idle() -> None:
    network = ScriptedNetwork(idle_max_ms=1_000)
    network.know(*BROKERS)
    peer = network.make_ready(1)
    network.send(1)
    network.turn(999)
    network.turn(20_000)
    assert not peer.is_closed()


def test_connections_may_be_kept_for_ever() -> None:
    network = ScriptedNetwork(idle_max_ms=-1)
    network.know(*BROKERS)
    peer = network.make_ready(1)
    assert network.turn() == NEVER_MS
    network.turn(10**9)
    assert not peer.is_closed()


def test_no_idle_time_at_all_still_lets_requests_through() -> None:
    network = ScriptedNetwork(idle_max_ms=0)
    network.know(*BROKERS)
    for node_id in (None, 1, 1):
        outcome = network.send(node_id)
        network.turn(1_000)
        network.serve()
        assert outcome.response is not None
        assert all(peer.is_closed() for peer in network.port.peers)


# What is told of failures.


def test_nothing_is_told_when_all_is_well(network: ScriptedNetwork) -> None:
    assert network.client.describe_failures() == ""
    network.make_ready(1)
    assert network.client.describe_failures() == ""


def test_each_broker_in_trouble_is_told_with_its_reason(network: ScriptedNetwork) -> None:
    network.client.connect(1, network.now_ms)
    network.peer.refuse()
    network.turn()
    network.client.connect(2, network.now_ms)
    network.make_ready(3)
    network.send(3)
    network.turn()
    assert network.client.describe_failures() == (
        "cannot connect to broker-1:9092: refused; "
        "broker-2:9092 (id 2) has not accepted the connection yet; "
        "broker-3:9092 (id 3) has not answered METADATA yet"
    )


def test_why_the_last_attempt_failed_is_told_during_the_next(network: ScriptedNetwork) -> None:
    network.client.connect(1, network.now_ms)
    network.peer.refuse()
    network.turn()
    network.turn(1_000)
    network.client.connect(1, network.now_ms)
    assert network.client.describe_failures() == "cannot connect to broker-1:9092: refused"


def test_a_bad_metadata_answer_is_told(network: ScriptedNetwork) -> None:
    [request] = network.metadata.poll(network.now_ms).requests
    request.on_failure(DecodeError("a broker at port 0"), network.now_ms)
    assert network.client.describe_failures() == (
        "the last metadata update failed: a broker at port 0"
    )


def test_a_large_cluster_that_is_down_is_told_in_few_words() -> None:
    network = ScriptedNetwork()
    network.know(*(Node(number, f"broker-{number}", 9092) for number in range(100)))
    for number in range(100):
        network.client.connect(number, network.now_ms)
        network.peer.refuse()
    network.turn()
    text = network.client.describe_failures()
    assert text.count("refused") == 8
    assert text.endswith("; and 92 more")


# Its end, and how it is built.


def test_closing_closes_every_connection_and_calls_nobody_back(network: ScriptedNetwork) -> None:
    peers = [network.make_ready(1), network.make_ready(2)]
    outcome = network.send(1)
    network.turn()
    network.client.close()
    assert all(peer.is_closed() for peer in peers)
    network.client.complete(network.now_ms)
    assert not outcome.is_done()
    network.client.close()


def test_waking_goes_to_the_port(network: ScriptedNetwork) -> None:
    network.client.wakeup()
    assert network.port.wakeup_count == 1


def test_poll_is_one_turn(network: ScriptedNetwork) -> None:
    times_ms = iter([network.now_ms, network.now_ms + 3])
    outcome = network.send(77)
    network.client.poll(500, lambda: next(times_ms))
    assert network.port.waits_ms == [0]
    assert outcome.done_ms == network.now_ms + 3


def test_poll_waits_no_longer_than_it_is_told(network: ScriptedNetwork) -> None:
    network.client.poll(500, lambda: network.now_ms)
    assert network.port.waits_ms == [500]


def test_the_configuration_is_followed() -> None:
    config = ProducerConfig.from_settings(
        bootstrap_servers="a:1",
        client_id="me",
        request_timeout_ms=1_234,
        connections_max_idle_ms=-1,
        socket_connection_setup_timeout_ms=5_000,
        socket_connection_setup_timeout_max_ms=5_000,
        delivery_timeout_ms=10_000,
    )
    port = ScriptedPort()
    metadata = Metadata.from_config(config, allow_auto_topic_creation=True)
    client = NetworkClient.from_config(
        config, port, metadata, max_in_flight_requests_per_connection=1
    )
    client.connect(-1, 0)
    assert 4_000 <= client.prepare(0) <= 5_000
    port.peers[0].accept()
    port.wait(0)
    client.complete(0)
    assert port.peers[0].requests[0].header.client_id == "me"
    assert client.prepare(0) == 1_234
