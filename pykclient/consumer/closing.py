"""Closing: how a consumer releases its partitions and resources: `unsubscribe` and `close`.

Owner: the thread guard.
Source: ``unsubscribe`` and ``close`` of Java's ``KafkaConsumer``; KIP-1092 (membership at close).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors import ClosedError
from pykclient.network.broker.errors import both
from pykclient.network.drive import Until, now_ms, run_user_calls
from pykclient.network.log import ClientLog
from pykclient.network.long_close import LongClose

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.consumer.group.group import ConsumerGroup
    from pykclient.consumer.offsets.commit import Commits
    from pykclient.consumer.wiring import Wiring
    from pykclient.network.drive import Decisions
    from pykclient.network.manager import Operation


class Closing:
    """See the module."""

    def __init__(self, wiring: Wiring) -> None:
        self.is_closing = False
        """True while `close` is running."""
        self.is_shut_down = False
        self._wiring = wiring
        self._is_dynamic = wiring.config.group_instance_id is None
        self._log = ClientLog("pykclient.consumer", wiring.config.client_id)
        self._guard = wiring.guard
        self._metadata = wiring.metadata
        self._client = wiring.client
        self._subscription = wiring.subscription
        self._group = wiring.group
        self._commits = wiring.commits
        self._unprocessed = wiring.unprocessed
        self._long_close: LongClose | None = None
        """Log for calls that take long."""
        self._left: Operation[None] | None = None
        """Ends when the coordinator has received the request to leave; None if there was none."""

    def unsubscribe(self) -> Decisions[None]:
        self._unprocessed.go_back(ends=True)
        if self._group is not None and self._subscription.is_by_group:
            deadline_ms = now_ms() + self._wiring.config.request_timeout_ms
            self._begin_wait("unsubscribe", deadline_ms)
            reason = "the consumer unsubscribed from all topics"
            yield from self._give_up(
                self._group, reason, sends=self._is_dynamic, deadline_ms=deadline_ms
            )
        self._drop_all()
        self._wiring.topics.follow()
        self._raise_listener_error()

    def close(
        self, deadline_ms: int, group_membership: str, *, has_finished: bool
    ) -> Decisions[None]:
        """Commit as configured, leave, and release all resources, even if the rest fails."""
        self._begin_wait("close", deadline_ms)
        try:
            self._unprocessed.go_back(ends=True)
            try:
                yield from self._leave(deadline_ms, group_membership, has_finished=has_finished)
                if self._commits is not None:
                    yield from self._commit(self._commits, deadline_ms, has_finished=has_finished)
            except ClosedError:
                if not self._guard.is_closed:  # else a listener called by this has closed it
                    raise
            if not self._guard.is_closed:
                self._wiring.heartbeats.end(deadline_ms)
                self._drop_all()
                self._end_fetch_sessions()
        finally:
            self.shut_down()
        if has_finished:
            self._raise_listener_error()

    def shut_down(self) -> None:
        """Release all resources, even if torn. It may be interrupted, and called again."""
        if self.is_shut_down:
            return
        self._guard.is_closed = True
        self._wiring.heartbeats.stop()
        self._client.is_closed = True
        self._wiring.port.shutdown()
        self._wiring.records.log_rest()
        self._wiring.interceptors.close()
        self.is_shut_down = True

    def _leave(
        self, deadline_ms: int, group_membership: str, *, has_finished: bool
    ) -> Decisions[None]:
        if self._group is not None and self._subscription.is_by_group:
            if has_finished:
                self._unprocessed.clear()
            by_default = group_membership == "default" and self._is_dynamic
            yield from self._give_up(
                self._group,
                "the consumer is being closed",
                sends=by_default or group_membership == "leave_group",
                deadline_ms=deadline_ms,
            )
        left = self._left
        if left is not None:  # perhaps of an earlier `unsubscribe`, which does not wait for it
            yield from self._until(
                lambda: left.is_done or self._metadata.fatal_error is not None, deadline_ms
            )

    def _give_up(
        self, group: ConsumerGroup, reason: str, *, sends: bool, deadline_ms: int
    ) -> Decisions[None]:
        """Release all partitions, and send the request to leave."""
        started_ms = now_ms()
        # A commit that gets no response must leave time for the listener and the leave request.
        commit_deadline_ms = (started_ms + deadline_ms) // 2
        self._left = group.begin_leave(
            reason, sends=sends, now_ms=started_ms, commit_deadline_ms=commit_deadline_ms
        )
        group.begin_poll()

        def is_over() -> bool:
            return not self._subscription.partitions or self._metadata.fatal_error is not None

        try:
            if not (yield from self._until(is_over, deadline_ms)):
                # Perhaps the process was suspended: call the listener nevertheless.
                yield Until(is_over, now_ms())
            yield Until(lambda: True, now_ms())  # a step that sends the request to leave
        finally:
            group.end_poll()

    def _commit(self, commits: Commits, deadline_ms: int, *, has_finished: bool) -> Decisions[None]:
        """Commit as configured, and finish commits under way until the deadline."""
        if has_finished:
            self._unprocessed.clear()
        last = commits.commit_before_revocation(deadline_ms)

        def is_over() -> bool:
            is_done = last.is_done and not commits.has_unreported
            return is_done or self._metadata.fatal_error is not None

        if not is_over():
            yield from self._until(is_over, deadline_ms)
        run_user_calls(self._wiring.engine)
        if not last.is_done or last.error is not None:
            why = last.error or self._metadata.fatal_error or commits.describe_wait()
            self._log.warning(
                "closed without the last commit; the group continues at its earlier offsets: %s",
                both(str(why), self._client.describe_failures()),
            )

    def _begin_wait(self, call: str, deadline_ms: int) -> None:
        group_id = self._wiring.config.group_id
        self._long_close = LongClose(
            self._log,
            call,
            what=lambda: f"group {group_id!r} to take the last commit, and that this member leaves",
            why=self._client.describe_failures,
            cost="records that are not committed by then are read again",
            started_ms=now_ms(),
            deadline_ms=deadline_ms,
        )

    def _until(self, is_over: Callable[[], bool], deadline_ms: int) -> Decisions[bool]:
        """Wait, and log the reason if it takes long; return whether the condition became true."""
        assert self._long_close is not None
        for until_ms in dict.fromkeys((self._long_close.until_ms(deadline_ms), deadline_ms)):
            if (yield Until(is_over, until_ms)):
                return True
            self._long_close.look(now_ms())
        return False

    def _drop_all(self) -> None:
        for dropped in self._subscription.unsubscribe():
            self._wiring.buffer.drop(dropped)

    def _end_fetch_sessions(self) -> None:
        """End the fetch sessions, if that can be sent without waiting."""
        ended_ms = now_ms()
        for request in self._wiring.fetcher.end_sessions(ended_ms):
            self._client.send(request, ended_ms)
        self._client.prepare(ended_ms)

    def _raise_listener_error(self) -> None:
        error = None if self._group is None else self._group.take_listener_error()
        if error is not None:
            raise error
