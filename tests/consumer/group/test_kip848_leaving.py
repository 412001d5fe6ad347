"""A member of a group of KIP-848 leaves: it gives up what it has, then tells the coordinator."""

from __future__ import annotations

import pytest

from pykclient.consumer.group.kip848.membership import MemberState
from pykclient.errors import (
    BrokerError,
    CoordinatorLoadInProgressError,
    DisconnectedError,
    FencedInstanceIdError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
)
from tests.consumer.group.kip848_scene import INTERVAL_MS, RETRY_MS, A, B, Kip848Scene


@pytest.fixture
def stable() -> Kip848Scene:
    """A member that has partition 0 of topic a."""
    scene = Kip848Scene()
    scene.join({A: (0,)})
    assert scene.is_in(MemberState.STABLE)
    return scene


@pytest.mark.parametrize(
    ("instance_id", "sends", "epoch"),
    [(None, True, -1), (None, False, None), ("i", True, -1), ("i", False, -2)],
)
def test_leaving_gives_up_first_and_then_notifies(
    instance_id: str | None, sends: bool, epoch: int | None
) -> None:
    scene = Kip848Scene(instance_id)
    scene.join({A: (0,)})
    scene.carried_out.is_slow = True
    left = scene.leave(sends=sends)
    scene.poll()
    assert scene.sent == []
    assert scene.membership.can_commit
    scene.carried_out.finish()
    scene.poll()
    assert scene.is_in(MemberState.UNSUBSCRIBED)
    assert not scene.membership.member.is_member
    if epoch is None:
        assert scene.sent == []
    else:
        assert scene.heartbeat().member_epoch == epoch
        scene.respond()
    assert left.is_done


def test_heartbeats_go_on_while_everything_is_given_up(stable: Kip848Scene) -> None:
    stable.carried_out.is_slow = True
    stable.leave()
    stable.poll()
    assert stable.sent == []
    stable.wait(INTERVAL_MS)
    assert stable.heartbeat().member_epoch == 1
    stable.respond(2, {B: (0,)})
    assert stable.membership.can_commit
    stable.carried_out.finish()
    stable.poll()
    assert stable.carried_out.diary == ["revoke all"]
    assert stable.heartbeat().member_epoch == -1


def test_leaving_ends_also_when_the_response_is_lost_or_no_coordinator_is_known(
    stable: Kip848Scene,
) -> None:
    left = stable.leave()
    stable.poll()
    stable.lose_response(DisconnectedError("gone"))
    assert left.is_done
    alone = Kip848Scene()
    alone.join({A: (0,)})
    alone.coordinator.known = None
    alone_left = alone.leave()
    alone.poll()
    assert alone_left.is_done
    assert alone.is_in(MemberState.UNSUBSCRIBED)


def test_one_that_left_may_join_again(stable: Kip848Scene) -> None:
    stable.leave()
    stable.poll()
    stable.respond()
    stable.membership.request_join()
    stable.poll()
    assert stable.heartbeat().member_epoch == 0


def test_one_that_is_to_join_while_it_leaves_joins_after_that(stable: Kip848Scene) -> None:
    stable.carried_out.is_slow = True
    stable.leave()
    stable.poll()
    stable.membership.request_join()
    stable.carried_out.finish()
    stable.poll(times=1)
    assert stable.heartbeat().member_epoch == -1
    stable.respond()
    stable.poll()
    assert stable.heartbeat().member_epoch == 0


def test_leaving_ends_what_was_fatal() -> None:
    scene = Kip848Scene("instance")
    scene.membership.request_join()
    scene.poll()
    scene.respond(code=FencedInstanceIdError.code)
    scene.poll()
    scene.leave()
    scene.poll()
    scene.membership.request_join()
    scene.poll(passed_ms=RETRY_MS)
    assert not scene.membership.has_error
    assert scene.heartbeat().member_epoch == 0


def test_one_fenced_while_it_gives_up_has_nothing_to_leave(stable: Kip848Scene) -> None:
    stable.wait(INTERVAL_MS)
    stable.carried_out.is_slow = True
    left = stable.leave()
    stable.respond(code=UnknownMemberIdError.code)
    stable.poll()
    stable.carried_out.finish()
    stable.poll()
    assert stable.sent == []
    assert left.is_done


@pytest.mark.promise("a member that leaves before its first response leaves all the same")
@pytest.mark.parametrize("has_answer", [False, True])
def test_one_whose_first_heartbeat_has_no_response_yet_leaves(has_answer: bool) -> None:
    """The coordinator has it, and would keep its partitions for a whole session."""
    scene = Kip848Scene()
    scene.carried_out.is_slow = True
    scene.membership.request_join()
    scene.poll()
    assert scene.heartbeat().member_epoch == 0
    left = scene.leave()
    assert scene.carried_out.diary == ["lose all"]
    if has_answer:
        scene.respond(1, {A: (0,)})
    scene.carried_out.finish()
    scene.poll()
    assert scene.last_epoch() == -1
    assert scene.is_in(MemberState.UNSUBSCRIBED)
    scene.sent.pop().on_failure(DisconnectedError("gone"), scene.now_ms)
    assert left.is_done


@pytest.mark.promise("a member that leaves before its first response leaves all the same")
def test_one_whose_first_heartbeat_was_lost_leaves() -> None:
    scene = Kip848Scene()
    scene.membership.request_join()
    scene.poll()
    scene.lose_response(DisconnectedError("gone"))
    scene.leave()
    scene.poll()
    assert scene.heartbeat().member_epoch == -1


def test_one_that_joins_and_does_not_poll_leaves_before_a_response() -> None:
    scene = Kip848Scene()
    scene.membership.request_join()
    scene.poll()
    assert scene.heartbeat().member_epoch == 0
    scene.membership.leave_late()
    scene.wait(0)
    assert scene.last_epoch() == -1
    assert scene.is_in(MemberState.STALE)


def test_a_static_member_that_does_not_poll_leaves_for_a_while() -> None:
    scene = Kip848Scene("instance")
    scene.join({A: (0,)})
    scene.membership.leave_late()
    scene.wait(0)
    assert scene.last_epoch() == -2
    assert scene.is_in(MemberState.STALE)


@pytest.mark.promise("a member that leaves before its first response leaves all the same")
@pytest.mark.parametrize("error", [UnreleasedInstanceIdError, CoordinatorLoadInProgressError])
def test_one_that_was_never_let_in_has_nothing_to_leave(error: type[BrokerError]) -> None:
    scene = Kip848Scene("instance")
    scene.membership.request_join()
    scene.poll()
    scene.respond(code=error.code)
    left = scene.leave()
    scene.poll()
    assert scene.sent == []
    assert left.is_done
