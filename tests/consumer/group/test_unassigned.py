"""Whether a group reads all that its leader would share out, by what its coordinator answers."""

from __future__ import annotations

from random import Random

import pytest

from pykclient.consumer.group.classic.protocol import encode_assignment
from pykclient.consumer.group.classic.unassigned import UnassignedPartitions
from pykclient.errors import (
    BrokerError,
    CoordinatorLoadInProgressError,
    DisconnectedError,
    GroupAuthorizationFailedError,
    NotCoordinatorError,
)
from pykclient.network.log import ClientLog
from pykclient.network.manager import NEVER_MS, Request
from pykclient.network.retry import Backoff
from pykclient.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from pykclient.types import TopicPartition
from tests.consumer.group.classic_scene import GROUP, NODE_ID, KnownCoordinator

RETRY_MS = 100
P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


class Scene:
    """A comparison that begins at 0."""

    def __init__(self) -> None:
        self.coordinator = KnownCoordinator()
        self.unassigned = UnassignedPartitions(
            self.coordinator,
            retry_backoff=Backoff(RETRY_MS, RETRY_MS, jitter=0.0, random=Random(1)),
            log=ClientLog("pykclient.consumer", ""),
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


@pytest.mark.promise("a static leader's restart moves nothing, and what came meanwhile is assigned")
@pytest.mark.parametrize(
    ("second", "has_found"),
    [([P1, P2], False), ([P1], True), ([P1, P2, TopicPartition("u", 0)], False)],
)
def test_a_partition_that_no_member_has_is_unassigned(
    scene: Scene, second: list[TopicPartition], has_found: bool
) -> None:
    answer = described(encode_assignment([P0]), encode_assignment(second))
    scene.sent().on_response(answer, 0)
    assert scene.unassigned.has_found == has_found
    assert scene.is_idle()


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Dead"])
def test_a_group_that_is_about_to_assign_partitions_has_no_gap(scene: Scene, state: str) -> None:
    scene.sent().on_response(described(state=state), 0)
    assert not scene.unassigned.has_found
    assert scene.is_idle()


@pytest.mark.parametrize(
    ("error", "doubt_count"), [(NotCoordinatorError, 1), (CoordinatorLoadInProgressError, 0)]
)
def test_what_passes_is_requested_again(
    scene: Scene, error: type[BrokerError], doubt_count: int
) -> None:
    scene.sent().on_response(described(error_code=error.code), 0)
    assert len(scene.coordinator.reasons) == doubt_count
    assert scene.unassigned.poll(0).next_poll_ms == RETRY_MS
    scene.sent(RETRY_MS).on_failure(DisconnectedError("gone"), RETRY_MS)
    assert len(scene.coordinator.reasons) == doubt_count + 1
    scene.sent(2 * RETRY_MS).on_response(described(encode_assignment([P0])), 2 * RETRY_MS)
    assert scene.unassigned.has_found


@pytest.mark.parametrize(
    "answer",
    [
        described(error_code=GroupAuthorizationFailedError.code),
        described(b"\x00"),
        DescribeGroupsResponse(),
    ],
)
def test_what_no_attempt_cures_leaves_the_group_as_it_is(
    scene: Scene, answer: DescribeGroupsResponse
) -> None:
    scene.sent().on_response(answer, 0)
    assert not scene.unassigned.has_found
    assert scene.is_idle()


def test_nothing_is_requested_before_there_is_a_coordinator(scene: Scene) -> None:
    scene.coordinator.known = None
    assert scene.is_idle()
    scene.coordinator.known = NODE_ID
    scene.sent()
    assert scene.is_idle(), "it is asked"


def test_a_response_that_comes_too_late_is_void(scene: Scene) -> None:
    first = scene.sent()
    scene.unassigned.forget()
    first.on_response(described(), 0)
    first.on_failure(DisconnectedError("gone"), 0)
    assert not scene.unassigned.has_found
    assert scene.coordinator.reasons == []
    assert scene.is_idle()
