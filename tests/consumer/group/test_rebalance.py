"""Rebalances step by step: partitions are held, committed, reported, dropped and taken."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import pytest

from pykclient.consumer.group.assignors import RebalanceProtocol
from pykclient.consumer.group.history import GroupHistory
from pykclient.consumer.group.rebalance import (
    READ_AGAIN,
    Assign,
    Intent,
    LoseAll,
    RebalanceListener,
    Reconciliation,
    RevokeAll,
    RevokeToJoin,
)
from pykclient.consumer.subscription import SubscriptionState
from pykclient.errors import (
    GroupAuthorizationFailedError,
    RebalanceListenerError,
    UsageError,
    WakeupError,
)
from pykclient.network.manager import NEVER_MS, Operation
from pykclient.types import TopicPartition
from tests.consumer.group.member_scene import MAX_POLL_MS, group_config, group_context

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient.consumer.subscription import AssignedPartition
    from pykclient.errors import KafkaError
    from pykclient.network.manager import UserCall

A, B, C = (TopicPartition("t", number) for number in range(3))
LEAVE_MS = 9_000


class Scene:
    """A `Reconciliation` with A and B; buffer, commits and listener write to `events`."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.held: set[TopicPartition] = set()
        """Partitions whose records the buffer does not return."""
        self.subscription = SubscriptionState()
        self.subscription.subscribe(["t"])
        self.user_calls: deque[UserCall] = deque()
        self.commits: list[Operation[None]] = []
        self.commit_deadline_ms = MAX_POLL_MS
        self.is_commit_slow = False
        self.commit_error: KafkaError | None = None
        context = group_context(
            subscription=self.subscription,
            user_calls=self.user_calls,
            drop=self.drop,
            refresh=self.refresh,
            commit=self._commit,
        )
        self.reconciliation = Reconciliation(group_config(), context, GroupHistory())
        self.reconciliation.listener = RebalanceListener(
            lambda partitions: self.write("assigned", partitions),
            lambda partitions: self.write("revoked", partitions),
            lambda partitions: self.write("lost", partitions),
        )
        self.change_to(A, B)
        self.call()
        self.events.clear()

    def change_to(self, *partitions: TopicPartition) -> Intent:
        """Change the assignment to these partitions, instead of an earlier intent."""
        return self._carry_out(Assign(partitions))

    def before_join(self, protocol: RebalanceProtocol) -> Intent:
        """Revoke partitions that must not be kept while joining."""
        return self._carry_out(RevokeToJoin(protocol))

    def give_up(self, intent: Intent) -> Intent:
        """Revoke all partitions; a commit may take until `LEAVE_MS`."""
        intent.commit_deadline_ms = self.commit_deadline_ms = LEAVE_MS
        return self._carry_out(intent)

    def _carry_out(self, intent: Intent) -> Intent:
        self.reconciliation.carry_out(intent, 0)
        return intent

    def write(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(" ".join([what, *map(str, partitions)]))

    def drop(self, assigned: AssignedPartition) -> None:
        self.events.append(f"drop {assigned.partition}")

    def refresh(self, assigned: AssignedPartition) -> None:
        if assigned.is_held:
            self.events.append(f"hold {assigned.partition}")
            self.held.add(assigned.partition)
        else:
            self.held.discard(assigned.partition)

    def _commit(self, deadline_ms: int) -> Operation[None]:
        assert deadline_ms == self.commit_deadline_ms
        self.events.append("commit")
        operation: Operation[None] = Operation()
        if self.commit_error is not None:
            operation.fail(self.commit_error)
        elif not self.is_commit_slow:
            operation.succeed(None)
        self.commits.append(operation)
        return operation

    def call(self) -> None:
        """Make the next call of the listener, as a driver does."""
        call = self.user_calls.popleft()
        try:
            call.function(*call.args)
        except BaseException as error:
            call.on_done(error)
            if not isinstance(error, Exception):
                raise
        else:
            call.on_done(None)

    def call_all(self) -> None:
        """Make all calls of the listener."""
        while self.user_calls:
            self.call()


@pytest.fixture
def scene() -> Scene:
    return Scene()


# Which partitions are revoked and assigned, and in which order.


@pytest.mark.promise("listeners are called on the polling thread, and may call the consumer")
def test_what_can_be_committed_is_held_committed_reported_and_dropped(scene: Scene) -> None:
    intent = scene.change_to(B, C)
    assert A in scene.subscription.partitions, "the listener may still commit it"
    scene.call()
    assert scene.events == ["hold t-0", "commit", "revoked t-0", "drop t-0"]
    assert scene.subscription.partitions == {B, C}
    was_done = intent.is_done
    scene.call()
    assert (was_done, intent.is_done) == (False, True)
    assert scene.events[4:] == ["assigned t-2"]


def test_what_is_lost_is_reported_and_dropped_without_a_commit(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    intent = scene.give_up(LoseAll())
    scene.call()
    assert intent.is_done
    assert scene.events == ["lost t-0 t-1", "drop t-0", "drop t-1"]
    (warning,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert f"lost: t-0, t-1; {READ_AGAIN}" in warning.getMessage()


@pytest.mark.parametrize("method", ["on_partitions_assigned", "on_assigned"])
def test_a_listener_that_is_derived_is_refused_as_its_methods_would_never_run(method: str) -> None:
    reason = r"class Mine: a RebalanceListener is made of functions, .*\(on_assigned=\.\.\., on_rev"
    with pytest.raises(UsageError, match=reason):
        type("Mine", (RebalanceListener,), {method: lambda self, partitions: None})


def test_a_member_that_leaves_revokes_everything(scene: Scene) -> None:
    intent = scene.give_up(RevokeAll())
    scene.call()
    assert intent.is_done
    assert scene.events[2:4] == ["commit", "revoked t-0 t-1"]
    assert not scene.subscription.partitions


def test_before_joining_an_eager_group_everything_is_revoked_even_if_it_is_nothing(
    scene: Scene,
) -> None:
    for revoked in ("revoked t-0 t-1", "revoked"):
        scene.before_join(RebalanceProtocol.EAGER)
        scene.call_all()
        assert [line for line in scene.events if line.startswith("revoked")] == [revoked]
        assert not scene.subscription.partitions
        scene.events.clear()


def test_before_joining_a_cooperative_group_only_what_is_not_wanted_is_revoked(
    scene: Scene,
) -> None:
    gone = TopicPartition("gone", 0)
    scene.change_to(A, gone)
    scene.call_all()
    scene.events.clear()
    scene.before_join(RebalanceProtocol.COOPERATIVE)
    scene.call_all()
    assert scene.events[2:] == ["commit", "revoked gone-0", "drop gone-0"]
    assert scene.subscription.partitions == {A}
    assert A not in scene.held


def test_before_joining_a_cooperative_group_what_is_kept_is_held_while_it_is_committed(
    scene: Scene,
) -> None:
    scene.is_commit_slow = True
    intent = scene.before_join(RebalanceProtocol.COOPERATIVE)
    assert scene.held == {A, B}
    scene.commits[0].succeed(None)
    assert intent.is_done
    assert scene.held == set()
    assert scene.events == ["hold t-0", "hold t-1", "commit"]


def test_without_callbacks_nothing_waits(scene: Scene) -> None:
    scene.reconciliation.listener = RebalanceListener()
    assert scene.change_to(B).is_done
    assert not scene.user_calls


# Commits.


@pytest.mark.promise(
    "closing revokes, commits, leaves or remains in the group (KIP-1092), and ends in time"
)
def test_the_listener_waits_for_the_commit_until_its_deadline(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.is_commit_slow = True
    scene.give_up(RevokeAll())
    assert not scene.user_calls
    assert scene.reconciliation.deadline_ms == LEAVE_MS
    scene.reconciliation.expire(LEAVE_MS - 1)
    assert not scene.user_calls
    scene.reconciliation.expire(LEAVE_MS)
    scene.call()
    assert not scene.subscription.partitions
    assert scene.reconciliation.deadline_ms == NEVER_MS
    assert "has not ended in time" in caplog.text
    assert "continuing: no response yet" in caplog.text
    scene.commits[0].succeed(None)
    assert not scene.user_calls, "it came too late"


@pytest.mark.parametrize("is_slow", [False, True])
def test_a_commit_that_fails_is_logged_and_keeps_no_partition(
    scene: Scene, caplog: pytest.LogCaptureFixture, is_slow: bool
) -> None:
    refused = GroupAuthorizationFailedError("group 'g'")
    scene.is_commit_slow = is_slow
    if not is_slow:  # as where a member was removed before anything could be sent
        scene.commit_error = refused
    scene.change_to(B)
    if is_slow:
        scene.commits[0].fail(refused)
    scene.call_all()
    assert scene.subscription.partitions == {B}
    (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert "may be read again" in record.getMessage()
    assert str(refused) in record.getMessage()


# Listeners.


def test_without_a_callback_of_its_own_lost_is_revoked(scene: Scene) -> None:
    scene.reconciliation.listener = RebalanceListener(
        on_revoked=lambda partitions: scene.write("revoked", partitions)
    )
    scene.give_up(LoseAll())
    scene.call()
    assert scene.events[0] == "revoked t-0 t-1"


def test_what_a_listener_raises_is_kept_and_the_rebalance_goes_on(scene: Scene) -> None:
    def fail(partitions: Sequence[TopicPartition]) -> None:
        raise ValueError(str(len(partitions)))

    scene.reconciliation.listener = RebalanceListener(fail, fail)
    intent = scene.change_to(B, C)
    scene.call_all()
    assert intent.is_done
    assert scene.reconciliation.has_error
    error = scene.reconciliation.take_error()
    assert isinstance(error, RebalanceListenerError)
    assert "on_revoked failed: ValueError('1')" in str(error), "the first one"
    assert scene.reconciliation.take_error() is None


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_listener_comes_out_as_itself_and_once(
    scene: Scene, interrupt: type[BaseException]
) -> None:
    def end(partitions: Sequence[TopicPartition]) -> None:
        raise interrupt

    scene.reconciliation.listener = RebalanceListener(on_revoked=end)
    intent = scene.change_to(B)
    with pytest.raises(interrupt):
        scene.call()
    assert intent.is_done, "the rebalance goes on"
    assert not scene.reconciliation.has_error, "a later call would raise it again"


def test_a_wakeup_inside_a_listener_stays_one(scene: Scene) -> None:
    def wake(partitions: Sequence[TopicPartition]) -> None:
        raise WakeupError

    scene.reconciliation.listener = RebalanceListener(on_revoked=wake)
    scene.change_to(B)
    scene.call()
    assert isinstance(scene.reconciliation.take_error(), WakeupError)


# An intent that replaces another.


def test_a_new_one_takes_the_place_of_one_that_waits(scene: Scene) -> None:
    scene.is_commit_slow = True
    first = scene.change_to(B)
    second = scene.give_up(LoseAll())
    scene.commits[0].succeed(None)
    scene.call()
    assert not first.is_done
    assert second.is_done
    assert not scene.user_calls
    assert not scene.subscription.partitions


def test_what_was_begun_before_a_restart_is_reported_once(scene: Scene) -> None:
    scene.change_to(B)
    scene.reconciliation.restart()
    again = scene.change_to(B, C)
    scene.call_all()
    assert again.is_done
    assert [line for line in scene.events if "drop" not in line and "hold" not in line] == [
        "commit",
        "commit",
        "revoked t-0",
        "assigned t-2",
    ]


def test_what_was_taken_but_not_reported_before_a_restart_is_reported_then(scene: Scene) -> None:
    scene.subscription.assign_from_group([A, B, C])
    scene.reconciliation.restart()
    scene.change_to(A, B, C)
    scene.call()
    assert scene.events == ["assigned t-2"]


def test_what_is_kept_in_the_end_is_held_no_more(scene: Scene) -> None:
    scene.change_to(B)
    scene.change_to(A, B)
    assert not any(assigned.is_held for assigned in scene.subscription)


def test_what_is_reported_as_revoked_is_not_reported_again(scene: Scene) -> None:
    scene.change_to(B)
    again = scene.give_up(RevokeAll())
    scene.call_all()
    assert again.is_done
    assert [line for line in scene.events if line.startswith("revoked")] == [
        "revoked t-0",
        "revoked t-1",
    ]
    assert not scene.subscription.partitions


def test_what_is_reported_as_revoked_is_not_reported_as_lost(scene: Scene) -> None:
    scene.give_up(RevokeAll())
    lost = scene.give_up(LoseAll())
    assert lost.is_done
    assert not scene.subscription.partitions


def test_of_an_intent_that_is_cancelled_nothing_more_is_done(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.is_commit_slow = True
    intent = scene.change_to(B, C)
    intent.cancel()
    scene.reconciliation.expire(MAX_POLL_MS)
    assert scene.reconciliation.deadline_ms == NEVER_MS
    assert caplog.text == "", "its commit is not missed"
    scene.commits[0].succeed(None)
    assert scene.events == ["hold t-0", "commit"]
    assert not scene.user_calls
    assert scene.subscription.partitions == {A, B}
