"""CommitCalls: the consumer's calls about what its group has committed.

Those that wait drive the engine until they are answered or their time is up, and take nothing from
the records that are fetched meanwhile.

Owner: one thread at a time, whichever calls.
Source: the methods of Java's ``KafkaConsumer`` named alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.arguments import check_callable, offsets_by_partition, partition_list
from pykclient.consumer.partition_list import describe_partitions
from pykclient.consumer.public_call import public_call
from pykclient.consumer.queries import BrokerQuestions
from pykclient.errors import UsageError
from pykclient.network.drive import drive_until, now_ms, run_user_calls
from pykclient.network.manager import NEVER_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pykclient.consumer.offsets.commit import Commits
    from pykclient.consumer.record import RecordSpan
    from pykclient.consumer.subscription import AssignedPartition
    from pykclient.errors import KafkaError
    from pykclient.types import OffsetAndMetadata, TopicPartition

    Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]
    CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], KafkaError | None], object]

__all__ = ["CommitCalls"]


class CommitCalls(BrokerQuestions):
    """How far the group has come. All of them need `group_id`; a subscription they do not."""

    @public_call
    def commit(self, offsets: Offsets | None = None, timeout: float | None = None) -> None:
        """Commit offsets and wait until the group's coordinator has them.

        None commits the positions: everything that was handed out counts as processed. Otherwise
        the offset is that of the next record to read, and may bring metadata and a leader epoch
        along. `timeout` is in seconds, None means `default_api_timeout_ms`; what may help is tried
        again until then. Callbacks of earlier `commit_async` calls are called before it returns.

        Raises:
            UsageError: there is no `group_id`, or the offsets are malformed.
            CommitFailedError: this consumer is not the partitions' owner any more.
            RebalanceInProgressError: the group is distributing its partitions; poll, then try
                again. (Both are a `GroupRebalancedError`.)
            FencedInstanceIdError: another member has this one's `group_instance_id`.
            KafkaTimeoutError: the coordinator did not take them in time. It may have.
            BrokerError: it refuses, such as TopicAuthorizationFailedError.
            WakeupError: `wakeup` was called.
        """
        commits = self._require_commits("commit")
        checked = commits.consumed() if offsets is None else offsets_by_partition(offsets, "commit")
        timeout_ms = self._timeout_ms(timeout)
        commit = commits.commit(checked, NEVER_MS)  # given up below
        try:
            is_done = self._drive(
                lambda: commit.operation.is_done, timeout_ms, what="a commit to be taken"
            )
        finally:
            commits.cancel(commit)
        run_user_calls(self._engine)
        if not is_done:
            what = f"the commit of {describe_partitions(checked)}"
            raise self._late(what, timeout_ms, commit.attempt.last_error)
        commit.operation.result()

    @public_call
    def commit_async(
        self, offsets: Offsets | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Commit offsets without waiting, and without trying again.

        They are sent at once where the coordinator is known; else a later call sends them when it
        was found, which may take `default_api_timeout_ms`.

        `callback(offsets, error)` is called from a later call of this consumer on the same thread,
        in the order of these calls; `error` is None after success. What it raises comes out of that
        call. None for `offsets` commits the positions.

        A failure that another commit may cure has `error.retriable`; trying the same again could
        undo a later commit. Without a callback a failure is logged.

        Raises:
            UsageError: there is no `group_id`, or the offsets are malformed.
        """
        commits = self._require_commits("commit_async")
        check_callable(callback, "commit_async: callback", "offsets and error")
        checked = (
            commits.consumed() if offsets is None else offsets_by_partition(offsets, "commit_async")
        )
        started_ms = now_ms()
        deadline_ms = started_ms + self._config.default_api_timeout_ms
        commits.commit_async(checked, deadline_ms, callback)
        self._send_at_once(started_ms)

    @public_call
    def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return what the group has committed for partitions, None where that is nothing.

        They need not be assigned. Offsets that an open transaction commits are waited for.
        `timeout` is in seconds, None means `default_api_timeout_ms`.

        Raises:
            UsageError: there is no `group_id`, or something is no partition.
            KafkaTimeoutError: the coordinator did not answer in time.
            BrokerError: it refuses, such as GroupAuthorizationFailedError.
            WakeupError: `wakeup` was called.
        """
        self._require_commits("committed")
        wanted = partition_list(partitions, "committed")
        if not wanted:
            return {}
        timeout_ms = self._timeout_ms(timeout)
        assert self._committed is not None
        lookup = self._committed.start(wanted)
        try:
            if not self._drive(
                lambda: lookup.operation.is_done, timeout_ms, what="committed offsets"
            ):
                what = f"the committed offsets of {describe_partitions(wanted)}"
                raise self._late(what, timeout_ms, lookup.attempt.last_error)
            return lookup.operation.result()
        finally:
            self._committed.cancel(lookup)

    def _require_commits(self, call: str) -> Commits:
        if self._commits is None:
            raise UsageError(f"{call}() needs a group to commit for: set group_id")
        return self._commits

    def _send_at_once(self, now_ms: int) -> None:
        """Have it on its way when the application works on, as far as that takes no waiting."""
        drive_until(self._engine, self._port, until=lambda: True, deadline_ms=now_ms)

    # For assigning, reading and closing.

    def _commit_before_assigning(self) -> None:
        if self._commits is None or self._subscription.is_by_group:
            return
        started_ms = now_ms()
        if self._commits.commit_if_due(
            started_ms, started_ms + self._config.default_api_timeout_ms
        ):
            self._send_at_once(started_ms)

    def _note_finished(self) -> None:
        """Note that the application has finished with what it had, as it asks for more."""
        if self._commits is not None:
            self._commits.unprocessed.clear()

    def _begin_poll(self) -> None:
        """Note that the application asks for more, and call back what has ended meanwhile."""
        commits = self._commits
        if commits is not None:
            commits.begin_poll(now_ms())
        try:
            # Before records are taken: a callback that commits must not commit those.
            run_user_calls(self._engine)
            # And who always finds records at hand must hear of it, too.
            error = None if commits is None else commits.take_error()
            if error is not None:
                raise error
        except BaseException:
            self._end_poll()
            raise

    def _end_poll(self) -> None:
        if self._commits is not None:
            self._commits.end_poll()

    def _note_unprocessed(self, spans: Iterable[RecordSpan]) -> None:
        """Note what a poll returns, at the moment it is taken."""
        if self._commits is None:
            return
        for span in spans:
            assigned = self._subscription.find(span.partition)
            if assigned is not None:
                self._commits.unprocessed.add(assigned, span.columns.first_offset)

    def _note_iterated(self, assigned: AssignedPartition, span: RecordSpan) -> None:
        """Note what an iteration hands out from now on, record by record."""
        if self._commits is not None:
            self._commits.unprocessed.add_by_record(assigned, span.columns.first_offset)

    def _commit_at_close(self, deadline_ms: int, *, has_finished: bool) -> None:
        """Commit as configured, and let what is under way end, as far as the time goes."""
        commits = self._commits
        if commits is None:
            return
        if has_finished:
            commits.unprocessed.clear()
        last = commits.commit_before_revocation(deadline_ms)

        def is_over() -> bool:
            is_done = last.is_done and not commits.has_unreported
            return is_done or self._metadata.fatal_error is not None

        if not is_over():
            drive_until(self._engine, self._port, until=is_over, deadline_ms=deadline_ms)
        run_user_calls(self._engine)
        if not last.is_done or last.error is not None:
            self._log.warning(
                "closed without the last commit; what it would have told is read again: %s",
                last.error or "there was not enough time",
            )
