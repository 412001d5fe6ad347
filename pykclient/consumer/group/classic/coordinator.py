"""ConsumerCoordinator: the consumer's side of a group of the classic protocol.

The members assign: this one tells what it reads and has, and shares out for all when it falls to it
to lead the group. `ClassicMembership` speaks with the coordinator.

Owner: the core lock.
Source: Java class ``ConsumerCoordinator``.
"""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING

from pykclient.consumer.group.assignors import GroupMember, RebalanceProtocol
from pykclient.consumer.group.assignors.setting import common_protocol
from pykclient.consumer.group.classic.heartbeat import Heartbeat
from pykclient.consumer.group.classic.leader import is_known, read_members, share_out, topic_racks
from pykclient.consumer.group.classic.membership import ClassicMembership
from pykclient.consumer.group.classic.protocol import (
    encode_assignment,
    encode_subscription,
    read_assignment,
)
from pykclient.consumer.group.classic.requests import ClassicSettings
from pykclient.consumer.group.classic.unassigned import Coverage
from pykclient.consumer.group.group import ConsumerGroup
from pykclient.consumer.group.protocols import commit_refused
from pykclient.consumer.subscription import SubscriptionMode
from pykclient.errors import (
    InconsistentGroupProtocolError,
    RebalanceInProgressError,
    UsageError,
)
from pykclient.network.interrupts import raise_of_signal_handler
from pykclient.network.manager import Operation, PollResult
from pykclient.network.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.group.assignors import Assignor
    from pykclient.consumer.group.group import GroupSurroundings
    from pykclient.consumer.group.metadata import GroupMetadata
    from pykclient.errors import BrokerError, KafkaError
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.protocol.messages.join_group import JoinGroupResponse
    from pykclient.types import TopicPartition

__all__ = ["ConsumerCoordinator", "given_up_to_join"]


class ConsumerCoordinator(ConsumerGroup):
    """The manager of one consumer's classic group."""

    _membership: ClassicMembership

    def __init__(
        self,
        config: ConsumerConfig,
        surroundings: GroupSurroundings,
        assignors: Sequence[Assignor],
    ) -> None:
        super().__init__(config, surroundings)
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._protocol = common_protocol(assignors)
        self._rack = config.client_rack or None
        self._joined_topics: frozenset[str] | None = None
        """What the last JoinGroup told; None while there was none."""
        self._compared_version = 0
        """The cluster that was held against `_shared` last."""
        self._shared: object = None
        """What was shared out as the leader; None while another one leads."""
        self._unshared: frozenset[TopicPartition] | None = None
        """What this leader was told not to share out (KIP-814); None when it did, or does not lead.
        """
        self._was_unfit = False
        """Whether the last share was of topics that this member did not ask for. Once that may be
        what a static member had before it restarted; twice is a leader's mistake.
        """
        self._unmatched_version: int | None = None
        """The cluster whose topics the pattern has not been held against yet."""
        self._incomplete_version: int | None = None
        """The cluster that does not know what others subscribe to, while another is asked for."""
        retry_backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._coverage = Coverage(
            surroundings.group_id,
            self._address,
            self._on_gap,
            retry_backoff=retry_backoff,
            log=self._log,
        )
        self._membership = self._make_membership(config, surroundings.group_id, retry_backoff)

    def _make_membership(
        self, config: ConsumerConfig, group_id: str, retry_backoff: Backoff
    ) -> ClassicMembership:
        return ClassicMembership(
            group_id,
            self,
            self._address,
            settings=ClassicSettings(
                config.session_timeout_ms, config.max_poll_interval_ms, config.request_timeout_ms
            ),
            heartbeat=Heartbeat(
                interval_ms=config.heartbeat_interval_ms,
                session_timeout_ms=config.session_timeout_ms,
                max_poll_interval_ms=config.max_poll_interval_ms,
                retry_backoff=retry_backoff,
            ),
            history=self.history,
            retry_backoff=retry_backoff,
            group_instance_id=config.group_instance_id,
            client_id=config.client_id,
        )

    # Asked by the consumer.

    def member(self) -> GroupMetadata:
        """Return as whom to commit now: the group alone for partitions assigned by hand.

        Raises:
            RebalanceInProgressError: the group is distributing its partitions; poll first.
            CommitFailedError: this consumer is no member any more.
        """
        if self._subscription.is_by_group and self._membership.is_rebalancing:
            raise self._in_rebalance()
        return super().member()

    def on_commit_refused(self, member: GroupMetadata, error: BrokerError) -> KafkaError:
        """Hear that the coordinator does not take this member's commit; return what to raise."""
        is_of_before = member.is_member and member != self.identity
        if is_of_before and not isinstance(error, RebalanceInProgressError):
            # Even a name that was fenced then may be this member's own by now.
            rebalances = self._membership.is_rebalancing
            return self._in_rebalance() if rebalances else commit_refused(member, error)
        return super().on_commit_refused(member, error)

    def _in_rebalance(self) -> RebalanceInProgressError:
        return RebalanceInProgressError(
            f"group {self.identity.group_id!r} is distributing its partitions: poll until that is "
            f"done, then commit again what is still assigned"
        )

    def enforce_rebalance(self, reason: str) -> None:
        """Join again at the next poll."""
        self._membership.ask_to_join(reason)

    def begin_leave(
        self, reason: str, *, sends: bool, now_ms: int, commit_deadline_ms: int
    ) -> Operation[None]:
        """Give everything up and leave; the result comes when the coordinator has been told."""
        self._joined_topics = self._shared = None
        return super().begin_leave(
            reason, sends=sends, now_ms=now_ms, commit_deadline_ms=commit_deadline_ms
        )

    def _join_with_subscription(self) -> None:
        self._unmatched_version = None
        if self._subscription.mode is SubscriptionMode.PATTERN:
            self._unmatched_version = self._metadata.cluster.version
            self._metadata.request_update()
        if self.identity.is_member or self._membership.needs_join:
            return  # `_notice_changes` sees it
        self._membership.ask_to_join("the consumer has subscribed")

    # Asked by the engine.

    def poll(self, now_ms: int) -> PollResult:
        """Go on with what the group needs."""
        if self._is_polling:
            self._notice_changes()
        result, coverage = super().poll(now_ms), self._coverage.poll(now_ms)
        return PollResult(
            [*result.requests, *coverage.requests],
            min(result.next_poll_ms, coverage.next_poll_ms),
        )

    def restart(self, now_ms: int) -> None:
        """Begin anew what is under way with the coordinator and with partitions."""
        self._coverage.restart()
        super().restart(now_ms)

    def _match(self, cluster: Cluster) -> None:
        # To join with half of the topics would be to join twice.
        if self._unmatched_version is None or cluster.version > self._unmatched_version:
            self._unmatched_version = None
            super()._match(cluster)

    def _notice_changes(self) -> None:
        """Join again when what the last round was made from does not hold any more.

        Runs in each turn, and costs nothing while nothing is new.
        """
        wanted, version = self._subscription.wanted_topics, self._metadata.cluster.version
        if wanted is self._joined_topics and version == self._compared_version:
            return
        if self._membership.needs_join or not self.identity.is_member or not self.may_join():
            return
        if not self._metadata.cluster.nodes:
            return  # it starts over: what it knew before is no worse than that
        if self._joined_topics not in (None, wanted):
            self._membership.ask_to_join("subscription has changed")
            return
        self._joined_topics, self._compared_version = wanted, version
        if self._shared is not None and self._shared != self._shape():
            self._membership.ask_to_join("cached metadata has changed")

    def _on_gap(self) -> None:
        self._membership.ask_to_join("partitions came while this leader restarted")

    def _shape(self) -> object:
        """What an assignment is made from, of the cluster: partitions and, if they count, racks."""
        cluster = self._metadata.cluster
        racks = topic_racks(cluster, self.group_topics)
        if self._rack is not None:
            return racks
        return {topic: len(partitions) for topic, partitions in racks.items()}

    # Asked by the membership.

    def may_join(self) -> bool:
        """Whether the topics are known that a pattern matches; any others are."""
        return self._unmatched_version is None

    def protocols(self, member: GroupMetadata) -> list[tuple[str, bytes]]:
        """Return the assignors, with what the leader shall know for each."""
        topics = self._joined_topics = self._subscription.wanted_topics
        owned = tuple(sorted(self._subscription.partitions))
        generation = member.generation if member.is_member else None
        return [
            (
                assignor.name,
                encode_subscription(
                    GroupMember(
                        topics=topics,
                        owned_partitions=owned,
                        generation=generation,
                        rack=self._rack,
                        user_data=_user_data(assignor, topics),
                    )
                ),
            )
            for assignor in self._assignors.values()
        ]

    def prepare(self, *, is_member: bool, now_ms: int) -> Operation[None]:
        """Give up what must not be held while joining."""
        self._shared = self._unshared = self._incomplete_version = None
        self._coverage.forget()
        if not is_member:
            return self.give_up(is_member=False, now_ms=now_ms)
        self._follow_group(frozenset())
        owned, wanted = self._subscription.partitions, self._subscription.wanted_topics
        given_up = given_up_to_join(self._protocol, owned, wanted)
        operation = self._handover.begin(now_ms)
        if given_up or self._protocol is RebalanceProtocol.EAGER:
            deadline_ms = now_ms + self._max_poll_interval_ms
            self._handover.revoke(given_up, deadline_ms=deadline_ms)
        self._handover.go()
        return operation

    def lead(
        self, protocol: str, response: JoinGroupResponse
    ) -> Sequence[tuple[str, bytes]] | None:
        """Share out; None until all topics of the group are known."""
        assignor = self._assignor(protocol)
        members = read_members(response.members)
        topics = frozenset[str]().union(*(member.topics for member in members.values()))
        self._follow_group(topics)
        cluster = self._metadata.cluster
        if not is_known(cluster, topics) and self._awaits_topics(cluster):
            return None
        self._incomplete_version = None
        assigned = share_out(assignor, self._protocol, topic_racks(cluster, topics), members)
        given_topics = {each.topic for share in assigned.values() for each in share.partitions}
        self._follow_group(topics | given_topics)
        self._shared, self._compared_version = self._shape(), cluster.version
        if response.skip_assignment:
            shares = assigned.values()
            self._unshared = frozenset(each for share in shares for each in share.partitions)
            return []
        return [
            (member_id, encode_assignment(share.partitions, share.user_data))
            for member_id, share in assigned.items()
        ]

    def _awaits_topics(self, cluster: Cluster) -> bool:
        """Whether the next metadata may tell of more topics than this cluster has.

        Of topics asked for by name each is told of, also one that does not exist. Who asks for all
        hears nothing of that one, and must not wait for it: the whole group would.
        """
        if not self._subscription.is_by_pattern or not cluster.nodes:
            return True
        if self._incomplete_version is None:
            self._incomplete_version = cluster.version
            self._metadata.request_update()
        return cluster.version <= self._incomplete_version

    def take(self, protocol: str, assignment: bytes, now_ms: int) -> Operation[str | None]:
        """Take what came, and give up what is not in it."""
        assignor = self._assignor(protocol)
        share = read_assignment(assignment)
        assigned = share.partitions
        taken: Operation[str | None] = Operation()
        if not self._fits(assigned):
            is_told_anew = self._joined_topics != self._subscription.wanted_topics
            if self._was_unfit and not is_told_anew:
                raise UsageError(
                    f"the leader of group {self.identity.group_id!r} gave this member partitions "
                    f"of topics that it does not read: {', '.join(map(str, sorted(assigned)))}; "
                    f"correct its assignor {protocol!r}"
                )
            self._was_unfit = not is_told_anew
            taken.succeed("received assignment does not match the current subscription")
            return taken
        self._was_unfit = False
        try:
            assignor.on_assignment(assigned, self.identity.generation, share.user_data)
        except Exception as error:
            raise_of_signal_handler(error)
            raise UsageError(f"the assignor {protocol!r} failed: {error!r}") from error
        reason = None
        if not self._subscription.partitions <= set(assigned):
            reason = "need to revoke partitions and re-join"
        if self._unshared is not None:
            self._coverage.ask(self._unshared)
            self._unshared = None
        self._change_to(assigned, now_ms).on_done(lambda _: taken.succeed(reason))
        return taken

    def give_up(self, *, is_member: bool, now_ms: int) -> Operation[None]:
        """Give everything up; others share out from now on."""
        self._coverage.forget()
        self._follow_group(frozenset())
        return super().give_up(is_member=is_member, now_ms=now_ms)

    def _assignor(self, name: str) -> Assignor:
        assignor = self._assignors.get(name)
        if assignor is None:
            raise InconsistentGroupProtocolError(
                f"the coordinator of group {self.identity.group_id!r} chose the assignor {name!r}, "
                f"and this consumer has {', '.join(self._assignors)}"
            )
        return assignor

    def _fits(self, assigned: Sequence[TopicPartition]) -> bool:
        topics = {partition.topic for partition in assigned}
        if self._subscription.mode is SubscriptionMode.PATTERN:
            pattern = self._subscription.pattern
            assert pattern is not None
            return all(pattern.fullmatch(topic) for topic in topics)
        return topics <= self._subscription.wanted_topics

    def _follow_group(self, topics: frozenset[str]) -> None:
        if topics != self.group_topics:
            self.group_topics = topics
            self._follow_topics()


def _user_data(assignor: Assignor, topics: frozenset[str]) -> bytes | None:
    try:
        data = assignor.user_data(topics)
    except Exception as error:
        raise_of_signal_handler(error)
        raise UsageError(f"the assignor {assignor.name!r} failed: {error!r}") from error
    if not isinstance(data, (bytes, NoneType)):
        raise UsageError(
            f"the assignor {assignor.name!r} gave user data that is no bytes: {data!r:.100}"
        )
    return data


def given_up_to_join(
    protocol: RebalanceProtocol, owned: Iterable[TopicPartition], topics: Collection[str]
) -> list[TopicPartition]:
    """Return what a member gives up before it joins again.

    Everything in an eager group; in a cooperative one only what it does not want any more.
    """
    if protocol is RebalanceProtocol.EAGER:
        return sorted(owned)
    return sorted(partition for partition in owned if partition.topic not in topics)
