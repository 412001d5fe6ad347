"""Kip848Membership: this consumer as a member of a KIP-848 group, where the coordinator assigns.

In heartbeats (`HeartbeatFields`) the member sends its subscription and its assignment, and receives
its target assignment. It revokes partitions that are not in the target (commits, calls the
listener), takes the others, and only then acknowledges: before that, no other member gets the
revoked partitions. It returns changes of partitions as `Intent`; they happen only while the
application polls. Heartbeats and responses do not wait for that.

States: *unsubscribed*; *joining* (its first heartbeat); *reconciling* (target and assignment
differ); *acknowledging* (the coordinator must be notified that they are the same); *stable*. A
member that the coordinator no longer knows is *fenced*; one that left because the application did
not poll is *stale*: both lose everything and join again. *Prepare leaving* revokes everything,
*leaving* notifies the coordinator. *Fatal* is an error that no retry resolves. *Refused* occurs
only with ``group_protocol=auto``: the coordinator does not support KIP-848 for this group, so the
member commits and revokes everything, and `auto.py` continues with the classic protocol.

*When its coordinator fails*, positions stay (they belong to the partitions, and fetching needs no
coordinator). Heartbeats and commits (`offsets/commit.py`) wait until `network/coordinators.py` has
found the next one. Only a response of the present coordinator fences the member; then the next poll
loses everything, and reading begins at the committed offsets.

Owner: the core lock.
Source: KIP-848, KIP-1082; Java enum ``MemberState``, classes ``AbstractMembershipManager``,
``ConsumerHeartbeatRequestManager`` (``HeartbeatState``).
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from bisect import bisect_left
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.consumer.group.metadata import AT_ONCE_COUNT, check_member, commit_refused
from pykclient.consumer.group.rebalance import Assign, Intent, LoseAll, RevokeAll
from pykclient.consumer.subscription import SubscriptionMode
from pykclient.errors import (
    BrokerError,
    BrokerUnsupportedVersionError,
    DecodeError,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedVersionError,
    error_for_code,
)
from pykclient.errors.text import printable
from pykclient.network.log import ClientLog
from pykclient.network.manager import NEVER_MS, Operation, PollResult, Request
from pykclient.network.retry import Attempt
from pykclient.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from pykclient.types import GroupMetadata, TopicPartition

if TYPE_CHECKING:
    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.group.history import GroupHistory
    from pykclient.consumer.group.identity import MemberIdentity
    from pykclient.consumer.group.rebalance import GroupContext
    from pykclient.errors import KafkaError
    from pykclient.network.cluster.cluster import Cluster, TopicInfo
    from pykclient.protocol.message import Message

    TopicIdPartitions = dict[bytes, tuple[int, ...]]

GROUP_FEATURE: Final = "group.version"
"""Feature of clusters that support KIP-848 groups."""

MEMBER_ID_BYTES: Final = 16

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""A static member leaves for a while: its partitions stay assigned until its session ends."""

HEARTBEAT_INTERVAL_MIN_MS: Final = 50
"""Minimum interval of heartbeats. The coordinator may say 1 ms; brokers allow 5 s and more by
default (``group.consumer.min.heartbeat.interval.ms``)."""

HEARTBEAT_INTERVAL_MAX_MS: Final = 30_000
"""Maximum interval of heartbeats. It is twice the maximum that brokers allow by default
(``group.consumer.max.heartbeat.interval.ms``), and shorter than a session of 45 s, the broker's
default; the session time-out is not sent to members."""

UNKNOWN_MEMBER: Final = (FencedMemberEpochError, UnknownMemberIdError)
NOT_SERVED: Final = (UnsupportedVersionError, BrokerUnsupportedVersionError)
"""Errors of a broker that does not support KIP-848 groups: it is too old, or the feature
``group.version`` is disabled."""
RAISED: Final = (TopicAuthorizationFailedError, UnreleasedInstanceIdError)
"""Errors that may pass: `poll` raises them, and the member keeps trying. The instance id of a
static member that was killed is free when its session has ended."""


class MemberState(Enum):
    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    RECONCILING = "reconciling"
    ACKNOWLEDGING = "acknowledging"
    STABLE = "stable"
    FENCED = "fenced"
    PREPARE_LEAVING = "prepare_leaving"
    LEAVING = "leaving"
    STALE = "stale"
    FATAL = "fatal"
    REFUSED = "refused"


_S = MemberState
_TROUBLE: Final = frozenset({_S.FENCED, _S.FATAL, _S.REFUSED, _S.LEAVING, _S.PREPARE_LEAVING})
NEXT: Final[dict[MemberState, frozenset[MemberState]]] = {
    _S.UNSUBSCRIBED: frozenset({_S.JOINING, _S.PREPARE_LEAVING}),
    _S.JOINING: frozenset({_S.RECONCILING}) | _TROUBLE,
    _S.RECONCILING: frozenset({_S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE}) | _TROUBLE,
    _S.ACKNOWLEDGING: frozenset({_S.RECONCILING, _S.STABLE}) | _TROUBLE,
    _S.STABLE: frozenset({_S.RECONCILING}) | _TROUBLE,
    _S.FENCED: frozenset({_S.JOINING, _S.PREPARE_LEAVING}),
    _S.PREPARE_LEAVING: frozenset({_S.LEAVING, _S.UNSUBSCRIBED}),
    _S.LEAVING: frozenset({_S.UNSUBSCRIBED, _S.STALE}),
    _S.STALE: frozenset({_S.JOINING, _S.PREPARE_LEAVING}),
    _S.FATAL: frozenset({_S.JOINING, _S.PREPARE_LEAVING}),
    _S.REFUSED: frozenset({_S.UNSUBSCRIBED, _S.PREPARE_LEAVING}),
}
IN_GROUP: Final = frozenset({_S.JOINING, _S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE})
"""States of a member that stays one."""

SENDING: Final = IN_GROUP | {_S.PREPARE_LEAVING}
"""States in which heartbeats are sent at their interval: revoking may take longer than a
session."""


class Interest(NamedTuple):
    """The subscription; the broker matches `regex` (RE2)."""

    topics: frozenset[str]
    regex: str | None = None


class _Sent(NamedTuple):
    interest: Interest
    assigned: dict[bytes, tuple[int, ...]] | None
    """None if it must be sent again."""


class HeartbeatFields:
    """Fields that the coordinator has received from this member, and that are not sent again."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._config = config
        self._sent: _Sent | None = None

    def forget(self) -> None:
        """Send everything again: the coordinator may not have received the last heartbeat."""
        self._sent = None

    def forget_assigned(self) -> None:
        """Send the assignment again, though it has not changed: the coordinator waits for it."""
        if self._sent is not None:
            self._sent = self._sent._replace(assigned=None)

    def has_news(self, interest: Interest, assigned: TopicIdPartitions) -> bool:
        """Return True if a heartbeat would send more than that the member is alive."""
        sent = self._sent
        return sent is None or sent.interest != interest or sent.assigned != assigned

    def request(
        self, member: GroupMetadata, interest: Interest, assigned: TopicIdPartitions, *, epoch: int
    ) -> ConsumerGroupHeartbeatRequest:
        message = heartbeat_of(member, epoch)
        sent, self._sent = self._sent, _Sent(interest, dict(assigned))
        is_first = sent is None or epoch == JOIN_EPOCH
        if is_first:
            message.rebalance_timeout_ms = self._config.max_poll_interval_ms
            message.server_assignor = self._config.group_remote_assignor or None
            message.rack_id = self._config.client_rack or None
        if is_first or sent is None or sent.interest.topics != interest.topics:
            message.subscribed_topic_names = sorted(interest.topics)
        before = None if is_first or sent is None else sent.interest.regex
        if before != interest.regex:
            message.subscribed_topic_regex = interest.regex or ""  # empty removes it
        if is_first or sent is None or sent.assigned != assigned:
            message.topic_partitions = [
                RequestTopicPartitions(topic_id, list(numbers))
                for topic_id, numbers in assigned.items()
            ]
        return message


class Kip848Membership:
    """The member. `request_join` makes it join; `begin_leave` ends the membership."""

    protocol: Final = "consumer"
    is_rebalancing: Final = False
    """Always False: a member may commit at any time."""
    topics: Final = frozenset[str]()
    """Always empty: a member never assigns to others."""

    def __init__(
        self,
        config: ConsumerConfig,
        context: GroupContext,
        history: GroupHistory,
        identity: MemberIdentity,
    ) -> None:
        # KIP-1082: the member creates its own id, and keeps it for life.
        member_id = urlsafe_b64encode(context.retry_backoff.random.randbytes(MEMBER_ID_BYTES))
        self.member = GroupMetadata(
            context.coordinator.key,
            member_id=member_id.decode().rstrip("="),
            group_instance_id=config.group_instance_id,
        )
        """The member as the coordinator knows it."""
        self.rejection: KafkaError | None = None
        """Last error by which the coordinator refused this member; None if it accepted it."""
        self.refusal: str | None = None
        """Reason why the group cannot use KIP-848, and the cure; None if it may."""
        self.state = MemberState.UNSUBSCRIBED
        self.left: Operation[None] = Operation()
        self._config = config
        self._coordinator = context.coordinator
        self._subscription = context.subscription
        self._metadata = context.metadata
        self._history = history
        self._identity = identity
        self._log = ClientLog("pykclient.consumer", config.client_id)
        self._fields = HeartbeatFields(config)
        self._wants_join = False
        self._call: object | None = None
        """The heartbeat in flight; responses to other requests are late."""
        self._topics: dict[bytes, TopicInfo] = {}
        """Topics of the assignment, by id: metadata may lack one for a while."""
        self._target: TopicIdPartitions = {}
        self._current: TopicIdPartitions | None = None
        """Assignment that was reconciled last; None before the first since this member joined."""
        self._reconciling: TopicIdPartitions | None = None
        self._intent: Intent | None = None
        """The change of partitions under way."""
        self._leave_epoch: int | None = None
        self._has_classic = config.group_protocol == "auto"
        """True if the consumer continues with the classic protocol when it is refused."""
        self._is_late = False
        self._may_be_known = False
        """True if the coordinator may know this member, though it has not responded yet."""
        self._is_torn = False
        """True if it is unknown what was reconciled last; it is then compared again."""
        self._must_lose = False
        """True if others may have this consumer's partitions; the next poll loses them."""
        self._interval_ms = 0
        self._due_ms = 0
        self._attempt = Attempt(context.retry_backoff)
        self._error: KafkaError | None = None

    # For the group.

    @property
    def unlisted(self) -> list[TopicPartition]:
        """Partitions that metadata does not list yet, one per topic; the member waits for them.

        A topic whose name is unknown has its id in the name's place; of several one is listed.
        """
        if self.state is not MemberState.RECONCILING:
            return []
        found = []
        has_nameless = False
        for topic_id, numbers in self._target.items():
            info = self._topic(topic_id)
            if info is None and has_nameless:
                continue
            if info is None:
                has_nameless = True
                shown = urlsafe_b64encode(topic_id).decode().rstrip("=")  # as Kafka writes ids
                found.append(TopicPartition(f"the topic with id {shown}", numbers[0]))
            elif numbers[-1] >= (count := len(info.partitions)):
                lowest = numbers[bisect_left(numbers, count)]
                if lowest not in (self._current or {}).get(topic_id, ()):
                    found.append(TopicPartition(info.name, lowest))
        return found

    @property
    def can_commit(self) -> bool:
        return self.member.is_member

    @property
    def is_outside(self) -> bool:
        """True if this is not a member and has no partitions left to revoke."""
        return self.state is MemberState.UNSUBSCRIBED and self._intent is None

    @property
    def has_request_in_flight(self) -> bool:
        return self._call is not None

    @property
    def has_error(self) -> bool:
        return self._error is not None

    def take_error(self) -> KafkaError | None:
        """Return the error for `poll` to raise, and forget it unless it is fatal."""
        error = self._error
        if error is not None and not (error.fatal and self.state is MemberState.FATAL):
            self._error = None
        return error

    def request_join(self) -> None:
        """Request to join at the application's next poll, if this is not a member."""
        self._wants_join = self.state not in IN_GROUP
        self.refusal = None

    def on_subscribed(self) -> None:
        """Join, or send the subscription with the next heartbeat."""
        if self._subscription.mode is SubscriptionMode.PATTERN:
            self.match(self._metadata.cluster)
        self.request_join()

    def match(self, cluster: Cluster) -> None:
        exclude_internal = self._config.exclude_internal_topics
        self._subscription.match(cluster, exclude_internal=exclude_internal)

    def enforce_rebalance(self, reason: str) -> None:
        self._log.warning(
            "enforce_rebalance(%r) has no effect in a KIP-848 group: the coordinator assigns "
            "when something has changed",
            reason,
        )

    def on_commit_refused(self, sent: GroupMetadata, error: BrokerError) -> KafkaError:
        self._due_ms = 0  # the response to a heartbeat says whether this is still a member
        if error.fatal or isinstance(error, RebalanceInProgressError):
            return error
        if isinstance(error, StaleMemberEpochError) and self.can_commit:
            return error  # it has a newer epoch
        return commit_refused(sent, error)

    @property
    def must_poll(self) -> bool:
        return self.state in IN_GROUP

    def wants_turn(self, now_ms: int) -> bool:
        if self._intent is not None:
            return self._intent.is_done
        if self.state is MemberState.UNSUBSCRIBED:
            return self._wants_join
        if self.state is MemberState.FATAL:
            return self._must_lose or self._may_try_again(now_ms)
        if self.state is MemberState.RECONCILING:
            return self._is_torn or self._is_news(self._resolve(self._target))
        return self.state in (
            MemberState.FENCED,
            MemberState.STALE,
            MemberState.PREPARE_LEAVING,
            MemberState.REFUSED,
        )

    def _may_try_again(self, now_ms: int) -> bool:
        return self._error is None and self._attempt.is_due(now_ms)

    def begin_leave(self, reason: str, *, sends: bool) -> Intent:
        """Leave when the returned intent has been carried out; `left` ends then.

        With `sends` False the coordinator keeps the member until its session ends; a static member
        sends that it will be back.
        """
        self._log.info("group %r: leaving: %s", self.member.group_id, reason)
        self._wants_join, self._error = False, None
        if self.state is not MemberState.PREPARE_LEAVING:
            # Else a second call, by the listener that the first one calls: both wait for one end.
            self.left = Operation()
        is_static = self.member.group_instance_id is not None
        self._leave_epoch = LEAVE_EPOCH if sends else LEAVE_STATIC_EPOCH if is_static else None
        if not self._may_be_known:
            self._leave_epoch = None
        self._to(MemberState.PREPARE_LEAVING)
        self._reconciling, self._must_lose = None, False
        intent = self._intent = RevokeAll() if self.member.is_member else LoseAll()
        return intent

    def restart(self, now_ms: int, *, is_wanted: bool) -> None:
        """Drop requests in flight after an interrupt; repeat a change that was under way.

        The next heartbeat sends everything, so that the coordinator does, too.
        """
        del now_ms
        is_busy = self._intent is not None or self._reconciling is not None
        self._call = self._intent = self._reconciling = None
        self._fields.forget()
        self._due_ms = 0
        self.left.succeed(None)
        if self.state is MemberState.JOINING and not self.member.is_member:
            return
        if self.state in (MemberState.PREPARE_LEAVING, MemberState.LEAVING):
            is_left = not self.member.is_member
            self.state = MemberState.UNSUBSCRIBED if is_left else MemberState.RECONCILING
            is_busy, self._must_lose = True, is_left
        if self.state in IN_GROUP and not self.member.is_member:
            self.state = MemberState.FENCED
        if self.state in IN_GROUP and (
            is_busy or self.state is not MemberState.STABLE or self._target != self._current
        ):
            self._is_torn = True
            self.state = MemberState.RECONCILING
        self._must_lose = self._must_lose or self.state in (
            MemberState.FENCED,
            MemberState.STALE,
        )
        self._wants_join = is_wanted and self.state is MemberState.UNSUBSCRIBED

    def advance(self, now_ms: int) -> Intent | None:
        if self._intent is not None:
            if self._intent.is_done:
                self._intent = None
                self._on_carried_out(now_ms)
        elif self.state is MemberState.UNSUBSCRIBED and self._wants_join:
            self._join("the consumer has subscribed", now_ms)
        elif self._must_lose:
            self._must_lose = False
            self._intent = LoseAll()
            return self._intent
        elif self.state is MemberState.FATAL and self._may_try_again(now_ms):
            self._join("the consumer tries again", now_ms)
        elif self.state is MemberState.REFUSED:
            self._history.begin_once(self.refusal or "", now_ms)
            # If the coordinator still has the member, it accepts a last commit.
            self._intent = RevokeAll() if self.member.is_member else LoseAll()
            self._intent.commit_deadline_ms = now_ms + self._config.request_timeout_ms
            return self._intent
        elif self.state is MemberState.RECONCILING:
            return self._reconcile(now_ms)
        return None

    def poll(self, now_ms: int, *, may_rebalance: bool) -> PollResult:
        del may_rebalance  # `advance` revokes partitions
        if self.state is MemberState.FATAL and not self._attempt.is_due(now_ms):
            return PollResult(next_poll_ms=self._attempt.due_ms)
        if self.state not in SENDING and self.state is not MemberState.LEAVING:
            return PollResult()
        node_id = self._coordinator.node_id()
        requests = []
        if node_id is not None and self._is_due(now_ms):
            requests.append(self._heartbeat(node_id, now_ms))
        elif node_id is None and self.state is MemberState.LEAVING:
            self._finish_leaving()  # there is no coordinator to notify: the session will end
        return PollResult(requests, self._next_ms(now_ms, has_coordinator=node_id is not None))

    def _next_ms(self, now_ms: int, *, has_coordinator: bool) -> int:
        if self._call is not None or not has_coordinator:
            return NEVER_MS
        due_ms = self._due_ms if self.state in IN_GROUP or self.member.is_member else NEVER_MS
        return max(now_ms, due_ms, self._attempt.due_ms)

    def _is_due(self, now_ms: int) -> bool:
        if self.state is MemberState.LEAVING:
            return True
        if self._call is not None or not self._attempt.is_due(now_ms):
            return False
        if self.state is MemberState.PREPARE_LEAVING:
            return self.member.is_member and now_ms >= self._due_ms
        if self.state in (MemberState.JOINING, MemberState.ACKNOWLEDGING):
            return True
        interest = self._interest()
        return now_ms >= self._due_ms or self._fields.has_news(interest, self._current or {})

    def _join(self, reason: str, now_ms: int) -> None:
        self._wants_join = False
        self._history.begin(reason, now_ms)
        self._fields.forget()
        self._target, self._current = {}, None
        self._is_torn = False
        self._to(MemberState.JOINING)

    def _reconcile(self, now_ms: int) -> Intent | None:
        assigned = self._resolve(self._target)
        if assigned != self._target:
            self._metadata.request_update()  # for the names of the others
        if not self._is_news(assigned) and not self._is_torn:
            if assigned == self._target:
                self._to(MemberState.STABLE)
            return None
        self._history.begin_once("the coordinator has changed the assignment", now_ms)
        assignor = self._config.group_remote_assignor or ""
        self._history.note_generation(self.member, assignor, self.protocol)
        self._identity.complete(self.member)
        self._reconciling = assigned
        topics = {topic_id: self._topic(topic_id) for topic_id in assigned}
        self._topics = {topic_id: info for topic_id, info in topics.items() if info is not None}
        self._intent = Assign(
            [
                TopicPartition(info.name, number)
                for topic_id, info in sorted(self._topics.items(), key=lambda item: item[1].name)
                for number in assigned[topic_id]
            ]
        )
        return self._intent

    def _is_news(self, assigned: TopicIdPartitions) -> bool:
        """Return True if there is something to reconcile, given the known topic names.

        A first assignment is, even an empty one: the listener is called with it, as in Java.
        """
        if self._current is None:
            return bool(assigned) or not self._target
        return assigned != self._current

    def _resolve(self, target: TopicIdPartitions) -> TopicIdPartitions:
        """Return the part of a target that metadata list or the member already owns.

        A partition costs a coordinator four bytes, and its owner a hundred times as much. Metadata
        pay with more bytes for each partition that they list. New partitions and new topics wait
        for metadata.
        """
        found = {topic_id: self._listed(topic_id, numbers) for topic_id, numbers in target.items()}
        return {topic_id: numbers for topic_id, numbers in found.items() if numbers}

    def _listed(self, topic_id: bytes, numbers: tuple[int, ...]) -> tuple[int, ...]:
        info = self._topic(topic_id)
        if info is None:
            return ()
        count = len(info.partitions)
        if numbers[-1] < count:
            return numbers
        owned = (self._current or {}).get(topic_id, ())
        kept = frozenset(owned[bisect_left(owned, count) :])
        listed = bisect_left(numbers, count)
        if not kept:
            return numbers[:listed]
        return numbers[:listed] + tuple(each for each in numbers[listed:] if each in kept)

    def _topic(self, topic_id: bytes) -> TopicInfo | None:
        """Return a topic from metadata, as they are or were before they lost the topic."""
        cluster = self._metadata.cluster
        name = cluster.topic_name(topic_id)
        known = self._topics.get(topic_id)
        return known if name is None else cluster.topics.get(name, known)

    def _interest(self) -> Interest:
        if self._subscription.mode is SubscriptionMode.BROKER_PATTERN:
            return Interest(frozenset(), self._subscription.broker_pattern)
        return Interest(self._subscription.wanted_topics)

    def _on_carried_out(self, now_ms: int) -> None:
        if self.state is MemberState.RECONCILING and self._reconciling is not None:
            self._current, self._reconciling = self._reconciling, None
            self._is_torn = False
            self._to(MemberState.ACKNOWLEDGING)
            self._history.end(now_ms)
        elif self.state in (MemberState.FENCED, MemberState.STALE):
            self._join(f"the consumer joins again, it was {self.state.value}", now_ms)
        elif self.state is MemberState.REFUSED:
            self._history.end(now_ms)
            self._may_be_known = False
            self.member = self.member.without_generation()
            self._to(MemberState.UNSUBSCRIBED)
        elif self.state is MemberState.PREPARE_LEAVING:
            self._history.end(now_ms)
            self._to(MemberState.LEAVING)
            if self._leave_epoch is None:
                self._finish_leaving()

    # Sending.

    def _heartbeat(self, node_id: int, now_ms: int) -> Request:
        call = self._call = object()
        if self.state is MemberState.LEAVING:
            assert self._leave_epoch is not None
            message = heartbeat_of(self.member, self._leave_epoch)
            left = self.left
            self._finish_leaving(is_sent=True)
            return Request(
                message,
                node_id,
                lambda response, now_ms: left.succeed(None),
                lambda error, now_ms: left.succeed(None),  # the session will end
                timeout_ms=self._config.request_timeout_ms,
            )
        is_joining = self.state is MemberState.JOINING
        self._may_be_known = True
        message = self._fields.request(
            self.member,
            self._interest(),
            self._current or {},
            epoch=JOIN_EPOCH if is_joining else self.member.generation,
        )
        if self.state is MemberState.ACKNOWLEDGING:
            is_all = self._target == self._current
            self._to(MemberState.STABLE if is_all else MemberState.RECONCILING)
        self._due_ms = now_ms + self._interval_ms
        return Request(
            message,
            node_id,
            partial(self._on_response, call, node_id),
            partial(self._on_failure, call, node_id),
            check=_check,
        )

    def _finish_leaving(self, *, is_sent: bool = False) -> None:
        """End the membership. With `is_sent` the response ends the leaving."""
        self._call = None
        self._may_be_known = False
        self.member = self.member.without_generation()
        if self._is_late:
            self._is_late, self._must_lose = False, True
            self._to(MemberState.STALE)
        else:
            self._to(MemberState.UNSUBSCRIBED)
        if not is_sent:
            self.left.succeed(None)

    def leave_late(self) -> None:
        is_static = self.member.group_instance_id is not None
        self._leave_epoch = LEAVE_STATIC_EPOCH if is_static else LEAVE_EPOCH
        self._is_late = True
        self.left = Operation()
        self._stop()
        self._to(MemberState.LEAVING)
        if not self._may_be_known:
            self._finish_leaving()

    # Responses.

    def _on_response(
        self, call: object, node_id: int, response: Message | None, now_ms: int
    ) -> None:
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        if self._call is not call:
            return
        self._call = None
        if response.error_code != 0:
            said = response.error_message or ""
            about = f"ConsumerGroupHeartbeat of group {self.member.group_id!r}"
            error = error_for_code(response.error_code, f"{about}: {said}" if said else about)
            self._on_error_code(error, said, node_id, now_ms)
            return
        try:
            member_id = response.member_id or ""
            check_member("ConsumerGroupHeartbeat", member_id, response.member_epoch)
        except DecodeError as error:
            self._fields.forget()
            self._fail(error, now_ms)
            return
        self._attempt.succeeded()
        self.rejection = None
        interval_ms = max(response.heartbeat_interval_ms, HEARTBEAT_INTERVAL_MIN_MS)
        self._interval_ms = min(interval_ms, HEARTBEAT_INTERVAL_MAX_MS)
        self._due_ms = now_ms + self._interval_ms
        before, is_new = self.member, not self.member.is_member
        self.member = before._replace(
            generation=response.member_epoch,
            member_id=member_id or before.member_id,
        )
        self._identity.follow(before, self.member)
        if is_new:
            self._log.info("group %r: joined as %r", self.member.group_id, self.member.member_id)
        if self.state is MemberState.PREPARE_LEAVING:
            return
        if response.assignment is not None or self.state is MemberState.JOINING:
            topics = [] if response.assignment is None else response.assignment.topic_partitions
            self._on_target({each.topic_id: tuple(sorted(set(each.partitions))) for each in topics})

    def _on_target(self, target: TopicIdPartitions) -> None:
        before = self._target
        self._target = {topic_id: numbers for topic_id, numbers in target.items() if numbers}
        is_idle = self._reconciling is None and self.state is not MemberState.JOINING
        if is_idle and self._target != before and self._resolve(self._target) == self._current:
            # Partitions assigned and revoked in between are free only when that is acknowledged.
            self._fields.forget_assigned()
        if self._target != self._current:
            self._to(MemberState.RECONCILING)
        elif (
            self._reconciling is None and not self._is_torn and self.state is not MemberState.STABLE
        ):
            self._to(MemberState.STABLE)

    def _on_failure(self, call: object, node_id: int, error: KafkaError, now_ms: int) -> None:
        if self._call is not call:
            return
        self._call = None
        self._fields.forget()
        if error.retriable:
            self._coordinator.mark_unknown(node_id, error)
            self._retry_later(error, now_ms)
        elif self._has_classic and isinstance(error, NOT_SERVED):
            self._refuse(why_refused(error), now_ms)
        else:
            self._fail(error, now_ms)

    def _on_error_code(self, error: BrokerError, said: str, node_id: int, now_ms: int) -> None:
        """Handle an error code, as Java does. `said` is the coordinator's text, or empty."""
        passes = error.retriable or isinstance(error, UNKNOWN_MEMBER)
        self.rejection = error if passes else None
        self._fields.forget()
        self._may_be_known = self.member.is_member
        if self._coordinator.has_moved(node_id, error, error.name):
            self._due_ms = 0  # as soon as the other coordinator is found
        elif isinstance(error, UNKNOWN_MEMBER) and self._coordinator.is_replaced(node_id):
            self._due_ms = 0
        elif isinstance(error, UNKNOWN_MEMBER):
            self._on_fenced(error, now_ms)
        elif self._has_classic and isinstance(error, (*NOT_SERVED, GroupIdNotFoundError)):
            self._on_not_served(error, said, now_ms)
        elif isinstance(error, RAISED):
            self._retry_later(error, now_ms)
            self._error = error
        elif error.retriable:
            self._retry_later(error, now_ms)
        elif isinstance(error, GroupIdNotFoundError) and self.state is MemberState.JOINING:
            self._fail(_unconverted(error, self.member.group_id, said), now_ms)
        else:
            self._fail(error, now_ms)

    def _on_fenced(self, error: BrokerError, now_ms: int) -> None:
        self._log.info("group %r: membership is lost: %s", self.member.group_id, error)
        if self.state is MemberState.PREPARE_LEAVING:
            self._leave_epoch = None  # there is no membership to leave
            self.member = self.member.without_generation()
            return
        self._attempt.back_off(error, now_ms, at_once_count=AT_ONCE_COUNT)
        self._due_ms = 0  # no heartbeat is expected any more
        self._drop_out(MemberState.FENCED, str(error), now_ms)

    def _on_not_served(self, error: BrokerError, said: str, now_ms: int) -> None:
        """Handle an error by which the coordinator does not support KIP-848 for this group.

        GROUP_ID_NOT_FOUND ends the membership of a member, since the group was replaced. To a
        member that joins it means that the group is classic and must not be converted.
        """
        if isinstance(error, GroupIdNotFoundError) and self.state is not MemberState.JOINING:
            self._on_fenced(error, now_ms)
        else:
            self._refuse(why_refused(error, said), now_ms)

    def _refuse(self, reason: str, now_ms: int) -> None:
        self.refusal = reason
        if self.state not in IN_GROUP:
            self._leave_epoch = None
            return
        if self.member.is_member:
            self._log.warning(
                "group %r: its coordinator no longer supports KIP-848 groups, so this consumer "
                "commits what it can and continues with the classic protocol: %s",
                self.member.group_id,
                reason,
            )
        self._history.fail(reason, now_ms)
        self._stop()
        self._to(MemberState.REFUSED)

    def _retry_later(self, error: KafkaError, now_ms: int) -> None:
        self._attempt.back_off(error, now_ms)
        self._due_ms = 0

    def _fail(self, error: KafkaError, now_ms: int) -> None:
        """Raise an error from `poll`; unless it is fatal, the next poll retries."""
        self._retry_later(error, now_ms)
        self._error = _unsupported(error) if isinstance(error, UnsupportedVersionError) else error
        if self.state in IN_GROUP:
            self._drop_out(MemberState.FATAL, str(error), now_ms)
        else:
            self._leave_epoch = None

    def _drop_out(self, state: MemberState, reason: str, now_ms: int) -> None:
        self._history.fail(reason, now_ms)
        self._stop()
        self._must_lose = True
        self._may_be_known = False
        self.member = self.member.without_generation()
        self._to(state)

    def _stop(self) -> None:
        if self._intent is not None:
            self._intent.cancel()
        self._intent = self._reconciling = None

    def _to(self, state: MemberState) -> None:
        assert state in NEXT[self.state] or state is self.state, f"{self.state} -> {state}"
        self.state = state


def why_refused(error: KafkaError, said: str = "") -> str:
    """Return why a group cannot use KIP-848, and the cure.

    `said` is the text of the coordinator's response, or empty.
    """
    if not isinstance(error, BrokerError):
        return str(error)  # the broker lacks the API
    named = ": ".join(filter(None, (error.name, printable(said))))
    if isinstance(error, GroupIdNotFoundError):
        return (
            f"the group has classic members, and its coordinator does not convert it ({named}); "
            f"to convert it, set group.consumer.migration.policy of the brokers to bidirectional "
            f"or upgrade, and use assignors that brokers have; or stop all its members first"
        )
    return (
        f"its coordinator does not accept KIP-848 members ({named}); to use KIP-848, enable the "
        f"feature {GROUP_FEATURE} with kafka-features.sh"
    )


def _unconverted(cause: BrokerError, group_id: str, said: str) -> GroupIdNotFoundError:
    error = GroupIdNotFoundError(
        f"group {group_id!r}: {why_refused(cause, said)}; or set group_protocol=classic or auto"
    )
    error.__cause__ = cause
    return error


def _unsupported(cause: KafkaError) -> UnsupportedVersionError:
    error = UnsupportedVersionError(
        f"the brokers do not support KIP-848 groups: set group_protocol=classic or auto, or use "
        f"Kafka 4.0 or newer with the feature {GROUP_FEATURE} enabled ({cause})"
    )
    error.__cause__ = cause
    return error


def heartbeat_of(member: GroupMetadata, epoch: int) -> ConsumerGroupHeartbeatRequest:
    """Return a heartbeat that only says that the member is alive, or leaves."""
    return ConsumerGroupHeartbeatRequest(
        group_id=member.group_id,
        member_id=member.member_id,
        member_epoch=epoch,
        instance_id=member.group_instance_id,
    )


def _check(message: Message) -> None:
    """Raise `DecodeError` for an assignment of an invalid partition."""
    assert isinstance(message, ConsumerGroupHeartbeatResponse)
    topics = () if message.assignment is None else message.assignment.topic_partitions
    lowest = min((number for topic in topics for number in topic.partitions), default=0)
    if lowest < 0:
        raise DecodeError(f"a ConsumerGroupHeartbeat response assigns partition {lowest}")
