"""Commits: sends offset commits to the group's coordinator, in order.

A commit is *waiting* (for the coordinator, a back-off, its turn), *in flight*, or *ended*. A commit
of `commit` is retried until its deadline; one of `commit_async` is never retried. Automatic commits
and commits at a rebalance cover processed records (`Unprocessed`), never records of the same poll;
Java commits all returned records. `group/rebalance.py` describes when a rebalance commits.
Owner: the driver of the engine.
Source: Java classes ``ConsumerCoordinator``, ``CommitRequestManager``; KIP-320 (leader epochs),
KIP-848 (member epochs, topic ids).
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from pykclient.consumer.group.metadata import MEMBERSHIP_ERRORS, commit_refused
from pykclient.consumer.subscription import describe_partitions
from pykclient.errors import (
    BrokerError,
    DisconnectedError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    KafkaError,
    KafkaTimeoutError,
    NotCoordinatorError,
    RebalanceInProgressError,
    RequestTimedOutError,
    StaleMemberEpochError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    error_for_code,
)
from pykclient.network.cluster.cluster import NO_TOPIC_ID
from pykclient.network.log import ClientLog, RateLimitedLog
from pykclient.network.manager import (
    NEVER_MS,
    Operation,
    PollResult,
    Request,
    UserCall,
    check_partitions,
)
from pykclient.network.retry import Attempt
from pykclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.group.group import ConsumerGroup
    from pykclient.consumer.offsets.former_topics import FormerTopics
    from pykclient.consumer.offsets.unprocessed import Unprocessed
    from pykclient.consumer.subscription import AssignedPartition, SubscriptionState
    from pykclient.network.cluster.metadata import Metadata
    from pykclient.network.coordinators import CoordinatorLookup
    from pykclient.network.retry import Backoff
    from pykclient.protocol.message import Message
    from pykclient.types import GroupMetadata, OffsetAndMetadata

    Offsets = dict[TopicPartition, OffsetAndMetadata]
    CommitCallback = Callable[[Offsets, KafkaError | None], object]

TOPIC_NAMES_MAX_VERSION: Final = 9
"""Later versions of OffsetCommit identify topics by id only."""

NO_LEADER_EPOCH: Final = -1

RAISED_ERRORS: Final = (
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    FencedInstanceIdError,
)
"""Errors of automatic commits that `poll` raises; the next commit resolves others."""

GONE_ERRORS: Final = (UnknownTopicOrPartitionError, UnknownTopicIdError)
"""Errors for which a revocation does not wait: the topic was deleted; the rest is committed."""


@dataclass(slots=True, eq=False)
class Commit:
    """One commit; `operation` ends with it."""

    offsets: Offsets
    deadline_ms: int
    attempt: Attempt
    is_retried: bool = False
    is_sent: bool = False
    """True if the coordinator may have received it."""
    keeps_partitions: bool = False
    """True if no other member gets the partitions before it ends, so a newer epoch is fine."""
    topic_ids: dict[TopicPartition, bytes] = field(default_factory=dict)
    """Ids of the topics that the offsets belong to, as far as they are known."""
    owners: dict[TopicPartition, AssignedPartition] | None = None
    """Assignment that it is for, if the application did not choose its offsets."""
    callback: CommitCallback | None = None
    report: UserCall | None = None
    """The call of `callback`, once it is due."""
    number: int = 0
    operation: Operation[None] = field(default_factory=Operation)


class Commits:
    """Manager of all commits of one consumer. Comes after the group's in the engine."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        subscription: SubscriptionState,
        unprocessed: Unprocessed,
        coordinator: CoordinatorLookup,
        metadata: Metadata,
        group: ConsumerGroup,
        retry_backoff: Backoff,
        user_calls: deque[UserCall],
        former_topics: FormerTopics,
        on_commit: Callable[[Offsets], object] | None = None,
    ) -> None:
        self.unprocessed = unprocessed
        self.stored = unprocessed.stored
        """Offsets stored by the application; None if it does not store offsets."""
        self._log = ClientLog("pykclient.consumer", config.client_id)
        self._repeated = RateLimitedLog(self._log)
        self._subscription = subscription
        self._coordinator = coordinator
        self._metadata = metadata
        self._group = group
        self._auto_interval_ms = (
            config.auto_commit_interval_ms if config.enable_auto_commit else None
        )
        """Interval of automatic commits; None if they are off."""
        self._retry_backoff = retry_backoff
        self._user_calls = user_calls
        self._former_topics = former_topics
        self._on_commit = on_commit
        self._commits: dict[Commit, None] = {}
        """All commits that have not ended, in order, waiting or in flight."""
        self._waiting: deque[Commit] = deque()
        self._in_flight: set[Commit] = set()
        self._unreported: deque[Commit] = deque()
        """Commits of `commit_async`, in order, whose callbacks are not due yet."""
        self._count = 0
        self._is_in_poll = False
        self._auto: Commit | None = None
        """The automatic commit under way."""
        self._auto_due_ms: int | None = None
        self._error: KafkaError | None = None

    # For the front-end and the group membership.

    @property
    def is_automatic(self) -> bool:
        return self._auto_interval_ms is not None

    @property
    def has_unreported(self) -> bool:
        return bool(self._unreported)

    def consumed(self) -> Offsets:
        """Return the offsets of an application's commit without offsets.

        During a poll they exclude the records that it has taken. If the application stores offsets,
        these are returned.
        """
        if self._is_in_poll or self.stored is not None:
            return self.processed()
        return self.unprocessed.all_consumed()

    def processed(self) -> Offsets:
        stored = self.stored
        if stored is None:
            return self.unprocessed.all_processed()
        stored.update()
        offsets = {
            assigned.partition: stored.processed(assigned)
            for assigned in self._subscription
            if assigned.has_offset
        }
        if not self._is_in_poll:
            return offsets
        # Records that this poll has taken may not be returned yet.
        returned = self.unprocessed.all_processed()
        return {
            partition: min(offset, returned[partition], key=lambda each: each.offset)
            for partition, offset in offsets.items()
        }

    def note_finished(self, offsets: Offsets) -> None:
        """Mark all records before the offsets as processed, if offsets are stored. Any thread."""
        if self.stored is not None:
            for partition, finished in offsets.items():
                self.stored.note(partition, 0, finished.offset)

    def of_present_topics(self, offsets: Offsets) -> Offsets:
        """Return the offsets without those of topics that are known to be deleted since."""
        topic_ids = self._returned_ids(offsets)
        return {each: offsets[each] for each in offsets if not self._is_former(each, topic_ids)}

    def commit(self, offsets: Offsets | None, deadline_ms: int) -> Commit:
        """Commit, and retry until the deadline.

        None commits the positions. Other offsets are taken to belong to the topics of the records
        returned last.
        """
        return self._start(self._commit_of(offsets, deadline_ms, is_retried=True))

    def commit_async(
        self,
        offsets: Offsets | None,
        deadline_ms: int,
        callback: CommitCallback | None = None,
    ) -> Commit:
        """Commit without retries. Callbacks run in the order of the commits.

        `offsets` is as for `commit`; `deadline_ms` limits the wait for a coordinator.
        """
        commit = self._commit_of(offsets, deadline_ms)
        commit.callback = callback
        self._unreported.append(commit)
        return self._start(commit)

    def _commit_of(
        self, offsets: Offsets | None, deadline_ms: int, *, is_retried: bool = False
    ) -> Commit:
        if offsets is None:
            return self._commit_of_positions(self.consumed(), deadline_ms, is_retried=is_retried)
        attempt = Attempt(self._retry_backoff)
        topic_ids = self._returned_ids(offsets)
        return Commit(offsets, deadline_ms, attempt, is_retried=is_retried, topic_ids=topic_ids)

    def _commit_of_positions(
        self, offsets: Offsets, deadline_ms: int, *, is_retried: bool = False
    ) -> Commit:
        attempt = Attempt(self._retry_backoff)
        topic_ids = {each.partition: each.topic_id for each in self._subscription}
        return Commit(offsets, deadline_ms, attempt, is_retried=is_retried, topic_ids=topic_ids)

    def _returned_ids(self, offsets: Offsets) -> dict[TopicPartition, bytes]:
        """Return the topic ids of the returned records, for offsets that the application chose."""
        found = ((each, self._subscription.find(each)) for each in offsets)
        return {each: assigned.returned_id for each, assigned in found if assigned is not None}

    def returned_topics(self) -> tuple[tuple[str, bytes], ...]:
        """Return name and id of each topic of the returned records.

        A topic with records under two ids is left out.
        """
        ids: dict[str, set[bytes]] = {}
        for each in self._subscription:
            if each.returned_id != NO_TOPIC_ID:
                ids.setdefault(each.partition.topic, set()).add(each.returned_id)
        return tuple((name, found.pop()) for name, found in ids.items() if len(found) == 1)

    def _is_former(
        self, partition: TopicPartition, topic_ids: Mapping[TopicPartition, bytes]
    ) -> bool:
        """Return True if the topic was recreated: offsets of the old one mean nothing in it."""
        topic_id = topic_ids.get(partition, NO_TOPIC_ID)
        now_id = self._former_topics.present_id(self._metadata.cluster, partition.topic)
        return NO_TOPIC_ID not in (topic_id, now_id) and topic_id != now_id

    def commit_before_revocation(self, deadline_ms: int) -> Operation[None]:
        """Commit the processed records before another member may read the partitions.

        Ends at once without automatic commits, or if everything is committed. A failure does not
        delay the revocation: the next owner then reads some records again.
        """
        if self._auto is not None:
            self.cancel(self._auto)  # the new commit covers at least as much
        offsets = self.processed() if self.is_automatic else {}
        if not offsets or self._are_committed(offsets):
            done: Operation[None] = Operation()
            done.succeed(None)
            return done
        commit = self._start(self._commit_of_positions(offsets, deadline_ms, is_retried=True))
        commit.keeps_partitions = True
        commit.owners = {assigned.partition: assigned for assigned in self._subscription}
        return commit.operation

    def _are_committed(self, offsets: Offsets) -> bool:
        """Return whether a commit of these offsets would change nothing."""
        if self._commits:
            return False  # these may change it
        found = ((self._subscription.find(each), offset) for each, offset in offsets.items())
        return all(
            assigned is not None and assigned.committed_offset == offset.offset
            for assigned, offset in found
        )

    def commit_if_due(self, now_ms: int, deadline_ms: int) -> bool:
        """Commit the processed records if the interval is over; return whether it is.

        For partitions that the user is about to drop: no other member commits them later.
        """
        interval_ms = self._auto_interval_ms
        if interval_ms is None or self._auto_due_ms is None or now_ms < self._auto_due_ms:
            return False
        self._auto_due_ms = now_ms + interval_ms
        commit = self._commit_of_positions(self.processed(), deadline_ms)
        self._unreported.append(commit)
        self._start(commit)
        return True

    def cancel(self, commit: Commit) -> None:
        """Cancel a waiting commit; do not retry one that was sent."""
        commit.is_retried = False
        if commit in self._waiting:
            self._waiting.remove(commit)
            self._commits.pop(commit, None)
            if commit is self._auto:
                self._auto = None

    def begin_poll(self, now_ms: int) -> None:
        """Begin a poll: all returned records are processed."""
        self.unprocessed.clear()
        if self.stored is not None:
            self.stored.update()
        self._is_in_poll = True
        interval_ms = self._auto_interval_ms
        if self._auto_due_ms is None and interval_ms is not None:
            self._auto_due_ms = now_ms + interval_ms
        self._commit_automatically(now_ms)

    def end_poll(self) -> None:
        self._is_in_poll = False

    @property
    def has_error(self) -> bool:
        return self._error is not None

    def take_error(self) -> KafkaError | None:
        """Remove and return the error of automatic commits; None if there is none."""
        error, self._error = self._error, None
        return error

    # For the engine.

    def poll(self, now_ms: int) -> PollResult:
        self._expire(now_ms)
        next_poll_ms = self._commit_automatically(now_ms)
        while self._waiting and not (self._waiting[0].offsets or self._in_flight):
            self._end(self._waiting.popleft(), None, now_ms)
        if not self._waiting:
            return PollResult(next_poll_ms=next_poll_ms)
        node_id = self._coordinator.node_id_for(commit.attempt for commit in self._waiting)
        failure = None if node_id is not None else self._coordinator.failure()
        if failure is not None:
            failed, self._waiting = self._waiting, deque()
            for commit in failed:
                self._end(commit, failure, now_ms)
        requests = [] if node_id is None else self._send_due(node_id, now_ms)
        if self._waiting:
            next_poll_ms = min(next_poll_ms, min(commit.deadline_ms for commit in self._waiting))
            # Otherwise it waits for a response: the coordinator's, or one about the coordinator.
            if node_id is not None and self._waiting[0].attempt.due_ms > now_ms:
                next_poll_ms = min(next_poll_ms, self._waiting[0].attempt.due_ms)
        return PollResult(requests, next_poll_ms)

    def forget_calls(self) -> None:
        """Drop retries for calls that wait, since those calls have ended."""
        self._is_in_poll = False
        for commit in tuple(self._commits):
            if commit.is_retried:
                self._commits.pop(commit, None)

    def restart(self, now_ms: int) -> None:
        """Send again what may be retried; fail commits that may not."""
        self._in_flight = set()
        if self._auto is not None:
            self._auto_due_ms = now_ms
            self._commits.pop(self._auto, None)
            self._auto = None
        lost = DisconnectedError("the consumer was interrupted, and this commit was lost")
        for commit in tuple(self._commits):
            if commit.operation.is_done:
                self._commits.pop(commit, None)
            elif commit.is_sent and not commit.is_retried:
                commit.operation.fail(lost)
                self._commits.pop(commit, None)
        self._waiting = deque(self._commits)
        # If the call was interrupted before the commit was stored, there is no caller.
        self._unreported = deque(
            each for each in self._unreported if each.operation.is_done or each in self._commits
        )
        self._report_ended()

    def _start(self, commit: Commit) -> Commit:
        self._count += 1
        commit.number = self._count
        self._commits[commit] = None
        self._waiting.append(commit)
        return commit

    def _commit_automatically(self, now_ms: int) -> int:
        interval_ms = self._auto_interval_ms
        if interval_ms is None or self._auto_due_ms is None or not self._is_in_poll:
            return NEVER_MS
        if self._auto is not None:
            return NEVER_MS
        if now_ms >= self._auto_due_ms:
            self._auto_due_ms = now_ms + interval_ms
            offsets = self.processed()
            if offsets:
                self._auto = self._start(self._commit_of_positions(offsets, NEVER_MS))
                self._auto.owners = {each.partition: each for each in self._subscription}
        return self._auto_due_ms

    def _expire(self, now_ms: int) -> None:
        for commit in [each for each in self._waiting if each.deadline_ms <= now_ms]:
            self._waiting.remove(commit)
            cause = commit.attempt.last_error
            error = KafkaTimeoutError(
                f"the offsets of {describe_partitions(commit.offsets)} could not be committed in "
                f"time: {self._why_waiting(commit)}"
            )
            error.__cause__ = cause
            self._end(commit, error, now_ms)

    def describe_wait(self) -> str:
        """Describe what the oldest commit under way waits for; empty if there is none."""
        for commit in self._commits:
            if commit in self._waiting:
                return self._why_waiting(commit)
            node = self._coordinator.known_node or "the coordinator of the group"
            return f"{node} has not responded to OffsetCommit yet"
        return ""

    def _why_waiting(self, commit: Commit) -> str:
        if commit.attempt.last_error is not None:
            return str(commit.attempt.last_error)
        if self._in_flight:
            return "an earlier commit has no response yet"
        if self._coordinator.known_node is None:
            return "the coordinator of the group is not known yet"
        return "there was no time to send them"

    def _send_due(self, node_id: int, now_ms: int) -> list[Request]:
        requests: list[Request] = []
        # A commit that may be retried must not overtake, or be overtaken by, a newer one.
        while self._waiting and not any(commit.is_retried for commit in self._in_flight):
            commit = self._waiting[0]
            self._leave_out_what_is_gone(commit, now_ms)
            if commit.attempt.due_ms > now_ms or (not commit.offsets and self._in_flight):
                break
            self._waiting.popleft()
            request = self._request(commit, node_id, now_ms) if commit.offsets else None
            if request is not None:
                requests.append(request)
            elif not commit.operation.is_done:
                self._end(commit, None, now_ms)
        return requests

    def _leave_out_what_is_gone(self, commit: Commit, now_ms: int) -> None:
        """Remove partitions that were reassigned, and topics that were deleted.

        Offsets of another member must not be overwritten, even if the partition has come back.
        """
        former = [each for each in commit.offsets if self._is_former(each, commit.topic_ids)]
        if former:
            self._repeated.log(
                logging.WARNING,
                now_ms,
                tuple(former),
                "the offsets of %s are not committed: the topic was deleted and recreated since "
                "they were read, and they mean nothing in the new one",
                describe_partitions(former),
            )
            commit.offsets = {
                each: offset for each, offset in commit.offsets.items() if each not in former
            }
        owners = commit.owners
        if owners is not None:
            commit.offsets = {
                partition: offset
                for partition, offset in commit.offsets.items()
                if self._subscription.find(partition) is owners[partition]
            }

    def _request(self, commit: Commit, node_id: int, now_ms: int) -> Request | None:
        try:
            member = self._group.member()
        except KafkaError as error:
            self._end(commit, error, now_ms)
            return None
        commit.is_sent = True
        self._in_flight.add(commit)
        topic_ids = {
            partition.topic: commit.topic_ids.get(partition, NO_TOPIC_ID)
            for partition in commit.offsets
        }
        for topic, topic_id in topic_ids.items():
            if topic_id == NO_TOPIC_ID:
                topic_ids[topic] = self._metadata.cluster.topic_id(topic)
        call = OffsetCommitCall(member, commit.offsets, topic_ids)
        return Request(
            call.message,
            node_id,
            partial(self._on_response, commit, call, node_id),
            partial(self._on_failure, commit, node_id),
            max_version=call.max_version,
            check=call.check,
        )

    # Responses.

    def _on_response(
        self,
        commit: Commit,
        call: OffsetCommitCall,
        node_id: int,
        message: Message | None,
        now_ms: int,
    ) -> None:
        assert message is not None
        self._in_flight.discard(commit)
        refusals = call.refusals(message)
        if not refusals:
            self._end(commit, None, now_ms)
            return
        error: KafkaError = self._first_error(refusals)
        if isinstance(error, RequestTimedOutError):
            self._coordinator.mark_unknown(node_id, error)
        elif self._coordinator.has_moved(node_id, error):
            pass  # retried below
        elif isinstance(error, MEMBERSHIP_ERRORS) and self._coordinator.is_replaced(node_id):
            error = error_for_code(NotCoordinatorError.code, f"node {node_id} said: {error}")
        elif isinstance(error, (RebalanceInProgressError, *MEMBERSHIP_ERRORS)):
            error = self._group.on_commit_refused(call.member, error)
            if isinstance(error, StaleMemberEpochError) and not commit.keeps_partitions:
                # Another member may own the partitions by now; its offsets must stay.
                error = commit_refused(call.member, error)
        elif error.refresh_metadata:
            self._metadata.request_update()
        is_gone = commit.keeps_partitions and isinstance(error, GONE_ERRORS)
        may_help = error.retriable or isinstance(error, StaleMemberEpochError)
        if commit.is_retried and may_help and not is_gone:
            commit.attempt.back_off(error, now_ms)
            self._try_again(commit, error)
        else:
            self._end(commit, error, now_ms)

    def _on_failure(self, commit: Commit, node_id: int, error: KafkaError, now_ms: int) -> None:
        self._in_flight.discard(commit)
        final_error = commit.attempt.failed(error, now_ms)
        if final_error is None:
            self._coordinator.mark_unknown(node_id, error)
        last_error = commit.attempt.last_error
        assert last_error is not None
        if commit.is_retried and final_error is None:
            self._try_again(commit, last_error)
        else:
            self._end(commit, last_error, now_ms)

    def _first_error(self, refusals: Mapping[TopicPartition, int]) -> BrokerError:
        """Return the error to report of several: one about the group before one about a topic."""
        code = min(refusals.values(), key=lambda code: code == TopicAuthorizationFailedError.code)
        refused = [partition for partition, each in refusals.items() if each == code]
        return error_for_code(
            code,
            f"OffsetCommit of {describe_partitions(refused)} in group {self._coordinator.key!r}",
        )

    def _try_again(self, commit: Commit, error: KafkaError) -> None:
        self._log.debug("a commit is retried: %s", error)
        self._waiting = deque(sorted((*self._waiting, commit), key=lambda each: each.number))

    def _end(self, commit: Commit, error: KafkaError | None, now_ms: int) -> None:
        if error is None:
            self._note_committed(commit)
            commit.operation.succeed(None)
            self._log.debug("committed %s", commit.offsets)
            if self._on_commit is not None and commit.offsets:
                args = (dict(commit.offsets),)
                self._user_calls.append(UserCall(self._on_commit, args, _raise))
        else:
            commit.operation.fail(error)
        if commit is self._auto:
            self._auto = None
            self._on_automatic(error, now_ms)
        self._commits.pop(commit, None)
        self._report_ended()

    def _note_committed(self, commit: Commit) -> None:
        for partition, committed in commit.offsets.items():
            assigned = self._subscription.find(partition)
            is_owner = commit.owners is None or commit.owners.get(partition) is assigned
            if assigned is not None and is_owner:
                assigned.committed_offset = committed.offset

    def _on_automatic(self, error: KafkaError | None, now_ms: int) -> None:
        if error is None:
            return
        if isinstance(error, RAISED_ERRORS):
            self._error = error
        elif error.retriable:
            self._auto_due_ms = now_ms + self._retry_backoff.delay_ms(0)
        level = logging.WARNING
        if error.retriable or isinstance(error, RebalanceInProgressError):
            level = logging.INFO
        self._repeated.log(level, now_ms, (type(error),), "an automatic commit failed: %s", error)

    def _report_ended(self) -> None:
        # Queued before it is removed, so that an interrupt neither loses nor repeats a callback.
        while self._unreported and self._unreported[0].operation.is_done:
            self._report(self._unreported[0])
            self._unreported.popleft()

    def _report(self, commit: Commit) -> None:
        if commit.callback is not None:
            if commit.report is None:
                args = (dict(commit.offsets), commit.operation.error)
                commit.report = UserCall(commit.callback, args, _raise)
            if not commit.report.is_begun and commit.report not in self._user_calls:
                self._user_calls.append(commit.report)
        elif commit.operation.error is not None:
            self._log.error(
                "the commit of %s failed: %s",
                describe_partitions(commit.offsets),
                commit.operation.error,
            )


class OffsetCommitCall:
    """A commit of `offsets` as `member`; `topic_ids` has zeros for topics without a known id."""

    def __init__(
        self,
        member: GroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        topic_ids: Mapping[str, bytes],
    ) -> None:
        self.member = member
        self._offsets = offsets
        topics: dict[str, OffsetCommitRequestTopic] = {}
        self._names_by_id: dict[bytes, str] = {}
        for (name, index), committed in offsets.items():
            topic = topics.get(name)
            if topic is None:
                topic_id = topic_ids[name]
                topic = topics[name] = OffsetCommitRequestTopic(name, topic_id, [])
                self._names_by_id[topic_id] = name
            epoch = committed.leader_epoch
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    index,
                    committed.offset,
                    NO_LEADER_EPOCH if epoch is None else epoch,
                    committed.metadata,
                )
            )
        self.message = OffsetCommitRequest(
            group_id=member.group_id,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            topics=list(topics.values()),
        )
        has_ids = NO_TOPIC_ID not in self._names_by_id
        self.max_version = None if has_ids else TOPIC_NAMES_MAX_VERSION

    def check(self, message: Message) -> None:
        """Check that a response names exactly the committed partitions; raise `DecodeError`."""
        responded = (partition for partition, _ in self._partitions(message))
        check_partitions("OffsetCommit", self._offsets, responded)

    def refusals(self, message: Message) -> dict[TopicPartition, int]:
        return {partition: code for partition, code in self._partitions(message) if code != 0}

    def _partitions(self, message: Message) -> Iterator[tuple[TopicPartition, int]]:
        assert isinstance(message, OffsetCommitResponse)
        for topic in message.topics:
            name = topic.name or self._names_by_id.get(topic.topic_id, "")
            for partition in topic.partitions:
                yield TopicPartition(name, partition.partition_index), partition.error_code


def _raise(error: BaseException | None) -> None:
    if error is not None:
        raise error
