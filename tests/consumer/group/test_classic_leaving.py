"""A member of a classic group leaves: on purpose, or because its application does not poll."""

from __future__ import annotations

import pytest

from pykclient.errors import DisconnectedError, UnknownMemberIdError
from pykclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from pykclient.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from tests.consumer.group.classic_scene import OTHER_NODE_ID, ClassicScene


@pytest.fixture
def joined() -> ClassicScene:
    scene = ClassicScene()
    scene.join()
    scene.carried_out.diary.clear()
    return scene


@pytest.mark.promise("`max_poll_interval_ms` and `session_timeout_ms` are enforced")
def test_a_member_that_is_late_leaves_the_group(joined: ClassicScene) -> None:
    joined.membership.leave_late()
    joined.wait(0)
    leave = joined.take(LeaveGroupRequest)
    [identity] = leave.members
    assert (identity.member_id, identity.reason) == ("m-1", "consumer poll timeout has expired.")
    joined.respond(LeaveGroupResponse())
    joined.wait(10_000)
    assert not joined.sent, "it joins when the application polls"
    assert not joined.membership.can_commit
    joined.poll()
    assert joined.carried_out.diary == ["lose all"]
    assert joined.take(JoinGroupRequest).member_id == ""


def test_a_static_member_that_does_not_poll_says_nothing() -> None:
    scene = ClassicScene(group_instance_id="i")
    scene.join()
    scene.membership.leave_late()
    scene.wait(0)
    assert not scene.sent
    assert not scene.membership.can_commit
    scene.poll()
    assert scene.take(JoinGroupRequest).group_instance_id == "i"


def test_a_member_whose_rebalance_was_interrupted_leaves_when_it_is_late(
    joined: ClassicScene,
) -> None:
    joined.carried_out.is_slow = True
    joined.membership.request_join("a test wants it")
    joined.poll()
    joined.membership.restart(joined.now_ms, is_wanted=True)
    joined.membership.leave_late()
    joined.wait(0)
    [identity] = joined.take(LeaveGroupRequest).members
    assert identity.member_id == "m-1"
    joined.respond(LeaveGroupResponse())
    joined.carried_out.diary.clear()
    joined.poll()
    assert joined.carried_out.diary == ["lose all"]


def test_what_a_late_member_was_about_to_revoke_is_lost(joined: ClassicScene) -> None:
    joined.carried_out.is_slow = True
    joined.membership.request_join("a test wants it")
    joined.poll()
    [revoking] = joined.carried_out.pending
    joined.membership.leave_late()
    assert revoking.is_cancelled
    joined.poll()
    assert joined.carried_out.diary == ["revoke to join", "lose all"]


def test_leaving_gives_up_everything_first(joined: ClassicScene) -> None:
    joined.carried_out.is_slow = True
    left = joined.leave()
    joined.poll()
    assert not joined.sent
    assert joined.membership.can_commit
    joined.carried_out.finish()
    joined.poll()
    leave = joined.take(LeaveGroupRequest)
    [identity] = leave.members
    assert (leave.group_id, identity.member_id, identity.reason) == ("g", "m-1", "done")
    was_left = left.is_done
    joined.respond(LeaveGroupResponse())
    assert not was_left
    assert left.is_done
    assert joined.carried_out.diary == ["revoke all"]
    joined.poll(passed_ms=60_000)
    assert not joined.sent


def test_a_leave_that_is_refused_or_lost_ends_well(joined: ClassicScene) -> None:
    for end in ("refused", "lost"):
        left = joined.leave()
        joined.poll()
        if end == "lost":
            joined.fail(DisconnectedError("gone"))
        else:
            unknown = MemberResponse(member_id="m-1", error_code=UnknownMemberIdError.code)
            joined.respond(LeaveGroupResponse(members=[unknown]))
        assert left.is_done
        joined.join()


def test_leaving_without_a_word_keeps_the_membership_elsewhere(joined: ClassicScene) -> None:
    left = joined.leave(sends=False)
    joined.poll()
    assert left.is_done
    assert not joined.sent


def test_leaving_in_the_middle_of_a_round_loses_what_is_held(joined: ClassicScene) -> None:
    joined.membership.request_join("again")
    joined.poll()
    joined.leave()
    late = joined.sent.pop()
    late.on_response(JoinGroupResponse(generation_id=2, member_id="m-1"), joined.now_ms)
    joined.poll()
    assert joined.carried_out.diary == ["revoke to join", "lose all"]
    joined.take(LeaveGroupRequest)


@pytest.mark.promise("closing revokes, commits, leaves or remains (KIP-1092), and ends in its time")
def test_leaving_is_not_held_up_by_a_join_that_waits_for_others(joined: ClassicScene) -> None:
    joined.membership.request_join("again")
    joined.poll()
    joined.sent.clear()
    joined.leave()
    joined.poll()
    [leave] = joined.sent
    assert leave.node_id == OTHER_NODE_ID
