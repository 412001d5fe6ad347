"""A member of a group of KIP-848 leaves: it gives up what it has, then tells the coordinator."""

from __future__ import annotations

import pytest

from pykclient.consumer.group.kip848.state import ModernState
from pykclient.errors import (
    BrokerError,
    CoordinatorLoadInProgressError,
    DisconnectedError,
    FencedInstanceIdError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
)
from tests.consumer.group.kip848_scene import INTERVAL_MS, MAX_POLL_MS, RETRY_MS, A, B, ModernScene


@pytest.fixture
def stable() -> ModernScene:
    """A member that has partition 0 of topic a."""
    scene = ModernScene()
    scene.join({A: (0,)})
    assert scene.is_in(ModernState.STABLE)
    return scene


@pytest.mark.parametrize(
    ("instance_id", "sends", "epoch"),
    [(None, True, -1), (None, False, None), ("i", True, -1), ("i", False, -2)],
)
def test_leaving_gives_up_first_and_then_tells(
    instance_id: str | None, sends: bool, epoch: int | None
) -> None:
    scene = ModernScene(instance_id)
    scene.join({A: (0,)})
    scene.participant.is_slow = True
    left = scene.membership.begin_leave("done", sends=sends, now_ms=scene.now_ms)
    scene.poll()
    assert scene.sent == []
    assert scene.membership.can_commit
    scene.finish()
    scene.poll()
    assert scene.is_in(ModernState.UNSUBSCRIBED)
    assert not scene.membership.member.is_member
    if epoch is None:
        assert scene.sent == []
    else:
        assert scene.told().member_epoch == epoch
        scene.answer()
    assert left.is_done


def test_heartbeats_go_on_while_everything_is_given_up(stable: ModernScene) -> None:
    stable.participant.is_slow = True
    stable.membership.begin_leave("done", sends=True, now_ms=stable.now_ms)
    stable.poll()
    assert stable.sent == []
    stable.wait(INTERVAL_MS)
    assert stable.told().member_epoch == 1
    stable.answer(2, {B: (0,)})
    assert stable.membership.can_commit
    stable.finish()
    stable.poll()
    assert stable.participant.diary == ["give up"]
    assert stable.told().member_epoch == -1


def test_leaving_ends_also_when_the_answer_is_lost_or_nobody_is_there(stable: ModernScene) -> None:
    left = stable.membership.begin_leave("done", sends=True, now_ms=stable.now_ms)
    stable.poll()
    stable.lose_response(DisconnectedError("gone"))
    assert left.is_done
    alone = ModernScene()
    alone.join({A: (0,)})
    alone.coordinator.known = None
    alone_left = alone.membership.begin_leave("done", sends=True, now_ms=alone.now_ms)
    alone.poll()
    assert alone_left.is_done
    assert alone.is_in(ModernState.UNSUBSCRIBED)


def test_one_that_left_may_join_again(stable: ModernScene) -> None:
    stable.membership.begin_leave("done", sends=True, now_ms=stable.now_ms)
    stable.poll()
    stable.answer()
    stable.membership.ask_to_join()
    stable.poll()
    assert stable.told().member_epoch == 0


def test_one_that_is_to_join_while_it_leaves_joins_after_that(stable: ModernScene) -> None:
    stable.participant.is_slow = True
    stable.membership.begin_leave("done", sends=True, now_ms=stable.now_ms)
    stable.poll()
    stable.membership.ask_to_join()
    stable.finish()
    stable.poll(times=1)
    assert stable.told().member_epoch == -1
    stable.answer()
    stable.poll()
    assert stable.told().member_epoch == 0


def test_leaving_ends_what_was_fatal() -> None:
    scene = ModernScene("instance")
    scene.membership.ask_to_join()
    scene.poll()
    scene.answer(code=FencedInstanceIdError.code)
    scene.poll()
    scene.membership.begin_leave("done", sends=True, now_ms=scene.now_ms)
    scene.poll()
    scene.membership.ask_to_join()
    scene.poll(passed_ms=RETRY_MS)
    assert not scene.membership.has_error
    assert scene.told().member_epoch == 0


def test_one_fenced_while_it_gives_up_has_nothing_to_leave(stable: ModernScene) -> None:
    stable.wait(INTERVAL_MS)
    stable.participant.is_slow = True
    left = stable.membership.begin_leave("done", sends=True, now_ms=stable.now_ms)
    stable.answer(code=UnknownMemberIdError.code)
    stable.poll()
    stable.finish()
    stable.poll()
    assert stable.sent == []
    assert left.is_done


@pytest.mark.promise("a member that leaves before its first response leaves all the same")
@pytest.mark.parametrize("has_answer", [False, True])
def test_one_whose_first_heartbeat_is_not_answered_yet_is_told_to_leave(has_answer: bool) -> None:
    """The coordinator has it, and would keep its partitions for a whole session."""
    scene = ModernScene()
    scene.participant.is_slow = True
    scene.membership.ask_to_join()
    scene.poll()
    assert scene.told().member_epoch == 0
    left = scene.membership.begin_leave("done", sends=True, now_ms=scene.now_ms)
    assert scene.participant.diary == ["lose"]
    if has_answer:
        scene.answer(1, {A: (0,)})
    scene.finish()
    scene.poll()
    assert scene.last_epoch() == -1
    assert scene.is_in(ModernState.UNSUBSCRIBED)
    scene.sent.pop().on_failure(DisconnectedError("gone"), scene.now_ms)
    assert left.is_done


@pytest.mark.promise("a member that leaves before its first response leaves all the same")
def test_one_whose_first_heartbeat_was_lost_is_told_to_leave() -> None:
    scene = ModernScene()
    scene.membership.ask_to_join()
    scene.poll()
    scene.lose_response(DisconnectedError("gone"))
    scene.membership.begin_leave("done", sends=True, now_ms=scene.now_ms)
    scene.poll()
    assert scene.told().member_epoch == -1


def test_one_that_joins_and_does_not_poll_leaves_before_it_is_answered() -> None:
    scene = ModernScene()
    scene.membership.ask_to_join()
    scene.poll()
    assert scene.told().member_epoch == 0
    scene.wait(MAX_POLL_MS)
    assert scene.last_epoch() == -1
    assert scene.is_in(ModernState.STALE)


def test_a_static_member_that_does_not_poll_leaves_for_a_while() -> None:
    scene = ModernScene("instance")
    scene.join({A: (0,)})
    scene.wait(MAX_POLL_MS)
    assert scene.last_epoch() == -2
    assert scene.is_in(ModernState.STALE)


@pytest.mark.promise("a member that leaves before its first response leaves all the same")
@pytest.mark.parametrize("error", [UnreleasedInstanceIdError, CoordinatorLoadInProgressError])
def test_one_that_was_never_let_in_has_nothing_to_leave(error: type[BrokerError]) -> None:
    scene = ModernScene("instance")
    scene.membership.ask_to_join()
    scene.poll()
    scene.answer(code=error.code)
    left = scene.membership.begin_leave("done", sends=True, now_ms=scene.now_ms)
    scene.poll()
    assert scene.sent == []
    assert left.is_done
