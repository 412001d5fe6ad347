"""Partitions change hands step by step: held, committed, told, dropped, taken."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import pytest

from pykclient.consumer.group.history import GroupHistory
from pykclient.consumer.group.rebalance import Intent, RebalanceListener, Reconciliation
from pykclient.consumer.group.wiring import GroupWiring
from pykclient.consumer.subscription import SubscriptionState
from pykclient.errors import RebalanceListenerError, WakeupError
from pykclient.network.cluster.coordinators import Coordinators, GroupCoordinator
from pykclient.network.manager import NEVER_MS, Operation
from pykclient.types import TopicPartition
from tests.consumer.known_cluster import RETRY_BACKOFF, ReachableNetwork, make_metadata

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient.consumer.subscription import AssignedPartition
    from pykclient.network.manager import UserCall

A, B, C = (TopicPartition("t", number) for number in range(3))
DEADLINE_MS = 9_000


class Scene:
    """A handover between a subscription, a buffer, commits and a listener that write a diary."""

    def __init__(self) -> None:
        self.diary: list[str] = []
        self.subscription = SubscriptionState()
        self.subscription.subscribe(["t"])
        self.subscription.assign_from_group([A, B])
        self.user_calls: deque[UserCall] = deque()
        self.commits: list[Operation[None]] = []
        self.is_commit_slow = False
        metadata = make_metadata()
        self.reconciliation = Reconciliation(
            GroupWiring(
                subscription=self.subscription,
                metadata=metadata,
                coordinator=GroupCoordinator(
                    Coordinators(metadata, ReachableNetwork(), retry_backoff=RETRY_BACKOFF), "g"
                ),
                user_calls=self.user_calls,
                drop=self.drop,
                refresh=self.refresh,
                commit=self._commit,
                follow_topics=lambda: None,
            ),
            GroupHistory(),
            client_id="",
        )
        self.reconciliation.listener = RebalanceListener(
            lambda partitions: self.write("assigned", partitions),
            lambda partitions: self.write("revoked", partitions),
            lambda partitions: self.write("lost", partitions),
        )
        self.reconciliation.begin(Intent(), 0)
        self.reconciliation.assign([A, B])
        self.reconciliation.go()
        self.call()
        self.diary.clear()

    def begin(self) -> Intent:
        """Begin with an intent, in place of one before."""
        intent = Intent()
        self.reconciliation.begin(intent, 0)
        return intent

    def write(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        self.diary.append(" ".join([what, *map(str, partitions)]))

    def drop(self, assigned: AssignedPartition) -> None:
        self.diary.append(f"drop {assigned.partition}")

    def refresh(self, assigned: AssignedPartition) -> None:
        assert assigned.is_held
        self.diary.append(f"hold {assigned.partition}")

    def _commit(self, deadline_ms: int) -> Operation[None]:
        assert deadline_ms == DEADLINE_MS
        self.diary.append("commit")
        operation: Operation[None] = Operation()
        if not self.is_commit_slow:
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


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.promise("listeners are called on the polling thread, and may call the consumer")
def test_what_can_be_committed_is_held_committed_told_and_dropped(scene: Scene) -> None:
    operation = scene.begin()
    scene.reconciliation.revoke([A], deadline_ms=DEADLINE_MS)
    scene.reconciliation.go()
    was_done = operation.is_done
    assert not was_done
    assert A in scene.subscription.partitions, "the listener may still commit it"
    scene.call()
    assert operation.is_done
    assert scene.diary == ["hold t-0", "commit", "revoked t-0", "drop t-0"]
    assert scene.subscription.partitions == {B}


def test_what_is_lost_is_told_and_dropped_without_a_commit(scene: Scene) -> None:
    scene.begin()
    scene.reconciliation.lose([A, B])
    scene.reconciliation.go()
    scene.call()
    assert scene.diary == ["lost t-0 t-1", "drop t-0", "drop t-1"]


def test_what_comes_is_taken_before_it_is_told(scene: Scene) -> None:
    scene.begin()
    scene.reconciliation.assign([A, C])
    scene.reconciliation.go()
    assert scene.subscription.partitions == {A, C}
    scene.call()
    assert scene.diary == ["drop t-1", "assigned t-2"]


def test_one_after_the_other(scene: Scene) -> None:
    operation = scene.begin()
    scene.reconciliation.revoke([B], deadline_ms=DEADLINE_MS)
    scene.reconciliation.assign([A, C])
    scene.reconciliation.go()
    scene.call()
    scene.call()
    assert operation.is_done
    assert scene.diary == ["hold t-1", "commit", "revoked t-1", "drop t-1", "assigned t-2"]


@pytest.mark.promise("closing revokes, commits, leaves or remains (KIP-1092), and ends in its time")
def test_the_listener_waits_for_the_commit_until_its_deadline(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.is_commit_slow = True
    scene.begin()
    scene.reconciliation.revoke([A], deadline_ms=DEADLINE_MS)
    scene.reconciliation.go()
    assert not scene.user_calls
    assert scene.reconciliation.deadline_ms == DEADLINE_MS
    scene.reconciliation.expire(DEADLINE_MS - 1)
    assert not scene.user_calls
    scene.reconciliation.expire(DEADLINE_MS)
    scene.call()
    assert scene.subscription.partitions == {B}
    assert scene.reconciliation.deadline_ms == NEVER_MS
    assert "takes too long" in caplog.text
    scene.commits[0].succeed(None)
    assert not scene.user_calls, "it came too late"


def test_without_callbacks_nothing_waits(scene: Scene) -> None:
    scene.reconciliation.listener = RebalanceListener()
    operation = scene.begin()
    scene.reconciliation.revoke([A], deadline_ms=DEADLINE_MS)
    scene.reconciliation.go()
    assert operation.is_done
    assert not scene.user_calls


def test_without_a_callback_of_its_own_lost_is_revoked(scene: Scene) -> None:
    scene.reconciliation.listener = RebalanceListener(
        on_revoked=lambda partitions: scene.write("revoked", partitions)
    )
    scene.begin()
    scene.reconciliation.lose([A])
    scene.reconciliation.go()
    scene.call()
    assert scene.diary[0] == "revoked t-0"


def test_what_a_listener_raises_is_kept_and_the_handover_goes_on(scene: Scene) -> None:
    def fail(partitions: Sequence[TopicPartition]) -> None:
        raise ValueError(str(len(partitions)))

    scene.reconciliation.listener = RebalanceListener(fail, fail)
    operation = scene.begin()
    scene.reconciliation.revoke([A], deadline_ms=DEADLINE_MS)
    scene.reconciliation.assign([B, C])
    scene.reconciliation.go()
    scene.call()
    scene.call()
    assert operation.is_done
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
    operation = scene.begin()
    scene.reconciliation.revoke([A], deadline_ms=DEADLINE_MS)
    scene.reconciliation.go()
    with pytest.raises(interrupt):
        scene.call()
    assert operation.is_done, "the handover goes on"
    assert not scene.reconciliation.has_error, "a later call would raise it again"


def test_a_wakeup_inside_a_listener_stays_one(scene: Scene) -> None:
    def wake(partitions: Sequence[TopicPartition]) -> None:
        raise WakeupError

    scene.reconciliation.listener = RebalanceListener(on_revoked=wake)
    scene.begin()
    scene.reconciliation.revoke([A], deadline_ms=DEADLINE_MS)
    scene.reconciliation.go()
    scene.call()
    assert isinstance(scene.reconciliation.take_error(), WakeupError)


def test_a_new_one_takes_the_place_of_one_that_waits(scene: Scene) -> None:
    scene.is_commit_slow = True
    first = scene.begin()
    scene.reconciliation.revoke([A], deadline_ms=DEADLINE_MS)
    scene.reconciliation.go()
    second = scene.begin()
    scene.reconciliation.lose([A, B])
    scene.reconciliation.go()
    scene.commits[0].succeed(None)
    scene.call()
    assert not first.is_done
    assert second.is_done
    assert not scene.user_calls
    assert not scene.subscription.partitions


def test_what_was_begun_before_a_restart_is_told_once(scene: Scene) -> None:
    scene.begin()
    scene.reconciliation.revoke([A], deadline_ms=DEADLINE_MS)
    scene.reconciliation.go()
    scene.reconciliation.restart()
    again = scene.begin()
    scene.reconciliation.revoke([A], deadline_ms=DEADLINE_MS)
    scene.reconciliation.assign([B, C])
    scene.reconciliation.go()
    while scene.user_calls:
        scene.call()
    assert again.is_done
    assert [line for line in scene.diary if "drop" not in line and "hold" not in line] == [
        "commit",
        "commit",
        "revoked t-0",
        "assigned t-2",
    ]


def test_what_was_taken_but_not_told_before_a_restart_is_told_then(scene: Scene) -> None:
    scene.subscription.assign_from_group([A, B, C])
    scene.reconciliation.restart()
    scene.begin()
    scene.reconciliation.assign([A, B, C])
    scene.reconciliation.go()
    scene.call()
    assert scene.diary == ["assigned t-2"]


def test_what_is_kept_in_the_end_is_held_no_more(scene: Scene) -> None:
    scene.begin()
    scene.reconciliation.revoke([A], deadline_ms=DEADLINE_MS)
    scene.reconciliation.go()
    scene.begin()
    scene.reconciliation.assign([A, B])
    scene.reconciliation.go()
    assert not any(assigned.is_held for assigned in scene.subscription)


@pytest.mark.promise(
    "`close` has one deadline, in both protocols; a listener may close or unsubscribe"
)
def test_who_gives_up_again_while_it_is_told_is_not_told_twice(scene: Scene) -> None:
    scene.begin()
    scene.reconciliation.revoke([A], deadline_ms=DEADLINE_MS)
    scene.reconciliation.go()
    again = scene.begin()
    scene.reconciliation.revoke([A, B], deadline_ms=DEADLINE_MS)
    scene.reconciliation.go()
    while scene.user_calls:
        scene.call()
    assert again.is_done
    assert [line for line in scene.diary if line.startswith("revoked")] == [
        "revoked t-0",
        "revoked t-1",
    ]
    assert not scene.subscription.partitions


@pytest.mark.promise(
    "`close` has one deadline, in both protocols; a listener may close or unsubscribe"
)
def test_who_is_told_of_a_revocation_is_not_told_of_a_loss(scene: Scene) -> None:
    scene.begin()
    scene.reconciliation.revoke([A, B], deadline_ms=DEADLINE_MS)
    scene.reconciliation.go()
    lost = scene.begin()
    scene.reconciliation.lose([A, B])
    scene.reconciliation.go()
    assert lost.is_done
    assert not scene.subscription.partitions


def test_of_an_intent_that_is_cancelled_nothing_more_is_done(scene: Scene) -> None:
    scene.is_commit_slow = True
    intent = scene.begin()
    scene.reconciliation.revoke([A], deadline_ms=DEADLINE_MS)
    scene.reconciliation.assign([B, C])
    scene.reconciliation.go()
    intent.cancel()
    scene.commits[0].succeed(None)
    assert scene.diary == ["hold t-0", "commit"]
    assert not scene.user_calls
    assert scene.subscription.partitions == {A, B}


def test_a_commit_of_an_intent_that_is_cancelled_is_not_missed(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.is_commit_slow = True
    intent = scene.begin()
    scene.reconciliation.revoke([A], deadline_ms=DEADLINE_MS)
    scene.reconciliation.go()
    intent.cancel()
    scene.reconciliation.expire(DEADLINE_MS)
    assert scene.reconciliation.deadline_ms == NEVER_MS
    assert caplog.text == ""
    assert scene.subscription.partitions == {A, B}
