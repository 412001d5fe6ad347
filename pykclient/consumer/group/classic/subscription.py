"""JoinedSubscription: the subscription of a classic member, and its assignments.

Owner: the core lock.
Source: Java class ``ConsumerCoordinator`` (``metadata``, ``onJoinComplete``).
"""

from __future__ import annotations

from dataclasses import replace
from types import NoneType
from typing import TYPE_CHECKING

from pykclient.consumer.group.assignors import GroupMember
from pykclient.consumer.group.classic.leader import chosen_assignor
from pykclient.consumer.group.classic.protocol import encode_subscription, read_assignment
from pykclient.consumer.subscription import SubscriptionMode, describe_partitions
from pykclient.errors import DecodeError, UsageError
from pykclient.network.interrupts import raise_of_signal_handler

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.group.assignors import Assignor
    from pykclient.consumer.group.rebalance import GroupContext
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.types import GroupMetadata, TopicPartition


class JoinedSubscription:
    """The subscription of one member, as its leader knows it."""

    def __init__(
        self, config: ConsumerConfig, context: GroupContext, assignors: Mapping[str, Assignor]
    ) -> None:
        self.is_known = True
        """True if the topics to join with are known; for a new pattern they are not at first."""
        self.topics: frozenset[str] | None = None
        """Topics of the last JoinGroup; None before the first."""
        self._config = config
        self._subscription = context.subscription
        self._metadata = context.metadata
        self._assignors = assignors
        self._unmatched_version = 0
        """Version of the cluster that was not matched with the pattern yet."""
        self._was_unfit = False
        """True if the last assignment had topics that this member does not subscribe to. Once, it
        may be a static member's assignment from before a restart; twice is a bug of the leader.
        """

    def begin(self) -> None:
        """Follow a new subscription; a new pattern is matched with the next metadata."""
        self.is_known = self._subscription.mode is not SubscriptionMode.PATTERN
        if not self.is_known:
            self._unmatched_version = self._metadata.cluster.version
            self._metadata.request_update()

    def match(self, cluster: Cluster) -> None:
        # Joining with only some of the topics would mean joining twice.
        if self.is_known or cluster.version > self._unmatched_version:
            self.is_known = True
            exclude_internal = self._config.exclude_internal_topics
            self._subscription.match(cluster, exclude_internal=exclude_internal)

    def encoded(self, member: GroupMetadata) -> list[tuple[str, bytes]]:
        """Return each assignor's name with the subscription for the leader."""
        topics = self.topics = self._subscription.wanted_topics
        subscribed = GroupMember(
            topics=topics,
            owned_partitions=tuple(sorted(self._subscription.partitions)),
            generation=member.generation if member.is_member else None,
            rack=self._config.client_rack or None,
        )
        return [
            (
                each.name,
                encode_subscription(replace(subscribed, user_data=_user_data(each, topics))),
            )
            for each in self._assignors.values()
        ]

    def assigned(
        self, protocol: str, data: bytes, member: GroupMetadata
    ) -> Sequence[TopicPartition] | None:
        """Read the leader's assignment; None if it does not fit the subscription.

        Raises:
            KafkaError: the assignment is malformed, does not fit again, or the assignor failed.
        """
        assignor = chosen_assignor(self._assignors, protocol, member.group_id)
        try:
            assignment = read_assignment(data)
        except DecodeError as error:
            raise DecodeError(
                f"the assignment by the leader of group {member.group_id!r} cannot be read: {error}"
            ) from error
        assigned = assignment.partitions
        if not self._fits(assigned):
            has_changed = self.topics != self._subscription.wanted_topics
            if self._was_unfit and not has_changed:
                raise UsageError(
                    f"the leader of group {member.group_id!r} assigned partitions of topics "
                    f"that this member does not subscribe to: "
                    f"{describe_partitions(assigned)}; correct its assignor "
                    f"{assignor.name!r}"
                )
            self._was_unfit = not has_changed
            return None
        self._was_unfit = False
        try:
            assignor.on_assignment(assigned, member.generation, assignment.user_data)
        except Exception as error:
            raise_of_signal_handler(error)
            raise UsageError(f"the assignor {assignor.name!r} failed: {error!r}") from error
        return assigned

    def _fits(self, assigned: Sequence[TopicPartition]) -> bool:
        topics = {partition.topic for partition in assigned}
        if self._subscription.mode is SubscriptionMode.PATTERN:
            pattern = self._subscription.pattern
            assert pattern is not None
            return all(pattern.fullmatch(topic) for topic in topics)
        return topics <= self._subscription.wanted_topics


def _user_data(assignor: Assignor, topics: frozenset[str]) -> bytes | None:
    try:
        data = assignor.user_data(topics)
    except Exception as error:
        raise_of_signal_handler(error)
        raise UsageError(f"the assignor {assignor.name!r} failed: {error!r}") from error
    if not isinstance(data, (bytes, NoneType)):
        raise UsageError(
            f"the assignor {assignor.name!r} returned user data that is not bytes: {data!r:.100}"
        )
    return data
