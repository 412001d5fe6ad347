"""ClassicMembership: this consumer as a member of a group with the classic protocol.

States: *unjoined*; *revoking* (partitions that must not be kept while joining are revoked);
*joining* (JoinGroup; a new member first gets its id); *syncing* (SyncGroup; the leader assigns
before); *assigning* (the assignment is taken); *stable*. A rebalance repeats these states from
stable on; *leaving* revokes everything and ends unjoined. It returns changes of partitions as
`Intent`; they happen only while the application polls. Heartbeats, responses and SyncGroup do not
wait for that.

*When its coordinator fails*, positions stay (they belong to the partitions, and fetching needs no
coordinator). Requests and commits (`offsets/commit.py`) wait until `network/coordinators.py` has
found the next one, which has a whole session to respond. Only a response of the present coordinator
ends the membership; then the next poll loses everything, and reading begins at the committed
offsets.

Owner: the core lock.
Source: Java classes ``AbstractCoordinator``, ``Heartbeat``; KIP-62, KIP-345 (static members),
KIP-394 (member ids).
"""

from __future__ import annotations

import logging
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final

from pykclient.consumer.group.assignors.setting import common_protocol
from pykclient.consumer.group.classic.assignment import ListedAssignment
from pykclient.consumer.group.classic.leader import GroupLeader, UnassignedPartitions
from pykclient.consumer.group.classic.protocol import (
    PROTOCOL_TYPE,
    heartbeat_request,
    heartbeat_timeout_ms,
    join_request,
    join_timeout_ms,
    leave,
    sync_request,
)
from pykclient.consumer.group.classic.subscription import JoinedSubscription
from pykclient.consumer.group.metadata import (
    AT_ONCE_COUNT,
    check_member,
    commit_in_rebalance,
    commit_refused,
)
from pykclient.consumer.group.rebalance import Assign, Intent, LoseAll, RevokeAll, RevokeToJoin
from pykclient.errors import (
    DecodeError,
    DisconnectedError,
    FencedInstanceIdError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    KafkaError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    error_for_code,
)
from pykclient.network.interrupts import raise_of_signal_handler
from pykclient.network.log import ClientLog
from pykclient.network.manager import NEVER_MS, SILENT_MS, Operation, PollResult, Request
from pykclient.network.retry import Attempt
from pykclient.protocol.messages.heartbeat import HeartbeatResponse
from pykclient.protocol.messages.join_group import JoinGroupResponse
from pykclient.protocol.messages.sync_group import SyncGroupResponse
from pykclient.types import GroupMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.group.assignors import Assignor
    from pykclient.consumer.group.history import GroupHistory
    from pykclient.consumer.group.identity import MemberIdentity
    from pykclient.consumer.group.rebalance import GroupContext
    from pykclient.errors import BrokerError
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.network.retry import Backoff
    from pykclient.protocol.message import Message
    from pykclient.protocol.message import Request as RequestMessage
    from pykclient.types import TopicPartition


class ClassicState(Enum):
    UNJOINED = "unjoined"
    REVOKING = "revoking"
    JOINING = "joining"
    SYNCING = "syncing"
    ASSIGNING = "assigning"
    STABLE = "stable"
    LEAVING = "leaving"


_S = ClassicState
NEXT: Final[dict[ClassicState, frozenset[ClassicState]]] = {
    _S.UNJOINED: frozenset({_S.REVOKING, _S.LEAVING}),
    _S.REVOKING: frozenset({_S.JOINING, _S.UNJOINED, _S.LEAVING}),
    _S.JOINING: frozenset({_S.SYNCING, _S.UNJOINED, _S.LEAVING}),
    _S.SYNCING: frozenset({_S.ASSIGNING, _S.JOINING, _S.UNJOINED, _S.LEAVING}),
    _S.ASSIGNING: frozenset({_S.STABLE, _S.UNJOINED, _S.LEAVING}),
    _S.STABLE: frozenset({_S.REVOKING, _S.ASSIGNING, _S.UNJOINED, _S.LEAVING}),
    _S.LEAVING: frozenset({_S.UNJOINED}),
}
HAVE_GENERATION: Final = frozenset({_S.REVOKING, _S.ASSIGNING, _S.STABLE, _S.LEAVING})
"""States in which a member may commit."""

REMOVED: Final = (UnknownMemberIdError.code, IllegalGenerationError.code)
"""Errors that mean this is no longer a member, or not in this generation."""

REJECTION_MAX_MS: Final = 5_000
"""Time after which a JoinGroup counts as accepted: the coordinator waits for the group."""


class Heartbeat:
    """Times of the next heartbeat and of the session's end. Sends nothing.

    It is stopped while this is not a member; nothing is due then.
    """

    def __init__(self, config: ConsumerConfig, retry_backoff: Backoff) -> None:
        self._config = config
        self._attempt = Attempt(retry_backoff)
        self._session_ends_ms = NEVER_MS
        self.stop()

    @property
    def is_started(self) -> bool:
        return self._session_ends_ms != NEVER_MS

    @property
    def is_in_flight(self) -> bool:
        return self._attempt.is_in_flight

    @property
    def next_ms(self) -> int:
        return min(self._attempt.next_ms, self._session_ends_ms)

    def is_due(self, now_ms: int) -> bool:
        return self._attempt.is_due(now_ms)

    def has_session_ended(self, now_ms: int) -> bool:
        return now_ms >= self._session_ends_ms

    def start(self, now_ms: int) -> None:
        """Restart the times, since the coordinator has just responded to this member."""
        self._attempt.failure_count = 0
        self._attempt.due_ms = now_ms + self._config.heartbeat_interval_ms
        self._session_ends_ms = now_ms + self._config.session_timeout_ms

    def begin_session(self, now_ms: int) -> None:
        """Give a coordinator that was just found a session to respond, if this is a member."""
        if self.is_started:
            self._session_ends_ms = now_ms + self._config.session_timeout_ms

    def restart(self, now_ms: int) -> None:
        """Send a heartbeat at once, if this is a member: the last response was lost."""
        self._attempt.lost()
        if self.is_started:
            self._attempt.due_ms = now_ms

    def stop(self) -> None:
        """Stop. A response to a heartbeat in flight no longer counts."""
        self._attempt.lost()
        self._attempt.due_ms = self._session_ends_ms = NEVER_MS

    def on_sent(self, now_ms: int) -> None:
        self._attempt.sent()
        self._attempt.due_ms = now_ms + self._config.heartbeat_interval_ms

    def on_received(self, now_ms: int) -> None:
        self._attempt.lost()
        self._attempt.failure_count = 0
        self.begin_session(now_ms)

    def on_failed(self, error: KafkaError, now_ms: int) -> None:
        self._attempt.lost()
        if self.is_started:
            self._attempt.back_off(error, now_ms)


class ClassicMembership:
    """The member. `request_join` makes it join; `begin_leave` ends the membership."""

    protocol: Final = "classic"

    def __init__(
        self,
        config: ConsumerConfig,
        context: GroupContext,
        history: GroupHistory,
        assignors: Sequence[Assignor],
        *,
        identity: MemberIdentity,
    ) -> None:
        self.member = GroupMetadata(
            context.coordinator.key, group_instance_id=config.group_instance_id
        )
        """The member as the coordinator knows it."""
        self.rejection: KafkaError | None = None
        """Last error by which the coordinator refused this member; None if it accepted it."""
        self.state = ClassicState.UNJOINED
        self.left: Operation[None] = Operation()
        self._config = config
        self._coordinator = context.coordinator
        self._metadata = context.metadata
        self._subscription = context.subscription
        self._history = history
        self._identity = identity
        self._log = ClientLog("pykclient.consumer", config.client_id)
        named = {assignor.name: assignor for assignor in assignors}
        self._revoke_protocol = common_protocol(assignors)
        self._joined_with = JoinedSubscription(config, context, named)
        self._assigned = ListedAssignment(context)
        self._leader = GroupLeader(config, context, named)
        self._unassigned = UnassignedPartitions(context, self._log)
        self._compared_version = 0
        """Version of the cluster that was last compared with the leader's assignment."""
        self._heartbeat = Heartbeat(config, context.retry_backoff)
        self._attempt = Attempt(context.retry_backoff)
        """Attempt to join."""
        self._rejoin_reason: str | None = None
        """Reason to join; None if there is none."""
        self._intent: Intent | None = None
        """The change of partitions under way."""
        self._was_member = False
        """True if it was a member when it returned the intent."""
        self._call: object | None = None
        """The JoinGroup or SyncGroup in flight; responses to other requests are late."""
        self._node_id: int | None = None
        """The coordinator as of the last poll."""
        self._call_node_id = 0
        self._call_sent_ms = 0
        self._due_count = 0
        """Number of JoinGroup and SyncGroup requests without a response, invalid ones included."""
        self._protocol = ""
        self._joined: JoinGroupResponse | None = None
        """Response for which the leader has yet to assign."""
        self._assignments: Sequence[tuple[str, bytes]] | None = None
        """Assignments of all members, if this one is the leader."""
        self._assignment: bytes | None = None
        self._leave_requests: list[Request] = []
        self._leave_reason = ""
        self._sends_leave = False
        self._error: KafkaError | None = None

    # For the group.

    @property
    def topics(self) -> frozenset[str]:
        return self._leader.topics

    @property
    def unlisted(self) -> list[TopicPartition]:
        """Partitions that metadata does not list yet, one per topic; the member waits for them."""
        return self._assigned.unlisted

    @property
    def is_outside(self) -> bool:
        """True if the coordinator has no such member, and no change is under way."""
        return (
            self.state is ClassicState.UNJOINED
            and self._intent is None
            and not self.member.member_id
        )

    @property
    def can_commit(self) -> bool:
        return self.member.is_member and self.state in HAVE_GENERATION

    @property
    def is_rebalancing(self) -> bool:
        return self.state in (ClassicState.JOINING, ClassicState.SYNCING)

    @property
    def has_request_in_flight(self) -> bool:
        return self._call is not None or self._heartbeat.is_in_flight or bool(self._leave_requests)

    @property
    def has_error(self) -> bool:
        return self._error is not None

    def take_error(self) -> KafkaError | None:
        error = self._error
        if error is not None and not error.fatal:
            self._error = None
        return error

    def on_subscribed(self) -> None:
        self._joined_with.begin()
        if not self.member.is_member and self._rejoin_reason is None:
            self.request_join("the consumer has subscribed")  # else `_notice_changes` sees it

    def match(self, cluster: Cluster) -> None:
        self._joined_with.match(cluster)

    def enforce_rebalance(self, reason: str) -> None:
        self.request_join(reason)

    def request_join(self, reason: str) -> None:
        """Request to join, or join again, at the application's next poll."""
        # A further failure for the same reason is no news.
        level = logging.DEBUG if reason == self._rejoin_reason else logging.INFO
        self._log.log(level, "(re)joining group %r: %s", self.member.group_id, reason)
        self._rejoin_reason = reason

    @property
    def must_poll(self) -> bool:
        """True if it leaves when the application does not poll for `max_poll_interval_ms`."""
        return self._heartbeat.is_started and self.state is not ClassicState.LEAVING

    def wants_turn(self, now_ms: int) -> bool:
        """Return True if `advance` would change something now."""
        if self._intent is not None:
            return self._intent.is_done
        if self.state in (ClassicState.UNJOINED, ClassicState.STABLE):
            return self._may_begin(now_ms) or self._has_more()
        return self.state in (ClassicState.ASSIGNING, ClassicState.LEAVING)

    def begin_leave(self, reason: str, *, sends: bool) -> Intent:
        """Leave when the returned intent has been carried out; `left` ends then.

        With `sends` False the coordinator keeps the member until its session ends.
        """
        self._rejoin_reason = self._joined_with.topics = None
        was_member = self.member.is_member and not self.is_rebalancing
        self._forget_calls()
        self._leave_reason = reason
        if self.state is ClassicState.LEAVING:
            # A second call, by the listener that the first one calls: both wait for the same end.
            self._sends_leave = self._sends_leave or sends
        else:
            self._sends_leave = sends
            self.left = Operation()
            self._to(ClassicState.LEAVING)
        return self._give_up(RevokeAll() if was_member else LoseAll())

    def on_commit_refused(self, sent: GroupMetadata, error: BrokerError) -> KafkaError:
        """Handle the coordinator's refusal of a commit by `sent`; return the error to raise."""
        if sent != self.member and not isinstance(error, RebalanceInProgressError):
            # Even an instance id that was fenced then may be this member's own by now.
            if self.is_rebalancing:
                return commit_in_rebalance(sent.group_id)
            return commit_refused(sent, error)
        if sent == self.member:
            if isinstance(error, FencedInstanceIdError):
                self._fail(error_for_code(error.code, self._about("OffsetCommit")))
            elif isinstance(error, RebalanceInProgressError):
                self.request_join("offset commit failed since group is already rebalancing")
            elif error.code in REMOVED:
                self._lose_generation("OffsetCommit", error.code)
        if error.fatal or isinstance(error, RebalanceInProgressError):
            return error
        return commit_refused(sent, error)

    def advance(self, now_ms: int) -> Intent | None:
        """Continue while the application polls; return a new intent to carry out first."""
        self._notice_changes()
        if self.state is ClassicState.SYNCING:
            self._lead(now_ms)
        elif self.state in (ClassicState.UNJOINED, ClassicState.STABLE):
            if self._may_begin(now_ms):
                return self._begin(now_ms)
            if self._has_more():
                return self._assign_more(now_ms)
        elif self.state is ClassicState.ASSIGNING and self._intent is None:
            return self._assign(now_ms)
        return None

    def poll(self, now_ms: int, *, may_rebalance: bool) -> PollResult:
        """Return the requests to send, and when to poll again."""
        if may_rebalance and self._intent is not None and self._intent.is_done:
            self._on_carried_out(self._intent, now_ms)
        node_id = self._coordinator.node_id() if self._wants_coordinator() else None
        if node_id not in (None, self._node_id):
            self._heartbeat.begin_session(now_ms)  # it could not send heartbeats before
        self._node_id = node_id
        self._follow_coordinator(node_id, now_ms)
        requests, self._leave_requests = self._leave_requests, []
        if node_id is not None:
            requests += self._due_requests(node_id, now_ms, may_rebalance=may_rebalance)
        next_ms = self._next_ms(now_ms, has_coordinator=node_id is not None)
        described = self._unassigned.poll(now_ms)
        return PollResult([*requests, *described.requests], min(next_ms, described.next_poll_ms))

    def restart(self, now_ms: int, *, is_wanted: bool) -> None:
        """Drop requests in flight after an interrupt; repeat a rebalance that was under way.

        A member is settled when it is stable without an intent: every rebalance does that last, and
        undoes it first.
        """
        is_settled = (
            self.state is ClassicState.STABLE
            and self._intent is None
            and self.member.is_member
            and self._heartbeat.is_started
        )
        self._forget_calls()
        self._unassigned.restart()
        self._intent = None
        self._due_count = 0
        self._leave_requests = []
        self.left.succeed(None)
        self._heartbeat.restart(now_ms)
        if is_settled:
            return
        self._assigned.forget()
        self.state = ClassicState.UNJOINED
        if not self.member.is_member:
            self._heartbeat.stop()
        self._rejoin_reason = "a call of the application was interrupted" if is_wanted else None

    def _wants_coordinator(self) -> bool:
        return self._rejoin_reason is not None or self.state is not ClassicState.UNJOINED

    def _next_ms(self, now_ms: int, *, has_coordinator: bool) -> int:
        retry_ms = self._attempt.due_ms if self._attempt.due_ms > now_ms else NEVER_MS
        may_send = has_coordinator and self._call is None
        beat_ms = self._heartbeat.next_ms if may_send else NEVER_MS
        return max(now_ms, min(retry_ms, beat_ms))

    def _follow_coordinator(self, node_id: int | None, now_ms: int) -> None:
        """Fail the request in flight if the coordinator has changed, so that it is sent again.

        A coordinator may wait for the whole group before it responds. Or it hangs and has been
        replaced, which `Coordinators` finds out.
        """
        if self._call is None:
            return
        if now_ms >= self._call_sent_ms + REJECTION_MAX_MS:
            self.rejection = None
        if node_id is not None and node_id != self._call_node_id:
            self._call = None
            gone = DisconnectedError(f"the coordinator of group {self.member.group_id!r} has moved")
            self._on_call_failed(gone, self._call_node_id, now_ms)

    def _may_begin(self, now_ms: int) -> bool:
        return (
            self._rejoin_reason is not None
            and self._error is None
            and self._attempt.is_due(now_ms)
            and self._coordinator.node_id() is not None
            and self._joined_with.is_known
        )

    def _begin(self, now_ms: int) -> Intent:
        assert self._rejoin_reason is not None
        self._to(ClassicState.REVOKING)
        self._history.begin(self._rejoin_reason, now_ms)
        self._was_member = self.member.is_member
        return self._give_up(RevokeToJoin(self._revoke_protocol) if self._was_member else LoseAll())

    def _give_up(self, intent: Intent) -> Intent:
        self._assigned.forget()
        self._leader.resign()
        self._unassigned.forget()
        self._intent = intent
        return intent

    def _notice_changes(self) -> None:
        """Join again if the data from which the last assignment was made have changed.

        Called in each step, and costs nothing if nothing has changed.
        """
        if self._unassigned.has_found:
            self._unassigned.forget()
            self.request_join("partitions came while this leader restarted")
        wanted, version = self._subscription.wanted_topics, self._metadata.cluster.version
        joined = self._joined_with.topics
        if version == self._compared_version and (wanted is joined or wanted == joined):
            return
        if self._rejoin_reason is not None or not self.member.is_member:
            return
        if not self._joined_with.is_known:
            return
        if not self._metadata.cluster.nodes:
            return  # metadata starts over: what it knew before is still the best
        if joined not in (None, wanted):
            self.request_join("subscription has changed")
            return
        self._compared_version = version
        if self._leader.is_outdated():
            self.request_join("cached metadata has changed")

    def _lead(self, now_ms: int) -> None:
        if self._joined is None:
            return
        try:
            self._assignments = self._leader.assign(self._protocol, self._joined)
        except KafkaError as error:
            raise_of_signal_handler(error)
            self._fail_join(error, now_ms)
            return
        if self._assignments is not None:
            self._joined = None

    def _assign(self, now_ms: int) -> Intent | None:
        if self._assignment is None:
            self._to(ClassicState.UNJOINED)  # the generation was lost before the assignment
            return None
        data, self._assignment = self._assignment, None
        try:
            assigned = self._joined_with.assigned(self._protocol, data, self.member)
        except KafkaError as error:
            raise_of_signal_handler(error)
            self._fail_join(error, now_ms)
            return None
        self._identity.complete(self.member)
        if assigned is None:
            self.request_join("received assignment does not match the current subscription")
            self._to(ClassicState.STABLE)
            self._history.end(now_ms)
            return None
        self._assigned.replace(assigned)
        intent = self._intent = Assign(self._assigned.take())
        if not self._subscription.partitions <= set(assigned):
            intent.rejoin_reason = "need to revoke partitions and re-join"
        if self._leader.unsent is not None:
            self._unassigned.compare(self._leader.unsent)
            self._leader.unsent = None
        self._was_member = True
        return intent

    def _has_more(self) -> bool:
        is_settled = self.state is ClassicState.STABLE and self._rejoin_reason is None
        return is_settled and self._assigned.has_news()

    def _assign_more(self, now_ms: int) -> Intent:
        """Take the assigned partitions that metadata lists by now."""
        self._to(ClassicState.ASSIGNING)
        self._history.begin("metadata list more of the assigned partitions", now_ms)
        self._history.note_generation(self.member, self._protocol, self.protocol)
        self._was_member = True
        intent = self._intent = Assign(self._assigned.take())
        return intent

    def _on_carried_out(self, intent: Intent, now_ms: int) -> None:
        self._intent = None
        if intent.error is not None:
            self._fail_join(intent.error, now_ms)
        elif self.state is ClassicState.LEAVING:
            self._leave()
            self._history.end(now_ms)
        elif self.member.is_member != self._was_member:
            # The generation was lost meanwhile, and so the partitions that are still held.
            self._history.fail("the generation was lost meanwhile", now_ms)
            self._to(ClassicState.UNJOINED)
        elif self.state is ClassicState.REVOKING:
            self._to(ClassicState.JOINING)
        else:
            if intent.rejoin_reason is not None:
                self.request_join(intent.rejoin_reason)
            self._to(ClassicState.STABLE)
            self._history.end(now_ms)

    # Sending.

    def _due_requests(self, node_id: int, now_ms: int, *, may_rebalance: bool) -> list[Request]:
        if self._call is not None:
            return []  # a heartbeat would wait behind it
        if self._attempt.is_due(now_ms) and self._error is None:
            if self.state is ClassicState.JOINING and may_rebalance and self._joined_with.is_known:
                return [self._join(node_id, now_ms)]
            if self.state is ClassicState.SYNCING and self._joined is None:
                return [self._sync(node_id, now_ms)]
        if self._heartbeat.has_session_ended(now_ms):
            self._coordinator.mark_unknown(node_id, "no response to a heartbeat for a session")
            self._heartbeat.restart(now_ms)
            self._heartbeat.begin_session(now_ms)
        elif self._heartbeat.is_due(now_ms):
            self._heartbeat.on_sent(now_ms)
            return [self._send_heartbeat(node_id)]
        return []

    def _join(self, node_id: int, now_ms: int) -> Request:
        self._heartbeat.stop()
        level = logging.DEBUG if self._attempt.failure_count else logging.INFO
        self._log.log(level, "group %r: joining as %r", self.member.group_id, self.member.member_id)
        reason = self._rejoin_reason or ""
        message = join_request(
            self.member, self._joined_with.encoded(self.member), self._config, reason
        )
        return self._send(message, node_id, self._on_joined, now_ms)

    def _sync(self, node_id: int, now_ms: int) -> Request:
        message = sync_request(self.member, self._protocol, self._assignments or ())
        return self._send(message, node_id, self._on_synced, now_ms)

    def _send(
        self,
        message: RequestMessage,
        node_id: int,
        on_received: Callable[[Message, int, int], None],
        sent_ms: int,
    ) -> Request:
        call = self._call = object()
        self._call_node_id = node_id
        self._call_sent_ms = sent_ms
        self._due_count += 1

        def on_response(response: Message | None, now_ms: int) -> None:
            self._due_count -= 1
            if self._call is call:
                self._call = None
                assert response is not None
                on_received(response, node_id, now_ms)

        def on_failure(error: KafkaError, now_ms: int) -> None:
            self._due_count -= 1
            if self._call is call:
                self._call = None
                self._on_call_failed(error, node_id, now_ms)

        return Request(
            message,
            node_id,
            on_response,
            on_failure,
            timeout_ms=join_timeout_ms(self._config),
            silent_ms=max(SILENT_MS, self._config.max_poll_interval_ms),  # it waits for the group
        )

    def _send_heartbeat(self, node_id: int) -> Request:
        member = self.member
        return Request(
            heartbeat_request(member),
            node_id,
            partial(self._on_heartbeat, member, node_id),
            partial(self._on_heartbeat_failed, node_id),
            timeout_ms=heartbeat_timeout_ms(self._config),
        )

    # Leaving.

    def leave_late(self) -> None:
        """Leave because the application does not poll; its next poll loses everything."""
        self._leave_reason = "consumer poll timeout has expired."
        self._sends_leave = self.member.group_instance_id is None
        self.left = Operation()
        self._leave()
        self.request_join("consumer pro-actively leaving the group")

    def _leave(self) -> None:
        """Notify the coordinator, if it is known and knows this member; wait for nothing."""
        # A broker responds in order per connection, and to JoinGroup when all members have sent it.
        where = self._coordinator.data_node_id if self._due_count else self._coordinator.node_id
        node_id = where() if self.member.member_id else None
        if self._sends_leave and node_id is not None:
            request = leave(self.member, self._leave_reason, node_id, left=self.left, log=self._log)
            self._leave_requests.append(request)
        else:
            self.left.succeed(None)
        if self._intent is not None:
            self._intent.cancel()  # another member may own what it would still revoke
            self._intent = None
        if self.state is not ClassicState.UNJOINED:  # after an interrupt a member may be unjoined
            self._to(ClassicState.UNJOINED)
        self._forget_round()
        self.member = self.member.without_member_id()

    # Responses.

    def _on_joined(self, response: Message, node_id: int, now_ms: int) -> None:
        assert isinstance(response, JoinGroupResponse)
        code = response.error_code
        is_named = (
            code == MemberIdRequiredError.code
            and bool(response.member_id)
            and not self.member.member_id
        )
        try:
            if code == 0 or is_named:
                check_member("JoinGroup", response.member_id, 0 if code else response.generation_id)
        except DecodeError as error:
            self._fail_join(error, now_ms)
            return
        if code == 0:
            self._on_generation(response, now_ms)
        elif is_named:
            # KIP-394: a new member begins so, which is not a failure; for others it is a refusal.
            self.member = self.member._replace(member_id=response.member_id)
            self._rejoin_reason = f"need to re-join with the given member-id: {response.member_id}"
        else:
            self._on_rejected("JoinGroup", code, node_id, now_ms)

    def _on_generation(self, response: JoinGroupResponse, now_ms: int) -> None:
        if response.protocol_type not in (None, PROTOCOL_TYPE):
            code = InconsistentGroupProtocolError.code
            self._fail_join(error_for_code(code, self._about("JoinGroup")), now_ms)
            return
        self.member = self.member._replace(
            generation=response.generation_id, member_id=response.member_id
        )
        self._protocol = response.protocol_name or ""
        self.rejection = None
        is_leader = response.leader == response.member_id
        self._joined = response if is_leader else None
        self._assignments = None
        self._to(ClassicState.SYNCING)
        self._heartbeat.start(now_ms)
        self._history.note_generation(self.member, self._protocol, self.protocol)
        self._log.info(
            "group %r: in generation %d as %r, %s, assignor %s",
            self.member.group_id,
            self.member.generation,
            self.member.member_id,
            "leader" if is_leader else "follower",
            self._protocol,
        )

    def _on_synced(self, response: Message, node_id: int, now_ms: int) -> None:
        assert isinstance(response, SyncGroupResponse)
        if response.error_code != 0:
            self._on_rejected("SyncGroup", response.error_code, node_id, now_ms)
        elif response.protocol_type not in (None, PROTOCOL_TYPE) or (
            response.protocol_name not in (None, self._protocol)
        ):
            code = InconsistentGroupProtocolError.code
            self._fail_join(error_for_code(code, self._about("SyncGroup")), now_ms)
        else:
            self._attempt.succeeded()
            self._rejoin_reason = self._assignments = None
            self._assignment = response.assignment
            self._to(ClassicState.ASSIGNING)

    def _on_rejected(self, api: str, code: int, node_id: int, now_ms: int) -> None:
        error = error_for_code(code, self._about(api))
        self._joined = self._assignments = None
        self.rejection = error
        if code in REMOVED:
            self._attempt.back_off(error, now_ms, at_once_count=AT_ONCE_COUNT)
            self._lose_generation(api, code)
        elif code in (RebalanceInProgressError.code, MemberIdRequiredError.code):
            self._attempt.back_off(error, now_ms, at_once_count=AT_ONCE_COUNT)
            self._join_again(error)
        elif error.retriable:
            self._coordinator.has_moved(node_id, error, error.name)
            self._retry_later(error, now_ms)
        else:
            self._fail_join(error, now_ms)

    def _on_call_failed(self, error: KafkaError, node_id: int, now_ms: int) -> None:
        self._joined = self._assignments = None
        if error.retriable:
            self._coordinator.mark_unknown(node_id, error)
            self._retry_later(error, now_ms)
        else:
            self._fail_join(error, now_ms)

    def _on_heartbeat(
        self, sent: GroupMetadata, node_id: int, response: Message | None, now_ms: int
    ) -> None:
        assert isinstance(response, HeartbeatResponse)
        code = response.error_code
        if code in (0, RebalanceInProgressError.code):
            self.rejection = None
            self._heartbeat.on_received(now_ms)
            is_stable = sent == self.member and self.state is ClassicState.STABLE
            if code != 0 and is_stable and self._rejoin_reason is None:
                self.request_join("group is already rebalancing")
            return
        error = error_for_code(code, self._about("Heartbeat"))
        self._heartbeat.on_failed(error, now_ms)
        if self._coordinator.has_moved(node_id, error, error.name):
            return
        if sent != self.member or self._coordinator.is_replaced(node_id):
            self._log.debug("ignoring the response to an earlier heartbeat: %s", error)
        elif code in REMOVED:
            self._lose_generation("Heartbeat", code)
        elif not error.retriable:
            self._fail(error)

    def _on_heartbeat_failed(self, node_id: int, error: KafkaError, now_ms: int) -> None:
        self._heartbeat.on_failed(error, now_ms)
        if error.retriable:
            self._coordinator.mark_unknown(node_id, error)
        else:
            self._fail(error)

    # Consequences of responses.

    def _join_again(self, error: KafkaError) -> None:
        """Begin a new rebalance in the same generation, without revoking anything."""
        self.request_join(f"rebalance failed due to {type(error).__name__}")
        if self.state is ClassicState.SYNCING:
            self._heartbeat.stop()
            self._to(ClassicState.JOINING)

    def _retry_later(self, error: KafkaError, now_ms: int) -> None:
        self._attempt.back_off(error, now_ms)
        self._join_again(error)

    def _fail_join(self, error: KafkaError, now_ms: int) -> None:
        """Fail the rebalance; `poll` raises the error, and the next poll retries."""
        self._attempt.back_off(error, now_ms)
        self._forget_round()
        self.member = self.member.without_generation()
        self.request_join(f"rebalance failed due to {type(error).__name__}")
        self._to(ClassicState.UNJOINED)
        self._history.fail(str(error), now_ms)
        self._fail(error)

    def _lose_generation(self, api: str, code: int) -> None:
        """Lose the membership or the generation, as the coordinator says."""
        error = error_for_code(code)
        self._log.info("group %r: membership is lost: %s", self.member.group_id, error)
        if code == IllegalGenerationError.code:
            self.member = self.member.without_generation()
        else:
            self.member = self.member.without_member_id()
        self._forget_round()
        if self.state is ClassicState.LEAVING:
            return
        self.request_join(f"encountered {error.name} from {api} response")
        if self.state in (ClassicState.REVOKING, ClassicState.ASSIGNING):
            # An intent is being carried out; its assignment is lost afterwards.
            return
        if self.state is not ClassicState.UNJOINED:
            self._to(ClassicState.UNJOINED)

    def _fail(self, error: KafkaError) -> None:
        if self._error is None or not self._error.fatal:
            self._error = error
        if error.fatal:
            # The member that has replaced this one must not be disturbed.
            self._forget_round()
            self.member = self.member.without_member_id()

    def _forget_round(self) -> None:
        self._assigned.forget()
        self._forget_calls()
        self._heartbeat.stop()

    def _forget_calls(self) -> None:
        self._call = self._joined = self._assignments = self._assignment = None

    def _about(self, api: str) -> str:
        return f"{api} of group {self.member.group_id!r}"

    def _to(self, state: ClassicState) -> None:
        assert state in NEXT[self.state], f"{self.state} -> {state}"
        self.state = state
