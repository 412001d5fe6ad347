"""A group of KIP-848: the broker assigns, and members follow in their heartbeats.

The *group epoch* rises whenever members, subscriptions or topics change. The *target assignment*
follows it, and each member moves from its own epoch to the target's; partitions are revoked from
one member before another gets them. The group is *empty*; *assigning*, while the target is older
than the group epoch; *reconciling*, while a member differs from its target; or *stable*.

The whole state counts as written to the log: a new coordinator only starts its timers.

Owner: the group's registry.
Source: KIP-848, KIP-1251 (commits of older epochs), KIP-1263 (interval between assignments); Java
classes ``GroupMetadataManager`` and ``ConsumerGroup``, as of 4.4.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from pykclient.errors.broker import (
    BrokerUnsupportedVersionError,
    GroupMaxSizeReachedError,
    NonEmptyGroupError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)
from pykclient.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)
from pykclient.testing.fake.groups.group import GroupKind, MemberSnapshot
from pykclient.testing.fake.groups.kip848.assignors import (
    DEFAULT_ASSIGNOR,
    SERVER_ASSIGNORS,
    AssignableMember,
    TopicIdPartition,
)
from pykclient.testing.fake.groups.kip848.members import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroupMember,
    ConsumerGroupMembers,
    MemberState,
    Reconciliation,
    owned_partitions,
)
from pykclient.testing.fake.groups.kip848.regex import RegexSubscriptions
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pykclient.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
    )
    from pykclient.testing.fake.groups.group import GroupSettings, Refusal
    from pykclient.testing.fake.timers import Timer, TimingWheel
    from pykclient.testing.fake.topics import Topic

FIRST_EPOCH = 1
COMMIT_FROM_VERSION = 9
"""First OffsetCommit version with a member epoch instead of a generation."""

_PROTOCOL_TYPE = "consumer"
_NOT_SAID = -1


class ConsumerGroup:
    """A group; `topics` are the cluster's, by name."""

    kind = GroupKind.CONSUMER

    def __init__(
        self,
        name: str,
        settings: GroupSettings,
        timers: TimingWheel,
        topics: Mapping[str, Topic],
    ) -> None:
        self.name = name
        self.epoch = FIRST_EPOCH
        self.target_epoch = FIRST_EPOCH
        self._settings = settings
        self._timers = timers
        self._topics = topics
        self._members = ConsumerGroupMembers(name)
        self._targets: dict[str, frozenset[TopicIdPartition]] = {}
        self._assigned_at_ms: int | None = None
        self._metadata: dict[str, tuple[bytes, int] | None] = {}
        """Id and partition count of each subscribed topic at the last check."""
        self._regexes = RegexSubscriptions(topics, timers, self._on_regexes_resolved)
        self._session_timers: dict[str, Timer] = {}
        self._rebalance_timers: dict[str, Timer] = {}

    # State for brokers and tests.

    @property
    def state_name(self) -> str:
        """Kafka's name of the state."""
        if not self._members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        members = self._members
        is_stable = all(member.is_reconciled_to(self.target_epoch) for member in members)
        return "Stable" if is_stable else "Reconciling"

    @property
    def generation(self) -> int:
        """The group epoch."""
        return self.epoch

    @property
    def protocol_type(self) -> str:
        """Always that of consumers."""
        return _PROTOCOL_TYPE

    @property
    def protocol_name(self) -> str:
        """The assignor that most members name."""
        named = [each.server_assignor for each in self._members if each.server_assignor]
        return Counter(named).most_common(1)[0][0] if named else DEFAULT_ASSIGNOR

    @property
    def leader_id(self) -> None:
        """Always None, because the broker assigns."""
        return

    @property
    def is_empty(self) -> bool:
        """True if it has no members."""
        return not self._members

    def members(self) -> tuple[MemberSnapshot, ...]:
        """Return the members, oldest first."""
        names = {topic.topic_id: topic.name for topic in self._topics.values()}
        return tuple(
            MemberSnapshot(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                tuple(
                    TopicPartition(names[name.topic_id], name.partition)
                    for name in sorted(member.assigned)
                    if name.topic_id in names
                ),
            )
            for member in self._members
        )

    def member_targets(self) -> tuple[tuple[ConsumerGroupMember, frozenset[TopicIdPartition]], ...]:
        """Return the members, each with its target."""
        return tuple(
            (member, self._targets.get(member.member_id, frozenset())) for member in self._members
        )

    def check_commit(
        self,
        member_id: str,
        generation_or_member_epoch: int,
        *,
        instance_id: str | None = None,
        is_transactional: bool = False,
        version: int = 0,
        partitions: Iterable[TopicPartition] = (),
    ) -> Refusal | None:
        """Check that a member may commit these partitions, in its epoch or an older one."""
        epoch = generation_or_member_epoch
        if epoch < 0 and not self._members:
            return None
        is_anonymous = not member_id and instance_id is None and epoch == _NOT_SAID
        if is_transactional and is_anonymous:
            return None
        member = self._members.get(member_id)
        if member is None:
            return UnknownMemberIdError
        if not is_transactional and version < COMMIT_FROM_VERSION:
            return BrokerUnsupportedVersionError
        if epoch == member.epoch:
            return None
        names = list(partitions)
        is_covered = all(self._got_by(member, name, epoch) for name in names)
        return None if names and epoch < member.epoch and is_covered else StaleMemberEpochError

    def on_commit(self, member_id: str, now_ms: int) -> None:
        """Do nothing: only heartbeats keep a member's session alive."""

    def check_fetch(self, member_id: str | None, member_epoch: int) -> Refusal | None:
        """Check that a member may read offsets."""
        if member_id is None and member_epoch < 0:
            return None
        member = self._members.get(member_id or "")
        if member is None:
            return UnknownMemberIdError
        return None if member.epoch == member_epoch else StaleMemberEpochError

    def check_offset_delete(self) -> Refusal | None:
        """Allow deletion; subscribed topics are checked separately."""
        return None

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member subscribes to the topic, so that its offsets are in use."""
        return any(topic in self._subscription(member) for member in self._members)

    def retention_start_ms(self, topic: str, committed_ms: int) -> int | None:
        """Return the start of retention; None while a member subscribes to the topic."""
        return None if self.is_subscribed_to(topic) else committed_ms

    def check_delete(self) -> Refusal | None:
        """Check that the group is empty."""
        return NonEmptyGroupError if self._members else None

    def expire_member(self, member_id: str, now_ms: int) -> bool:
        """Expire a member's session; return False if the member does not exist."""
        if member_id not in self._members:
            return False
        self._fence(member_id)
        return True

    def on_coordinator_lost(self, now_ms: int) -> None:
        """Stop the timers: the next coordinator has its own."""
        self._regexes.cancel()
        for timer in (*self._session_timers.values(), *self._rebalance_timers.values()):
            timer.cancel()
        self._session_timers.clear()
        self._rebalance_timers.clear()

    def on_coordinator_gained(self, now_ms: int) -> None:
        """Restart every member's session timer, and rebalance timers where needed."""
        for member in self._members:
            self._start_session(member.member_id, now_ms)
            self._time_revocation(member, now_ms)

    def on_deleted(self, now_ms: int) -> None:
        """End the group after its deletion."""
        self.on_coordinator_lost(now_ms)

    # Heartbeats.

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        *,
        client_id: str,
        client_host: str,
        now_ms: int,
    ) -> ConsumerGroupHeartbeatResponse:
        """Handle a heartbeat: join, continue, or leave; a refused request changes nothing.

        Raises:
            UnknownMemberIdError, FencedMemberEpochError, FencedInstanceIdError,
            UnreleasedInstanceIdError, GroupMaxSizeReachedError, InvalidRegularExpressionError: as
                Kafka responds.
        """
        if request.member_epoch < JOIN_EPOCH:
            return self._leave(request)
        self._check_size(request.member_id)
        before = self._members.sender(request)
        after = _updated(before, request, client_id, client_host)
        regex_change = self._regexes.change(before.topic_regex, after.topic_regex, self._members)
        has_new_names = before.topic_names != after.topic_names
        self._take_in(after)
        self._regexes.refresh(now_ms)
        is_forced = has_new_names or regex_change.is_known
        if is_forced or self._has_metadata_changed():
            self._look_at_metadata(is_forced=is_forced)
        self._assign(now_ms)
        has_changed = has_new_names or regex_change.is_change
        after = self._reconcile(after, request, now_ms, has_subscription_changed=has_changed)
        self._start_session(after.member_id, now_ms)
        return ConsumerGroupHeartbeatResponse(
            member_id=after.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=self._settings.group_consumer_heartbeat_interval_ms,
            assignment=(
                _assignment(after.assigned)
                if _is_full(request) or before.assigned.keys() != after.assigned.keys()
                else None
            ),
        )

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        if request.instance_id is None:
            member = self._members.member(request.member_id)
        else:
            member = self._members.static_member(request.instance_id, request.member_id)
        if request.instance_id is not None and request.member_epoch == STATIC_LEAVE_EPOCH:
            self._members.put(replace(member, epoch=STATIC_LEAVE_EPOCH, pending_revocation={}))
        else:
            self._fence(member.member_id)
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=request.member_epoch
        )

    def _check_size(self, member_id: str) -> None:
        largest = self._settings.group_consumer_max_size
        if len(self._members) >= largest and member_id not in self._members:
            raise GroupMaxSizeReachedError(
                f"the group {self.name} is full: it has {largest} members"
            )

    # Members.

    def _take_in(self, member: ConsumerGroupMember) -> None:
        """Store a member, in place of the static member it replaces, if any."""
        replaced_id = self._members.replaced_id(member)
        if replaced_id is not None:
            self._targets[member.member_id] = self._targets.get(replaced_id, frozenset())
            self._remove(replaced_id)
        self._members.put(member)

    def _remove(self, member_id: str) -> None:
        self._members.remove(member_id)
        self._targets.pop(member_id, None)
        for timers in (self._session_timers, self._rebalance_timers):
            if member_id in timers:
                timers.pop(member_id).cancel()

    def _fence(self, member_id: str) -> None:
        """Remove a member; its partitions are assigned to others at their heartbeats."""
        self._remove(member_id)
        self._regexes.forget_unused(self._members)
        self._look_at_metadata(is_forced=True)

    # Topics and the target.

    def _subscription(self, member: ConsumerGroupMember) -> frozenset[str]:
        return member.topic_names | self._regexes.topics_of(member.topic_regex)

    def _known(self, topic: str) -> tuple[bytes, int] | None:
        known = self._topics.get(topic)
        return None if known is None else (known.topic_id, len(known.partitions))

    def _has_metadata_changed(self) -> bool:
        return any(self._known(topic) != known for topic, known in self._metadata.items())

    def _look_at_metadata(self, *, is_forced: bool) -> None:
        """Check the topics; raise the group epoch if they have changed or `is_forced`."""
        subscribed = [self._subscription(member) for member in self._members]
        names = sorted(frozenset().union(*subscribed))
        metadata = {name: self._known(name) for name in names}
        if is_forced or metadata != self._metadata:
            self.epoch += 1
            if not subscribed:  # there is nothing to assign
                self.target_epoch, self._targets = self.epoch, {}
        self._metadata = metadata

    def _on_regexes_resolved(self) -> None:
        """Raise the group epoch, because regular expressions match other topics."""
        self._look_at_metadata(is_forced=True)

    def _assign(self, now_ms: int) -> None:
        """Compute the target if it is outdated and the minimum interval has passed."""
        if self.epoch == self.target_epoch or not self._may_assign(now_ms):
            return
        counts = {
            topic.topic_id: len(topic.partitions)
            for topic in self._topics.values()
            if topic.name in self._metadata
        }
        members = [
            AssignableMember(
                member.member_id,
                member.instance_id,
                self._topic_ids(member),
                self._targets.get(member.member_id, frozenset()),
            )
            for member in self._members
        ]
        self._targets = SERVER_ASSIGNORS[self.protocol_name](members, counts)
        self.target_epoch = self.epoch
        self._assigned_at_ms = now_ms

    def _may_assign(self, now_ms: int) -> bool:
        if self._assigned_at_ms is None:
            return True
        interval_ms = self._settings.group_consumer_assignment_interval_ms
        return now_ms >= self._assigned_at_ms + interval_ms

    def _topic_ids(self, member: ConsumerGroupMember) -> frozenset[bytes]:
        names = self._subscription(member)
        return frozenset(self._topics[name].topic_id for name in names if name in self._topics)

    def _reconcile(
        self,
        member: ConsumerGroupMember,
        request: ConsumerGroupHeartbeatRequest,
        now_ms: int,
        *,
        has_subscription_changed: bool,
    ) -> ConsumerGroupMember:
        step = Reconciliation(
            target=self._targets.get(member.member_id, frozenset()),
            epoch=self.target_epoch,
            topic_ids=self._topic_ids(member),
            owned=owned_partitions(request),
            is_taken=lambda name: self._members.owner_id(name) not in (None, member.member_id),
        )
        after = step.step(member, has_subscription_changed=has_subscription_changed)
        if after is not member:
            self._members.put(after)
            self._time_revocation(after, now_ms)
        return after

    def _got_by(self, member: ConsumerGroupMember, name: TopicPartition, epoch: int) -> bool:
        """Return whether the member owned this partition in this epoch, and still does."""
        topic = self._topics.get(name.topic)
        if topic is None:
            return False
        partition = TopicIdPartition(topic.topic_id, name.partition)
        got = member.assigned.get(partition, member.pending_revocation.get(partition))
        return got is not None and got <= epoch

    # Time.

    def _start_session(self, member_id: str, now_ms: int) -> None:
        if member_id in self._session_timers:
            self._session_timers[member_id].cancel()
        self._session_timers[member_id] = self._timers.add(
            now_ms + self._settings.group_consumer_session_timeout_ms,
            lambda _: self._fence(member_id),
        )

    def _time_revocation(self, member: ConsumerGroupMember, now_ms: int) -> None:
        """Start the rebalance timer of a member that must revoke partitions."""
        timer = self._rebalance_timers.pop(member.member_id, None)
        if timer is not None:
            timer.cancel()
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self._rebalance_timers[member.member_id] = self._timers.add(
                now_ms + member.rebalance_timeout_ms,
                lambda _: self._on_revocation_late(member.member_id, member.epoch),
            )

    def _on_revocation_late(self, member_id: str, epoch: int) -> None:
        # A static member may have left temporarily since then; its session timer decides.
        if self._members.member(member_id).epoch == epoch:
            self._fence(member_id)


def _updated(
    before: ConsumerGroupMember,
    request: ConsumerGroupHeartbeatRequest,
    client_id: str,
    client_host: str,
) -> ConsumerGroupMember:
    """Update a member from a request; missing fields stay unchanged."""
    names = request.subscribed_topic_names
    timeout_ms = request.rebalance_timeout_ms
    regex = request.subscribed_topic_regex
    return replace(
        before,
        instance_id=request.instance_id or before.instance_id,
        rack_id=request.rack_id or before.rack_id,
        rebalance_timeout_ms=(
            before.rebalance_timeout_ms if timeout_ms == _NOT_SAID else timeout_ms
        ),
        server_assignor=request.server_assignor or before.server_assignor,
        topic_names=before.topic_names if names is None else frozenset(names),
        topic_regex=before.topic_regex if regex is None else regex,
        client_id=client_id,
        client_host=client_host,
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    if request.member_epoch == JOIN_EPOCH:
        return True
    has_topics = (request.subscribed_topic_names, request.subscribed_topic_regex) != (None, None)
    has_time_out = request.rebalance_timeout_ms != _NOT_SAID
    return has_time_out and has_topics and request.topic_partitions is not None


def _assignment(names: Iterable[TopicIdPartition]) -> Assignment:
    numbers: dict[bytes, list[int]] = {}
    for name in sorted(names):
        numbers.setdefault(name.topic_id, []).append(name.partition)
    return Assignment(
        [ResponseTopicPartitions(topic_id, partitions) for topic_id, partitions in numbers.items()]
    )
