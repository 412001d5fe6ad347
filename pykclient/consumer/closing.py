"""GroupCalls: the consumer's calls about its membership in a group.

Owner: one thread at a time, whichever calls.
Source: the group methods of Java's ``KafkaConsumer``; KIP-568 (enforcing), KIP-1092 (closing).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pykclient.arguments import check_text, shown_argument
from pykclient.consumer.commit_calls import CommitCalls
from pykclient.consumer.heartbeat_thread import HeartbeatThread
from pykclient.consumer.public_call import public_call
from pykclient.errors import UsageError
from pykclient.network.drive import drive_until, now_ms, run_user_calls, wall_ms

if TYPE_CHECKING:
    from pykclient.consumer.group.history import Rebalance
    from pykclient.consumer.group.metadata import GroupMetadata
    from pykclient.network.manager import Operation

__all__ = ["GroupCalls"]

MEMBERSHIP_AT_CLOSE: Final = ("default", "leave_group", "remain_in_group")
TURN_COUNT_MAX: Final = 20
"""How often the group's business may go on before a poll looks for records."""
JOIN_MIN_MS: Final = 100
"""How long the heartbeat thread has to end, though the time of `close` is up."""
GROUP_TURN_INTERVAL_MS: Final = 50
"""How long polls may find records at hand before the group's business goes on all the same: a
leader has to share out, and to notice that topics grow."""


class GroupCalls(CommitCalls):
    """Leaving the group, and what is known about it."""

    _heartbeat_thread: HeartbeatThread | None = None
    _left: Operation[None] | None = None
    """Ends when the coordinator has heard that this member leaves; None if it never left."""
    _group_turned_ms = 0

    @public_call
    def unsubscribe(self) -> None:
        """Stop reading, and leave the group if this is a member of one.

        The listener hears of what is given up before this returns. The coordinator is told without
        waiting for its answer; a static member (KIP-345) stays until its session ends.

        Raises:
            RebalanceListenerError: the listener failed. The consumer has left all the same.
        """
        if self._group is not None and self._subscription.is_by_group:
            is_dynamic = self._config.group_instance_id is None
            self._give_up(
                "the consumer unsubscribed from all topics",
                sends=is_dynamic,
                deadline_ms=now_ms() + self._config.request_timeout_ms,
            )
        for dropped in self._subscription.unsubscribe():
            self._buffer.drop(dropped)
        self._follow_topics()
        self._raise_listener_error()

    @public_call
    def enforce_rebalance(self, reason: str = "rebalance enforced by user") -> None:
        """Have the group share its partitions out anew; the next `poll` begins it (KIP-568).

        For assignors that look at something which has changed. `reason` is shown by the
        coordinator (KIP-800).

        Raises:
            UsageError: nothing is subscribed to, or `reason` cannot be sent.
        """
        if self._group is None or not self._subscription.is_by_group:
            raise UsageError("enforce_rebalance() needs a subscription: call subscribe() first")
        if not isinstance(reason, str):
            raise UsageError(f"enforce_rebalance: reason is {shown_argument(reason)}; give text")
        check_text(reason, "reason", "enforce_rebalance")
        self._group.enforce_rebalance(reason)

    @public_call
    def group_metadata(self) -> GroupMetadata:
        """Return who this consumer is in its group now, as transactions want it (KIP-447).

        Raises:
            UsageError: there is no `group_id`.
        """
        return self._require_group("group_metadata").identity

    @public_call
    def group_history(self) -> tuple[Rebalance, ...]:
        """Return the last rebalances of this consumer, the oldest first: when, why, what moved.

        Each prints as one line.

        Raises:
            UsageError: there is no `group_id`.
        """
        history = self._require_group("group_history").history
        return history.rebalances(now_ms(), datetime.fromtimestamp(wall_ms() / 1_000, UTC))

    # For the front-end.

    def _begin_poll(self) -> None:
        """Let the group's business go first, as far as it goes without waiting."""
        super()._begin_poll()
        if self._group is None or not self._subscription.is_by_group:
            return
        self._watch_heartbeats()
        self._group.note_poll(now_ms())
        self._group.begin_poll()
        try:
            for _ in range(TURN_COUNT_MAX):
                started_ms = now_ms()
                is_due = started_ms - self._group_turned_ms >= GROUP_TURN_INTERVAL_MS
                if not is_due and not self._group.wants_turn(started_ms):
                    break
                self._group_turned_ms = started_ms
                self._engine.step(started_ms)
                run_user_calls(self._engine)
            # Before records: who is no member any more must not read on without hearing of it.
            if self._group.has_error:
                self._raise_group_error()
        except BaseException:
            self._end_poll()
            raise

    def _watch_heartbeats(self) -> None:
        """See that heartbeats are sent while the application is away."""
        thread = self._heartbeat_thread
        if thread is not None and thread.failure is not None:
            raise thread.failure
        if thread is not None and thread.is_started:
            return
        if thread is not None:
            thread.stop()  # an interrupt came while it was being started: it may run, or not
        # Noted before it is started, so that there is never one that nobody knows of.
        thread = self._heartbeat_thread = HeartbeatThread(
            self._step_in_background,
            self._guard.background,
            heartbeat_interval_ms=self._config.heartbeat_interval_ms,
            client_id=self._config.client_id,
        )
        thread.start()

    def _end_heartbeats(self, deadline_ms: int) -> None:
        thread = self._heartbeat_thread
        if thread is not None:
            # At least for a moment, or one that ends just now would be called late.
            self._guard.lend(thread.close, max(JOIN_MIN_MS, deadline_ms - now_ms()) / 1_000)
            self._heartbeat_thread = None

    def _keep_partitions(self) -> None:
        """Take nothing away from now on: what poll returns is the application's until the next."""
        if self._group is not None:
            self._group.end_poll()

    def _end_poll(self) -> None:
        self._keep_partitions()
        super()._end_poll()

    def _raise_group_error(self) -> None:
        error = None if self._group is None else self._group.take_error()
        if error is not None:
            raise error

    def _raise_listener_error(self) -> None:
        error = None if self._group is None else self._group.take_listener_error()
        if error is not None:
            raise error

    def _leave_at_close(
        self, deadline_ms: int, group_membership: str, *, has_finished: bool
    ) -> None:
        if self._group is not None and self._subscription.is_by_group:
            self._give_up_at_close(deadline_ms, group_membership, has_finished=has_finished)
        left = self._left
        if left is not None:  # perhaps since `unsubscribe`, which does not wait for it
            drive_until(
                self._engine,
                self._port,
                until=lambda: left.is_done or self._metadata.fatal_error is not None,
                deadline_ms=deadline_ms,
            )

    def _give_up_at_close(
        self, deadline_ms: int, group_membership: str, *, has_finished: bool
    ) -> None:
        if has_finished and self._commits is not None:
            self._commits.unprocessed.clear()
        is_dynamic = self._config.group_instance_id is None
        sends = group_membership == "leave_group" or (group_membership == "default" and is_dynamic)
        self._give_up("the consumer is being closed", sends=sends, deadline_ms=deadline_ms)

    def _give_up(self, reason: str, *, sends: bool, deadline_ms: int) -> None:
        """Give everything up, and begin to tell the coordinator."""
        group = self._group
        assert group is not None
        started_ms = now_ms()
        # A commit that does not get through must leave time for the listener, and for leaving.
        commit_deadline_ms = (started_ms + deadline_ms) // 2
        self._left = group.begin_leave(
            reason, sends=sends, now_ms=started_ms, commit_deadline_ms=commit_deadline_ms
        )
        group.begin_poll()

        def is_over() -> bool:
            return not self._subscription.partitions or self._metadata.fatal_error is not None

        try:
            if not drive_until(self._engine, self._port, until=is_over, deadline_ms=deadline_ms):
                # This process stood still, perhaps: the listener hears of it all the same.
                drive_until(self._engine, self._port, until=is_over, deadline_ms=now_ms())
            self._engine.step(now_ms())  # which sends what tells the coordinator
        finally:
            group.end_poll()


def check_membership_at_close(value: str) -> None:
    """Refuse what is no way to leave.

    Raises:
        UsageError: it is none of the three.
    """
    if value not in MEMBERSHIP_AT_CLOSE:
        raise UsageError(
            f"close(group_membership={shown_argument(value)}): give "
            f"{', '.join(MEMBERSHIP_AT_CLOSE)}"
        )
