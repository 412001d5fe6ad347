"""The member that transactions commit as: that of the last completed rebalance.

The identity must stay whatever happens to the membership later. Only then does the coordinator
refuse offsets of partitions that another member may own by now.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from pykclient.errors import (
    DisconnectedError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from pykclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from pykclient.types import GroupMetadata, TopicPartition
from tests.consumer.group.group_scene import GROUP, MAX_POLL_MS, GroupScene
from tests.consumer.group.member_scene import INTERVAL_MS, A, ClassicScene, Kip848Scene

if TYPE_CHECKING:
    from pykclient.errors import BrokerError

T0 = TopicPartition("t", 0)
each_protocol = pytest.mark.parametrize("protocol", ["classic", "consumer"])


def joined(protocol: str) -> GroupScene:
    scene = GroupScene(protocol)
    scene.subscription.subscribe(["t"])
    scene.join(T0)
    return scene


READ_IN = GroupMetadata(GROUP, 1, "m-1", None, is_subscribed=True)


# Both protocols.


@each_protocol
def test_it_is_no_member_before_the_first_rebalance_is_completed(protocol: str) -> None:
    scene = GroupScene(protocol)
    assert scene.group.identity == GroupMetadata(GROUP)
    scene.subscription.subscribe(["t"])
    assert scene.group.identity == GroupMetadata(GROUP, is_subscribed=True)
    scene.join()
    assert scene.group.identity == READ_IN, "assigned nothing is assigned, too"


@each_protocol
def test_it_stays_when_the_member_is_late_and_until_the_next_rebalance_is_completed(
    protocol: str,
) -> None:
    scene = joined(protocol)
    scene.wait(MAX_POLL_MS)
    assert scene.group.identity == READ_IN
    scene.sent.clear()
    scene.poll()
    assert scene.events == [f"lost {T0}"]
    assert scene.group.identity == READ_IN
    scene.assign([T0], generation=7)
    assert scene.group.identity == READ_IN._replace(generation=7)


@each_protocol
@pytest.mark.parametrize("sends", [True, False])
def test_it_stays_when_the_consumer_unsubscribes_and_subscribes_again(
    protocol: str, sends: bool
) -> None:
    """The records were read by the former member: brokers refuse their offsets."""
    scene = joined(protocol)
    scene.group.begin_leave(
        "unsubscribe", sends=sends, now_ms=scene.now_ms, commit_deadline_ms=scene.now_ms
    )
    scene.poll()
    scene.sent.clear()
    scene.subscription.unsubscribe()
    assert scene.group.identity == READ_IN._replace(is_subscribed=False)
    scene.subscription.subscribe(["t"])
    scene.group.on_subscribed(scene.listener)
    scene.poll()
    assert scene.group.identity == READ_IN
    scene.assign([T0], generation=3)
    assert scene.group.identity == READ_IN._replace(generation=3)


@each_protocol
def test_partitions_that_the_application_chooses_need_no_member(protocol: str) -> None:
    scene = joined(protocol)
    scene.subscription.unsubscribe()
    scene.subscription.assign([T0])
    scene.group.on_assigned_by_hand()
    assert scene.group.identity == GroupMetadata(GROUP)
    scene.subscription.unsubscribe()
    scene.subscription.subscribe(["t"])
    assert scene.group.identity == GroupMetadata(GROUP, is_subscribed=True)


@each_protocol
def test_an_assign_that_was_interrupted_needs_no_member_either(protocol: str) -> None:
    scene = joined(protocol)
    scene.subscription.unsubscribe()
    scene.subscription.assign([T0])
    scene.group.restart(scene.now_ms)
    assert scene.group.identity == GroupMetadata(GROUP)


@each_protocol
def test_it_stays_when_a_call_was_interrupted(protocol: str) -> None:
    scene = joined(protocol)
    scene.group.restart(scene.now_ms)
    assert scene.group.identity == READ_IN


def test_it_may_be_pickled_unpacked_and_made_by_hand() -> None:
    assert pickle.loads(pickle.dumps(READ_IN)) == READ_IN
    group_id, generation, member_id, instance_id, is_subscribed, topic_ids, is_automatic = READ_IN
    assert (group_id, generation, member_id, instance_id) == (GROUP, 1, "m-1", None)
    assert is_subscribed
    assert (topic_ids, is_automatic) == ((), False)
    assert not GroupMetadata(GROUP).is_subscribed
    # As pickled by an older version.
    assert GroupMetadata.__new__(GroupMetadata, GROUP, 1, "m-1", None) == READ_IN._replace(
        is_subscribed=False
    )


# Classic.

CLASSIC = GroupMetadata(GROUP, 1, "m-1")


@pytest.mark.parametrize(
    "error",
    [
        UnknownMemberIdError,
        IllegalGenerationError,
        FencedInstanceIdError,
        GroupAuthorizationFailedError,
    ],
)
def test_a_heartbeat_that_ends_a_classic_membership_does_not_touch_it(
    error: type[BrokerError],
) -> None:
    scene = ClassicScene()
    scene.join()
    scene.beat(error.code)
    assert scene.identity.member == CLASSIC


@pytest.mark.parametrize(
    "error", [UnknownMemberIdError, RebalanceInProgressError, GroupAuthorizationFailedError]
)
def test_a_join_that_fails_does_not_touch_it(error: type[BrokerError]) -> None:
    scene = ClassicScene()
    scene.join()
    scene.start_joining()
    scene.take(JoinGroupRequest)
    scene.respond(JoinGroupResponse(error_code=error.code))
    scene.poll()
    assert scene.identity.member == CLASSIC


def test_a_generation_is_not_completed_before_its_assignment_is_taken() -> None:
    scene = ClassicScene()
    scene.join()
    scene.start_joining()
    scene.respond_to_join(generation=2)
    assert scene.identity.member == CLASSIC
    scene.wait(1)
    scene.respond_to_sync()
    scene.wait(1)
    assert scene.identity.member == CLASSIC, "the application is at work"
    scene.carried_out.is_slow = True
    scene.poll()
    assert scene.carried_out.events[-1] == "assign t0"
    assert scene.identity.member == CLASSIC._replace(generation=2), "a listener may commit"


def test_a_generation_that_is_lost_before_it_is_taken_is_not_completed() -> None:
    scene = ClassicScene()
    scene.join()
    scene.start_joining()
    scene.respond_to_join(generation=2)
    scene.wait(1)
    scene.respond_to_sync()
    scene.beat(UnknownMemberIdError.code)
    scene.poll()
    assert scene.identity.member == CLASSIC


# KIP-848.


def kip848() -> tuple[Kip848Scene, GroupMetadata]:
    scene = Kip848Scene()
    scene.join({A: (0,)})
    assert scene.identity.member == scene.membership.member
    return scene, scene.identity.member


def test_it_follows_the_epoch_of_a_membership_that_goes_on() -> None:
    scene, member = kip848()
    scene.wait(INTERVAL_MS)
    scene.respond(2)
    assert scene.identity.member == member._replace(generation=2)


def test_it_follows_the_epoch_while_partitions_are_given_up() -> None:
    scene, member = kip848()
    scene.carried_out.is_slow = True
    scene.leave()
    scene.wait(INTERVAL_MS)
    scene.respond(2)
    assert scene.identity.member == member._replace(generation=2), "on_revoked may commit"
    scene.carried_out.finish()
    scene.poll()
    assert scene.last_epoch() == -1
    assert scene.identity.member == member._replace(generation=2)


@pytest.mark.parametrize(
    "error", [UnknownMemberIdError, FencedMemberEpochError, GroupAuthorizationFailedError]
)
def test_a_heartbeat_that_ends_a_kip848_membership_does_not_touch_it(
    error: type[BrokerError],
) -> None:
    scene, member = kip848()
    scene.wait(INTERVAL_MS)
    scene.respond(code=error.code)
    assert scene.identity.member == member


def test_a_new_membership_counts_only_when_its_assignment_is_taken() -> None:
    scene, member = kip848()
    scene.wait(INTERVAL_MS)
    scene.respond(code=FencedMemberEpochError.code)
    scene.poll()
    scene.respond(5, {A: (0,)})
    scene.wait(INTERVAL_MS)
    scene.respond(6)
    assert scene.identity.member == member, "the application works on what it read before"
    scene.poll()
    assert scene.carried_out.events[-1] == "assign a0"
    assert scene.identity.member == member._replace(generation=6)


def test_a_join_that_is_lost_does_not_touch_it() -> None:
    scene, member = kip848()
    scene.wait(INTERVAL_MS)
    scene.respond(code=FencedMemberEpochError.code)
    scene.poll()
    scene.fail(DisconnectedError("gone"))
    scene.poll()
    assert scene.identity.member == member
