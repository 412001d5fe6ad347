"""Each request gets one callback, in time, whatever peers, brokers and the clock do.

Hypothesis generates events: requests of every kind; peers that accept, refuse, respond, throttle,
send garbage or disconnect; brokers that move; jumps in time. After each event the client must be
consistent and must not spin. At the end every request must have ended by its deadline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pykclient.protocol.message import encode_response
from pykclient.protocol.messages.api_versions import ApiVersionsRequest
from pykclient.protocol.messages.metadata import MetadataResponse
from pykclient.types import Node
from tests.network.scripted_network import BOOTSTRAP, BROKERS, Completion, ScriptedNetwork

if TYPE_CHECKING:
    from tests.network.scripted_port import ScriptedPeer

NODE_IDS = st.sampled_from([None, None, 1, 2, 3, 77])
PEERS = st.integers(0, 9)
TIMEOUT_MS = 3_000
TOO_OLD = {3: (0, 1)}
UNSUPPORTED_VERSION = 35
NONSENSE = st.one_of(
    st.binary(max_size=40),
    st.just(b"HTTP/1.1 400 Bad Request\r\n"),
    st.just(b"\xff\xff\xff\xff"),
    st.just(b"\x00\x00\x00\x00"),
    st.just(bytes(encode_response(MetadataResponse(), 12, 99))),
    st.just(b"\x00\x01\x00\x00half a frame"),
)


class ClientMachine(RuleBasedStateMachine):
    """One client with peers that may do anything."""

    def __init__(self) -> None:
        super().__init__()
        self.network = ScriptedNetwork(
            bootstrap=BOOTSTRAP[:2],
            request_timeout_ms=TIMEOUT_MS,
            in_flight_max=2,
            idle_max_ms=20_000,
        )
        self.completions: list[tuple[Completion, int]] = []
        self.attempts: list[tuple[tuple[str, int], int]] = []

    def open_peers(self) -> list[ScriptedPeer]:
        return [p for p in self.network.port.peers if not p.is_closed() and not p.is_ended]

    def choose(self, index: int) -> ScriptedPeer | None:
        peers = self.open_peers()
        return peers[index % len(peers)] if peers else None

    def settle(self) -> None:
        """Run the client until it has nothing to do, which must happen."""
        for _ in range(4 + len(self.completions)):
            deadline_ms = self.network.turn()
            self.note_attempts()
            if deadline_ms > self.network.now_ms and not self.network.client.has_completed:
                return
        raise AssertionError("the client spins")

    def note_attempts(self) -> None:
        for peer in self.network.port.peers[len(self.attempts) :]:
            self.attempts.append(((peer.host, peer.port), self.network.now_ms))

    @initialize(ready=st.sets(st.sampled_from([1, 2, 3])))
    def begin_with_brokers(self, ready: set[int]) -> None:
        self.network.update_brokers(*BROKERS)
        for node_id in sorted(ready):
            self.network.make_ready(node_id)
        self.note_attempts()

    @rule(
        node_id=NODE_IDS,
        timeout_ms=st.sampled_from([None, None, 0, 50, 700]),
        expects_response=st.booleans(),
        max_version=st.sampled_from([None, None, None, 10, -1]),
    )
    def send(
        self,
        node_id: int | None,
        timeout_ms: int | None,
        expects_response: bool,
        max_version: int | None,
    ) -> None:
        completion = self.network.send(
            node_id,
            timeout_ms=timeout_ms,
            expects_response=expects_response,
            max_version=max_version,
        )
        allowed_ms = TIMEOUT_MS if timeout_ms is None else timeout_ms
        self.completions.append((completion, self.network.now_ms + allowed_ms))

    @rule(node_id=st.sampled_from([-1, 1, 2, 3, 77]))
    def connect(self, node_id: int) -> None:
        self.network.client.connect(node_id, self.network.now_ms)
        self.note_attempts()

    @rule(index=PEERS)
    def accept(self, index: int) -> None:
        peer = self.choose(index)
        if peer is not None and not peer.is_accepted:
            peer.accept()

    @rule(index=PEERS)
    def hang_up(self, index: int) -> None:
        peer = self.choose(index)
        if peer is not None:
            if peer.is_accepted:
                peer.hang_up()
            else:
                peer.refuse()

    @rule(index=PEERS, count=st.integers(1, 4))
    def serve(self, index: int, count: int) -> None:
        for _ in range(count):
            peer = self.choose(index)
            if peer is not None:
                peer.serve()
                self.settle()

    @rule()
    def serve_everyone(self) -> None:
        for _ in range(4):
            for peer in self.open_peers():
                peer.serve()
            self.settle()

    @rule(index=PEERS, throttle_ms=st.sampled_from([-1, 0, 100, 2**31 - 1]), piece_bytes=PEERS)
    def respond_throttled(self, index: int, throttle_ms: int, piece_bytes: int) -> None:
        peer = self.choose(index)
        if peer is None or not peer.requests:
            return
        if not isinstance(peer.requests[0].message, ApiVersionsRequest):
            response = MetadataResponse(throttle_time_ms=throttle_ms)
            peer.respond(response, piece_bytes=piece_bytes or None)

    @rule(index=PEERS, is_refusal=st.booleans())
    def respond_with_bad_versions(self, index: int, is_refusal: bool) -> None:
        peer = self.choose(index)
        if peer is None or not peer.requests:
            return
        if isinstance(peer.requests[0].message, ApiVersionsRequest):
            if is_refusal:
                peer.respond_versions({}, error_code=UNSUPPORTED_VERSION, respond_version=0)
            else:
                peer.respond_versions(TOO_OLD)

    @rule(index=PEERS)
    def swallow_a_request(self, index: int) -> None:
        peer = self.choose(index)
        if peer is not None and peer.requests:
            peer.requests.popleft()

    @rule(index=PEERS, data=NONSENSE)
    def respond_with_garbage(self, index: int, data: bytes) -> None:
        peer = self.choose(index)
        if peer is not None and peer.is_accepted:
            peer.feed(data)

    @rule(index=PEERS)
    def stop_taking_bytes(self, index: int) -> None:
        peer = self.choose(index)
        if peer is not None:
            peer.takes_bytes = False

    @rule(index=PEERS)
    def take_bytes_again(self, index: int) -> None:
        peer = self.choose(index)
        if peer is not None:
            peer.takes_bytes = True
            peer.unsent_bytes = 0

    @rule(ids=st.sets(st.sampled_from([1, 2, 3])), port=st.sampled_from([9092, 9092, 9093]))
    def respond_with_a_cluster(self, ids: set[int], port: int) -> None:
        self.network.update_brokers(*(Node(b.id, b.host, port) for b in BROKERS if b.id in ids))

    @rule(elapsed_ms=st.sampled_from([1, 49, 250, 1_000, 9_000, 25_000]))
    def let_time_pass(self, elapsed_ms: int) -> None:
        self.network.turn(elapsed_ms)
        self.note_attempts()

    @invariant()
    def nothing_is_lost_doubled_or_late(self) -> None:
        self.settle()
        now_ms = self.network.now_ms
        pending = [
            deadline for completion, deadline in self.completions if not completion.is_done()
        ]
        assert self.network.client.in_flight_count() == len(pending)
        assert all(deadline_ms > now_ms for deadline_ms in pending)

    @invariant()
    def no_address_is_tried_more_than_five_times_a_second(self) -> None:
        for address, started_ms in self.attempts[-20:]:
            count = sum(
                other == address and started_ms <= ms < started_ms + 1_000
                for other, ms in self.attempts
            )
            assert count <= 5

    @invariant()
    def closed_streams_are_closed_once_and_none_is_left_over(self) -> None:
        peers = self.network.port.peers
        assert all(peer.closed_count <= 1 for peer in peers)
        hosts = [(peer.host, peer.port) for peer in self.open_peers()]
        assert len(hosts) <= len(BROKERS) + len(BOOTSTRAP)

    def teardown(self) -> None:
        self.network.turn(TIMEOUT_MS)
        self.settle()
        assert all(completion.is_done() for completion, _ in self.completions)
        self.network.client.close()
        assert all(peer.is_closed() for peer in self.network.port.peers)


ClientMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestClientMachine = ClientMachine.TestCase
