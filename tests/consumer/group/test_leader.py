"""GroupLeader: how it uses members and metadata, and what its coordinator describes."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from pykclient.consumer.group.assignors import (
    Assignment,
    CooperativeStickyAssignor,
    GroupMember,
    PartitionReplicas,
    RangeAssignor,
    RebalanceProtocol,
    RoundRobinAssignor,
    TopicReplicas,
)
from pykclient.consumer.group.classic.leader import (
    UnassignedPartitions,
    assign_partitions,
    is_known,
    topic_replicas,
)
from pykclient.consumer.group.classic.protocol import encode_assignment
from pykclient.errors import (
    BrokerError,
    CoordinatorLoadInProgressError,
    DisconnectedError,
    GroupAuthorizationFailedError,
    NotCoordinatorError,
    UnknownTopicOrPartitionError,
    UsageError,
)
from pykclient.network.cluster.cluster import Cluster, PartitionInfo, TopicInfo
from pykclient.network.log import ClientLog
from pykclient.network.manager import NEVER_MS, Request
from pykclient.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from pykclient.types import Node, TopicPartition
from tests.consumer.group.member_scene import (
    GROUP,
    NODE_ID,
    RETRY_MS,
    KnownCoordinator,
    group_context,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
TWO: TopicReplicas = {"a": [PartitionReplicas(None, [])] * 2}
MEMBERS = {"m1": GroupMember(frozenset({"a"})), "m2": GroupMember(frozenset({"a"}))}


class OwnAssignor(RoundRobinAssignor):
    """An assignor that assigns what a test sets."""

    def __init__(self, assigned: Mapping[str, object] | Exception) -> None:
        self._assigned = assigned

    def assign(self, topics: object, members: object) -> dict[str, list[TopicPartition]]:
        if isinstance(self._assigned, Exception):
            raise self._assigned
        return cast("dict[str, list[TopicPartition]]", self._assigned)


def cluster() -> Cluster:
    infos = (
        PartitionInfo("a", 0, 1, 0, replica_ids=(1, 2)),
        PartitionInfo("a", 1, 2, 0, replica_ids=(2, 3)),
    )
    return Cluster(
        nodes=[Node(1, "h", 1, "r1"), Node(2, "h", 2, "r2"), Node(3, "h", 3)],
        topics=[TopicInfo("a", bytes(16), is_internal=False, partitions=infos)],
        topic_errors={"gone": UnknownTopicOrPartitionError("gone")},
    )


def test_topics_are_known_when_a_response_had_each() -> None:
    assert is_known(cluster(), ["a", "gone"])
    assert not is_known(cluster(), ["a", "b"])


def test_racks_are_those_of_the_replicas() -> None:
    assert topic_replicas(cluster(), ["a", "gone"]) == {
        "a": [frozenset({"r1", "r2"}), frozenset({"r2"})]
    }


def test_an_assignor_gets_leaders_and_replicas() -> None:
    known = cluster()
    (first, second) = topic_replicas(known, ["a"])["a"]
    assert (first.leader, first.replicas) == (known.nodes[1], (known.nodes[1], known.nodes[2]))
    assert (second.leader, second.replicas) == (known.nodes[2], (known.nodes[2], known.nodes[3]))


def test_brokers_that_are_away_are_neither_leaders_nor_replicas() -> None:
    infos = (
        PartitionInfo("a", 0, None, 0, replica_ids=(9, 1)),
        PartitionInfo("a", 1, 9, 0, replica_ids=(9,)),
    )
    one = Node(1, "h", 1)
    topic = TopicInfo("a", bytes(16), is_internal=False, partitions=infos)
    (first, second) = topic_replicas(Cluster(nodes=[one], topics=[topic]), ["a"])["a"]
    assert (first.leader, first.replicas) == (None, (one,))
    assert (second.leader, second.replicas) == (None, ())


def test_an_assignor_assigns() -> None:
    assigned = assign_partitions(RangeAssignor(), RebalanceProtocol.EAGER, TWO, MEMBERS)
    assert assigned == {"m1": Assignment((A0,)), "m2": Assignment((A1,))}


@pytest.mark.parametrize(
    ("assigned", "message"),
    [
        ({"m1": [A0], "m2": [A0]}, r"assigned a-0 twice"),
        ({"m1": [A0, A0]}, r"assigned a-0 twice"),
        ({"m3": [A0]}, r"assigned partitions to 'm3', not a member"),
        ({"m1": [("a", 0)]}, r"failed: TypeError.*\('a', 0\) is not a TopicPartition"),
        *(
            ({"m1": [wrong]}, r"failed: TypeError.*is not a TopicPartition")
            for wrong in (
                TopicPartition("a", cast("int", "0")),
                TopicPartition("a", cast("int", True)),
                TopicPartition("a", -1),
                TopicPartition("a", 2**31),
                TopicPartition(cast("str", 5), 0),
                TopicPartition("\ud800", 0),
            )
        ),
        (
            {"m1": Assignment([A0], cast("bytes", "text"))},
            r"failed: TypeError.*user data must be bytes, not 'text'",
        ),
        ({"m1": None}, r"failed: TypeError"),
        (ValueError("mistake"), r"failed: ValueError\('mistake'\)"),
    ],
)
def test_an_own_assignor_that_breaks_the_rules_is_reported(
    assigned: Mapping[str, object] | Exception, message: str
) -> None:
    with pytest.raises(UsageError, match=f"the assignor 'roundrobin' {message}"):
        assign_partitions(OwnAssignor(assigned), RebalanceProtocol.EAGER, TWO, MEMBERS)


def test_a_member_left_out_gets_nothing_and_what_can_be_read_once_is_given() -> None:
    assignor = OwnAssignor({"m2": iter([A1])})
    assigned = assign_partitions(assignor, RebalanceProtocol.EAGER, TWO, MEMBERS)
    assert assigned == {"m1": Assignment(()), "m2": Assignment((A1,))}


@pytest.mark.promise(
    "a cooperative group keeps partitions that do not move; groups migrate to it member by member"
)
def test_a_cooperative_assignor_gives_nothing_that_another_one_has() -> None:
    members = {
        "m1": GroupMember(frozenset({"a"}), owned_partitions=(A0, A1), generation=1),
        "m2": GroupMember(frozenset({"a"})),
    }
    moved = OwnAssignor({"m1": [A0], "m2": [A1]})
    with pytest.raises(UsageError, match="assigned a-1 to a member while another one still has it"):
        assign_partitions(moved, RebalanceProtocol.COOPERATIVE, TWO, members)
    assert assign_partitions(moved, RebalanceProtocol.EAGER, TWO, members)["m2"] == Assignment(
        (A1,)
    )
    first = assign_partitions(
        CooperativeStickyAssignor(), RebalanceProtocol.COOPERATIVE, TWO, members
    )
    assert first == {"m1": Assignment((A0,)), "m2": Assignment(())}


# Partitions that a static leader finds unassigned (KIP-814).


P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


class Scene:
    """A comparison that starts at time 0."""

    def __init__(self) -> None:
        self.coordinator = KnownCoordinator()
        self.unassigned = UnassignedPartitions(
            group_context(coordinator=self.coordinator), ClientLog("pykclient.consumer", "")
        )
        self.unassigned.compare(frozenset({P0, P1, P2}))

    def sent(self, now_ms: int = 0) -> Request:
        [request] = self.unassigned.poll(now_ms).requests
        message = request.message
        assert isinstance(message, DescribeGroupsRequest)
        assert (request.node_id, message.groups) == (NODE_ID, [GROUP])
        return request

    def is_idle(self, now_ms: int = 10 * RETRY_MS) -> bool:
        result = self.unassigned.poll(now_ms)
        return not result.requests and result.next_poll_ms == NEVER_MS


@pytest.fixture
def scene() -> Scene:
    return Scene()


def described(*shares: bytes, state: str = "Stable", error_code: int = 0) -> DescribeGroupsResponse:
    members = [DescribedGroupMember(member_assignment=share) for share in shares]
    group = DescribedGroup(
        error_code=error_code, group_id=GROUP, group_state=state, members=members
    )
    return DescribeGroupsResponse(groups=[group])


@pytest.mark.parametrize(
    ("second", "has_found"),
    [([P1, P2], False), ([P1], True), ([P1, P2, TopicPartition("u", 0)], False)],
)
def test_a_partition_that_no_member_has_is_unassigned(
    scene: Scene, second: list[TopicPartition], has_found: bool
) -> None:
    response = described(encode_assignment([P0]), encode_assignment(second))
    scene.sent().on_response(response, 0)
    assert scene.unassigned.has_found == has_found
    assert scene.is_idle()


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Dead"])
def test_a_group_that_is_about_to_assign_partitions_has_no_gap(scene: Scene, state: str) -> None:
    scene.sent().on_response(described(state=state), 0)
    assert not scene.unassigned.has_found
    assert scene.is_idle()


@pytest.mark.parametrize(
    ("error", "suspected_count"), [(NotCoordinatorError, 1), (CoordinatorLoadInProgressError, 0)]
)
def test_what_passes_is_requested_again(
    scene: Scene, error: type[BrokerError], suspected_count: int
) -> None:
    scene.sent().on_response(described(error_code=error.code), 0)
    assert len(scene.coordinator.reasons) == suspected_count
    assert scene.unassigned.poll(0).next_poll_ms == RETRY_MS
    scene.sent(RETRY_MS).on_failure(DisconnectedError("gone"), RETRY_MS)
    assert len(scene.coordinator.reasons) == suspected_count + 1
    scene.sent(3 * RETRY_MS).on_response(described(encode_assignment([P0])), 3 * RETRY_MS)
    assert scene.unassigned.has_found


@pytest.mark.parametrize(
    "response",
    [
        described(error_code=GroupAuthorizationFailedError.code),
        described(b"\x00"),
        DescribeGroupsResponse(),
    ],
)
def test_what_no_attempt_cures_leaves_the_group_as_it_is(
    scene: Scene, response: DescribeGroupsResponse
) -> None:
    scene.sent().on_response(response, 0)
    assert not scene.unassigned.has_found
    assert scene.is_idle()


def test_nothing_is_requested_before_there_is_a_coordinator(scene: Scene) -> None:
    scene.coordinator.known = None
    assert scene.is_idle()
    scene.coordinator.known = NODE_ID
    scene.sent()
    assert scene.is_idle(), "it is requested"


def test_a_response_that_comes_too_late_is_void(scene: Scene) -> None:
    first = scene.sent()
    scene.unassigned.forget()
    first.on_response(described(), 0)
    first.on_failure(DisconnectedError("gone"), 0)
    assert not scene.unassigned.has_found
    assert scene.coordinator.reasons == []
    assert scene.is_idle()
