"""Coordinators: looked up when needed, dropped when lost, and with a limited rate."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from pykclient.errors import (
    CoordinatorNotAvailableError,
    DecodeError,
    DisconnectedError,
    GroupAuthorizationFailedError,
    KafkaError,
    NotCoordinatorError,
    UnsupportedVersionError,
)
from pykclient.network.broker.connection import SUSPECT_MS
from pykclient.network.coordinators import (
    SUSPECT_INTERVAL_MS,
    Coordinators,
    CoordinatorType,
)
from pykclient.network.retry import Backoff
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.network.scripted_network import BROKERS, ScriptedNetwork
from tests.network.scripted_port import ALL_RANGES, ScriptedPeer

if TYPE_CHECKING:
    from pykclient.network.cluster.node import CoordinatorNode
    from pykclient.types import Node
    from tests.network.scripted_network import Completion

GROUP = CoordinatorType.GROUP
RETRY_MS = 100
FIND = int(ApiKey.FIND_COORDINATOR)
BROKER = BROKERS[1]


class Scene:
    """Coordinators over a scripted network; one broker gets all requests for any node."""

    def __init__(self, *, versions: tuple[int, int] = (0, 6)) -> None:
        self.network = ScriptedNetwork(*BROKERS)
        self.coordinators = Coordinators(
            self.network.metadata,
            self.network.client,
            retry_backoff=Backoff(RETRY_MS, 1_000, jitter=0, random=Random(1)),
        )
        self.network.client.connect(1, self.network.now_ms)
        self.any_broker = self.network.shake_hands({**ALL_RANGES, FIND: versions})

    def step(self, elapsed_ms: int = 0) -> int:
        """Make a turn; return the time until the manager's next poll."""
        self.network.now_ms += elapsed_ms
        result = self.coordinators.poll(self.network.now_ms)
        for request in result.requests:
            self.network.client.send(request, self.network.now_ms)
        self.network.turn()
        return result.next_poll_ms - self.network.now_ms

    def wait(self, elapsed_ms: int) -> int:
        """Advance the clock as a waiting driver does, and make a turn."""
        self.network.turn(elapsed_ms)
        return self.step()

    def want(self, key: str = "g", key_type: CoordinatorType = GROUP) -> CoordinatorNode | None:
        return self.coordinators.find(key_type, key).node()

    def lookup(self) -> FindCoordinatorRequest:
        """Return the lookup that has no response yet."""
        message = self.any_broker.requests[0].message
        assert isinstance(message, FindCoordinatorRequest)
        return message

    def respond(
        self, error_code: int = 0, *keys: str, broker: Node = BROKER, port: int = BROKER.port
    ) -> None:
        """Respond to the oldest request, in the format of its version."""
        keys = keys or ("g",)
        address = (broker.id, broker.host, port) if error_code == 0 else (-1, "", -1)
        if self.any_broker.requests[0].header.api_version >= 4:
            found = [Coordinator(key, *address, error_code) for key in keys]
            message = FindCoordinatorResponse(coordinators=found)
        else:
            message = FindCoordinatorResponse(0, error_code, None, *address)
        self.any_broker.respond(message)
        self.network.turn()

    def find(self) -> CoordinatorNode:
        self.want()
        self.step()
        self.respond()
        found = self.want()
        assert found is not None
        return found

    def connect(self, node: CoordinatorNode) -> ScriptedPeer:
        """Complete the connection to a coordinator."""
        return self.network.make_ready(node.id)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_nothing_is_requested_before_it_is_wanted(scene: Scene) -> None:
    scene.coordinators.find(GROUP, "g").failure()
    scene.step()
    assert not scene.any_broker.requests


@pytest.mark.parametrize("version", range(7))
def test_a_group_is_looked_up_once_in_every_version(version: int) -> None:
    scene = Scene(versions=(0, version))
    assert scene.want() is None
    scene.step()
    scene.step()
    assert len(scene.any_broker.requests) == 1
    lookup = scene.lookup()
    assert (lookup.key, lookup.coordinator_keys) == (("g", []) if version < 4 else ("", ["g"]))
    scene.respond()
    found = scene.want()
    assert found is not None
    assert (found.broker_id, found.address) == (BROKER.id, BROKER.address)


def test_the_coordinators_connection_is_apart_from_the_brokers(scene: Scene) -> None:
    found = scene.find()
    data, coordinator = scene.network.make_ready(BROKER.id), scene.connect(found)
    assert data is not coordinator
    assert (data.host, data.port) == (coordinator.host, coordinator.port)
    first = scene.network.send(BROKER.id)
    second = scene.network.write(found.id)
    scene.network.respond(coordinator)
    assert (first.is_done(), second.is_done()) == (False, True)


def test_a_coordinators_connection_serves_no_request_for_any_node(scene: Scene) -> None:
    coordinator = scene.connect(scene.find())
    for _ in range(20):
        scene.network.write(message=MetadataRequest())
    assert not coordinator.requests


def test_a_coordinator_outside_the_metadata_is_reached(scene: Scene) -> None:
    scene.network.update_brokers(BROKERS[0])
    found = scene.find()
    completion = scene.network.write(found.id)
    assert scene.network.peer.host == BROKER.host
    scene.network.serve()
    assert completion.response is not None


def test_a_coordinator_that_moved_is_connected_to_at_its_new_address(scene: Scene) -> None:
    found = scene.find()
    old = scene.connect(found)
    scene.coordinators.find(GROUP, "g").mark_unknown(found.id, "moved")
    scene.want()
    scene.step(RETRY_MS)
    scene.respond(port=9_999)
    scene.network.write(found.id)
    assert scene.network.peer.port == 9_999
    assert old.is_closed()


def test_a_lost_connection_makes_it_unknown_and_it_is_looked_up_anew(scene: Scene) -> None:
    found = scene.find()
    scene.connect(found).hang_up()
    scene.network.turn(RETRY_MS)
    assert scene.want() is None
    scene.step()
    assert scene.lookup().coordinator_keys == ["g"]


def test_one_that_is_wrong_is_looked_up_after_a_back_off(scene: Scene) -> None:
    found = scene.find()
    scene.coordinators.find(GROUP, "g").mark_unknown(found.id, NotCoordinatorError())
    assert scene.want() is None
    assert scene.step() == RETRY_MS
    assert not scene.any_broker.requests
    scene.step(RETRY_MS)
    assert scene.any_broker.requests


def test_one_that_is_in_doubt_is_not_requested_to_name_itself(scene: Scene) -> None:
    self_named = BROKERS[0]
    scene.want()
    scene.step()
    scene.respond(broker=self_named)
    found = scene.want()
    assert found is not None
    lookup = scene.coordinators.find(GROUP, "g")
    lookup.doubt(found.id + 1, "late news")
    assert scene.want() == found
    lookup.doubt(found.id, "it may have been replaced")
    assert scene.want() is None
    scene.step(RETRY_MS)
    assert not scene.any_broker.requests
    other = scene.network.shake_hands()
    assert other is not scene.any_broker
    assert len(other.requests) == 1
    scene.any_broker = other
    scene.respond()
    assert scene.want() is not None
    assert lookup.doubted_id is None


def test_one_that_is_in_doubt_names_itself_where_there_is_no_other() -> None:
    scene = Scene()
    scene.network.update_brokers(BROKERS[0])
    scene.want()
    scene.step()
    scene.respond(broker=BROKERS[0])
    found = scene.want()
    assert found is not None
    scene.coordinators.find(GROUP, "g").doubt(found.id, "it may have been replaced")
    scene.want()
    scene.step(RETRY_MS)
    assert len(scene.any_broker.requests) == 1


def test_news_about_a_former_coordinator_changes_nothing(scene: Scene) -> None:
    found = scene.find()
    scene.coordinators.find(GROUP, "g").mark_unknown(found.id + 1, "late news")
    assert scene.want() == found


def test_while_there_is_none_it_is_tried_again_at_growing_intervals(scene: Scene) -> None:
    scene.want()
    scene.step()
    for delay_ms in (RETRY_MS, 2 * RETRY_MS, 4 * RETRY_MS):
        scene.respond(CoordinatorNotAvailableError.code)
        error = scene.coordinators.find(GROUP, "g").attempt.last_error
        assert isinstance(error, CoordinatorNotAvailableError)
        assert "group 'g'" in str(error)
        assert scene.coordinators.find(GROUP, "g").failure() is None
        assert scene.step() == delay_ms
        scene.step(delay_ms)
    scene.respond()
    assert scene.want() is not None
    assert scene.coordinators.find(GROUP, "g").attempt.last_error is None


def test_what_no_attempt_cures_is_reported_and_looked_up_anew_only_when_wanted(
    scene: Scene,
) -> None:
    scene.want()
    scene.step()
    scene.respond(GroupAuthorizationFailedError.code)
    failure = scene.coordinators.find(GROUP, "g").failure()
    assert isinstance(failure, GroupAuthorizationFailedError)
    assert "group 'g'" in str(failure)
    assert scene.want() is None
    scene.step()
    assert not scene.any_broker.requests
    scene.step(RETRY_MS)
    assert scene.coordinators.find(GROUP, "g").failure() is None
    assert not scene.any_broker.requests
    scene.want()
    scene.step()
    assert scene.any_broker.requests


def test_keys_are_looked_up_together_by_type(scene: Scene) -> None:
    wanted = [("a", GROUP), ("b", GROUP), ("t", CoordinatorType.TRANSACTION)]
    for key, key_type in wanted:
        scene.want(key, key_type)
    scene.step()
    lookups = [received.message for received in scene.any_broker.requests]
    assert lookups == [
        FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b"]),
        FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]),
    ]
    scene.respond(0, "b", "a")
    assert scene.want("a") is not None
    assert scene.want("b") is not None


def test_an_older_broker_gets_one_key_at_a_time() -> None:
    scene = Scene(versions=(0, 3))
    scene.want("a")
    scene.want("b")
    scene.step()
    scene.step()
    assert [received.message for received in scene.any_broker.requests] == [
        FindCoordinatorRequest(key="a"),
        FindCoordinatorRequest(key="b"),
    ]


def test_a_share_group_needs_a_broker_that_has_them() -> None:
    scene = Scene(versions=(0, 5))
    scene.want("s", CoordinatorType.SHARE)
    scene.step()
    scene.step()
    failure = scene.coordinators.find(CoordinatorType.SHARE, "s").failure()
    assert isinstance(failure, UnsupportedVersionError)
    assert "share" in str(failure)


@pytest.mark.parametrize(
    "response",
    [
        FindCoordinatorResponse(coordinators=[Coordinator("other", 2, "b", 9092)]),
        FindCoordinatorResponse(coordinators=[Coordinator("g", 2, "b", 9092)] * 2),
        FindCoordinatorResponse(coordinators=[Coordinator("g", 2, "b", 0)]),
        FindCoordinatorResponse(coordinators=[Coordinator("g", -1, "b", 9092)]),
        FindCoordinatorResponse(),
    ],
)
def test_a_response_that_cannot_be_true_is_requested_again_and_then_reported(
    scene: Scene, response: FindCoordinatorResponse
) -> None:
    scene.want()
    (request,) = scene.coordinators.poll(scene.network.now_ms).requests
    assert request.check is not None
    with pytest.raises(DecodeError) as caught:
        request.check(response)
    lost: KafkaError = DisconnectedError("given up")
    lost.__cause__ = caught.value
    request.on_failure(lost, scene.network.now_ms)
    assert scene.coordinators.find(GROUP, "g").failure() is None
    (again,) = scene.coordinators.poll(scene.network.now_ms + RETRY_MS).requests
    again.on_failure(lost, scene.network.now_ms)
    assert scene.coordinators.find(GROUP, "g").failure() is caught.value


def test_a_node_that_is_out_of_reach_is_called_a_coordinator(scene: Scene) -> None:
    found = scene.find()
    completion = scene.network.send(found.id, timeout_ms=50)
    scene.network.turn(50)
    scene.network.turn()
    assert str(completion.error).startswith("broker 2, as coordinator, did not accept the METADATA")
    assert str(found) == "broker-2:9092 (id 2, as coordinator)"


# Coordinators that stay connected but do not respond.


def suspect_coordinator(scene: Scene) -> tuple[CoordinatorNode, Completion]:
    """Delay the coordinator's response until it is suspect."""
    found = scene.find()
    scene.connect(found)
    owed = scene.network.write(found.id)
    assert scene.wait(SUSPECT_MS - 1) == 1
    assert not scene.any_broker.requests
    scene.wait(1)
    assert scene.lookup().coordinator_keys == ["g"]
    return found, owed


def test_another_coordinator_takes_over_from_one_that_is_suspect(scene: Scene) -> None:
    _, owed = suspect_coordinator(scene)
    scene.respond(broker=BROKERS[2])
    found = scene.want()
    assert found is not None
    assert found.broker_id == BROKERS[2].id
    assert isinstance(owed.error, DisconnectedError)
    assert "taken its place" in str(owed.error)
    scene.connect(found)


def test_one_that_is_only_slow_stays_and_is_doubted_now_and_then(scene: Scene) -> None:
    found, owed = suspect_coordinator(scene)
    scene.respond()
    assert scene.want() == found
    assert not owed.is_done()
    assert scene.wait(SUSPECT_INTERVAL_MS - 1) == 1
    assert not scene.any_broker.requests
    scene.wait(1)
    assert scene.any_broker.requests


def test_one_that_responds_is_trusted_again(scene: Scene) -> None:
    found, owed = suspect_coordinator(scene)
    scene.respond()
    scene.network.peer.respond(MetadataResponse())
    scene.network.turn()
    assert owed.response is not None
    assert scene.wait(10 * SUSPECT_INTERVAL_MS) > SUSPECT_INTERVAL_MS
    assert not scene.any_broker.requests
    assert scene.want() == found


def test_a_lookup_for_a_suspect_one_that_fails_changes_nothing(scene: Scene) -> None:
    found, _ = suspect_coordinator(scene)
    scene.respond(GroupAuthorizationFailedError.code)
    assert scene.want() == found
    assert scene.coordinators.find(GROUP, "g").failure() is None
    assert scene.coordinators.find(GROUP, "g").attempt.last_error is None


def test_one_that_is_lost_while_it_is_doubted_is_not_looked_up_twice(scene: Scene) -> None:
    found, _ = suspect_coordinator(scene)
    scene.coordinators.find(GROUP, "g").mark_unknown(found.id, "gone")
    assert scene.want() is None
    scene.step()
    assert len(scene.any_broker.requests) == 1
    scene.respond()
    assert scene.want() == found
