"""PollLoop: returns records, for `poll`, `poll_arrow` and iteration.

A poll has these stages. It *goes back* to records that an iteration has left. It *enters*: all
other records count as processed, except those of enclosing loops. It lets the *group* go first,
*takes* buffered records, and *waits* if there are none. It then *keeps* its partitions, makes a
step for the next poll, and *leaves*.

Owner: the thread that polls.
Source: the methods ``poll``, ``updateAssignmentMetadataIfNeeded`` and ``pollForFetches`` of Java's
``ClassicKafkaConsumer``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.errors import NotSubscribedError
from pykclient.network.drive import Until, now_ms, run_user_calls
from pykclient.network.manager import NEVER_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pykclient.consumer.offsets.outer import Loop
    from pykclient.consumer.record import RecordSpan
    from pykclient.consumer.subscription import AssignedPartition
    from pykclient.consumer.wiring import Wiring
    from pykclient.errors import KafkaError
    from pykclient.network.drive import Decisions
    from pykclient.types import TopicPartition

    Take = Callable[[int, Callable[[], bool]], list[RecordSpan]]
    """Function that takes records, given the time, and a function that says when to stop."""

NO_LIMITS: Final[Mapping[TopicPartition, int]] = {}

ITERATION_STEP_MS: Final = 1_000
"""Interval at which an iteration without records looks for errors."""

TURN_INTERVAL_MS: Final = 1
"""Minimum interval of engine steps by polls that find buffered records."""

GROUP_TURN_COUNT_MAX: Final = 20
"""Maximum number of group steps before a poll looks for records."""

GROUP_TURN_INTERVAL_MS: Final = 50
"""Maximum time that polls with buffered records put off group steps. A leader must still assign,
and must notice that topics have grown."""


class PollLoop:
    """See the module."""

    def __init__(self, wiring: Wiring) -> None:
        self._max_poll_records = wiring.config.max_poll_records
        self._consumer_timeout_ms = wiring.config.consumer_timeout_ms
        self._engine = wiring.engine
        self._port = wiring.port
        self._subscription = wiring.subscription
        self._buffer = wiring.buffer
        self._records = wiring.records
        self._group = wiring.group
        self._commits = wiring.commits
        self._unprocessed = wiring.unprocessed
        self._heartbeats = wiring.heartbeats
        self._waiting = wiring.waiting
        self._empty_polls = wiring.empty_polls
        self._metrics = wiring.metrics
        self._turned_ms = self._group_turned_ms = 0
        self._turned_at_count = 0
        """Number of responses used up when the last step was made."""
        self._has_kept_error = False
        """True if records were returned while there was an error to raise."""

    def poll(
        self,
        count_max: int,
        timeout_ms: int,
        limits: Mapping[TopicPartition, int] = NO_LIMITS,
        *,
        is_raw: bool = False,
        size_bytes_max: int | None = None,
    ) -> Decisions[list[RecordSpan]]:
        """Return records as soon as there are any; none at the deadline."""
        self._set_limits(limits)

        def take(taken_ms: int, is_over: Callable[[], bool]) -> list[RecordSpan]:
            self._unprocessed.go_back()  # to records of a poll that a listener made inside this one
            spans = self._records.take(
                count_max,
                taken_ms,
                is_over=is_over,
                is_raw=is_raw,
                size_bytes_max=size_bytes_max,
            )
            for span in spans:
                self._unprocessed.add_span(span)
            return spans

        return self._run(take, timeout_ms, step_ms=timeout_ms)

    def next_span(self, loop: Loop) -> Decisions[tuple[AssignedPartition, RecordSpan, int] | None]:
        """Return the next records of one partition, and their fetch epoch.

        The records that `loop` yielded before count as processed. The caller moves the position.
        The step after that may find another leader.
        """
        self._set_limits(NO_LIMITS)
        found: list[tuple[AssignedPartition, RecordSpan, int]] = []

        def take(taken_ms: int, is_over: Callable[[], bool]) -> list[RecordSpan]:
            self._unprocessed.go_back(loop)
            next_span = self._records.next_span(self._max_poll_records, taken_ms, is_over=is_over)
            if next_span is None:
                return []
            assigned, span = next_span
            found.append((assigned, span, assigned.fetch_epoch))
            self._unprocessed.add_to_loop(assigned, span, loop)
            return [span]

        timeout_ms = self._consumer_timeout_ms
        # In steps, at the end of each of which a stall may be reported.
        step_ms = min(timeout_ms or ITERATION_STEP_MS, ITERATION_STEP_MS)
        until_ms = NEVER_MS if timeout_ms is None else timeout_ms
        yield from self._run(take, until_ms, step_ms=step_ms, loop=loop)
        return found[0] if found else None

    def _run(
        self, take: Take, timeout_ms: int, *, step_ms: int, loop: Loop | None = None
    ) -> Decisions[list[RecordSpan]]:
        self._records.check_may_read()
        self._unprocessed.go_back(loop)
        self._check_may_poll()
        try:
            self._enter()
            self._let_group_go_first()
            self._raise_kept_error()
            started_ms = now_ms()
            deadline_ms = started_ms + timeout_ms
            self._metrics.on_poll(started_ms)

            def is_over() -> bool:
                return self._waiting.is_interrupted or now_ms() >= deadline_ms

            spans = take(started_ms, is_over)
            if not spans:
                spans = yield from self._wait(take, is_over, deadline_ms, step_ms)
            if spans:
                self._metrics.on_consumed(spans, now_ms())
            self._has_kept_error = self._has_error
            self._keep_partitions()
            self._turn_if_due()
        finally:
            self._leave()
        return spans

    # The stages of a poll, in their order.

    def _check_may_poll(self) -> None:
        if not len(self._subscription) and not self._subscription.is_by_group:
            raise NotSubscribedError(
                "there is nothing to read: call subscribe() with topics, or assign() with "
                "partitions first"
            )
        if self._waiting.is_interrupted:
            self._unprocessed.clear()
            self._waiting.raise_interruption()

    def _set_limits(self, limits: Mapping[TopicPartition, int]) -> None:
        for assigned in self._subscription.set_limits(limits):
            self._buffer.refresh(assigned)

    def _enter(self) -> None:
        """Begin the poll: commit if that is due, and run user calls."""
        commits = self._commits
        self._unprocessed.clear()
        if commits is not None:
            commits.begin_poll(now_ms())
        # Before records are taken: a callback that commits must not commit those.
        run_user_calls(self._engine)
        # Checked here, too, since there may always be buffered records.
        error = None if commits is None else commits.take_error()
        if error is not None:
            raise error

    def _let_group_go_first(self) -> None:
        """Make group steps, as far as possible without waiting."""
        group = self._group
        if group is None or not self._subscription.is_by_group:
            return
        self._heartbeats.watch()
        started_ms = now_ms()
        group.note_poll(started_ms)
        group.begin_poll()
        for _ in range(GROUP_TURN_COUNT_MAX):
            is_due = started_ms - self._group_turned_ms >= GROUP_TURN_INTERVAL_MS
            if not is_due and not group.wants_turn(started_ms):
                break
            self._group_turned_ms = started_ms
            self._engine.step(started_ms)
            run_user_calls(self._engine)
            started_ms = now_ms()
        # Before records: a consumer that is no longer a member must not read on without an error.
        error = group.take_error() if group.has_error else None
        if error is not None:
            raise error

    def _raise_kept_error(self) -> None:
        """Raise the error of the last poll, so that a busy partition does not hide it."""
        is_due, self._has_kept_error = self._has_kept_error, False
        error = self._take_error() if is_due else None
        if error is not None:
            raise error

    def _wait(
        self, take: Take, is_over: Callable[[], bool], deadline_ms: int, step_ms: int
    ) -> Decisions[list[RecordSpan]]:
        """Wait until there are records, all limits are reached, or the deadline has passed.

        Raises pending errors. At the end of each step it also raises a stall.
        """
        started_ms = now_ms()
        while True:
            until_ms = min(deadline_ms, started_ms + step_ms)
            yield Until(self._may_end_wait, until_ms)
            ended_ms = now_ms()
            spans = take(ended_ms, is_over)
            if spans:
                return spans
            self._waiting.raise_interruption()
            is_done = self._have_all_reached_limits()
            is_late = ended_ms >= until_ms
            error = self._take_error()
            if error is None and is_late and not is_done:
                error = self._empty_polls.reason(started_ms, ended_ms)
            if error is not None:
                raise error
            if is_done or (is_late and until_ms == deadline_ms):
                return []
            if is_late:
                started_ms = ended_ms

    def _may_end_wait(self) -> bool:
        return (
            self._buffer.has_ready
            or self._waiting.is_interrupted
            or self._has_error
            or self._have_all_reached_limits()
        )

    def _have_all_reached_limits(self) -> bool:
        # A member without partitions waits for its assignment.
        return len(self._subscription) > 0 and all(
            assigned.has_reached_limit for assigned in self._subscription
        )

    def _keep_partitions(self) -> None:
        """Allow no revocation from now on: the returned records are the application's."""
        if self._group is not None:
            self._group.end_poll()

    def _turn_if_due(self) -> None:
        """Make a step, unless there was one just now and no response was used up since.

        It sends pending requests and reads received responses, without waiting.
        """
        started_ms = now_ms()
        used_up_count = self._buffer.used_up_count
        is_recent = started_ms - self._turned_ms < TURN_INTERVAL_MS
        if is_recent and used_up_count == self._turned_at_count:
            return
        self._turned_at_count = used_up_count
        self._engine.step(started_ms)
        self._port.wait(0)
        self._turned_ms = now_ms()
        self._engine.complete(self._turned_ms)

    def _leave(self) -> None:
        self._keep_partitions()
        if self._commits is not None:
            self._commits.end_poll()

    # Errors that the next poll raises.

    @property
    def _has_error(self) -> bool:
        return (
            self._subscription.has_error
            or (self._commits is not None and self._commits.has_error)
            or (self._group is not None and self._group.has_error)
        )

    def _take_error(self) -> KafkaError | None:
        """Remove and return the oldest error for `poll` to raise; None if there is none."""
        error = self._subscription.take_error()
        if error is None and self._commits is not None:
            error = self._commits.take_error()
        if error is None and self._group is not None:
            error = self._group.take_error()
        return error
