"""ConsumerGroupDescribe: KIP-848 groups with their members' assignments and targets.

Owner: none; it holds no state.
Source: KIP-848, KIP-1099 (kinds of members); Java class ``ConsumerGroup``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import (
    BrokerUnsupportedVersionError,
    GroupIdNotFoundError,
    InvalidGroupIdError,
)
from pykclient.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from pykclient.testing.fake.groups.kip848.group import ConsumerGroup
from pykclient.testing.fake.handlers.describe_groups import ALL_OPERATIONS
from pykclient.testing.fake.handlers.handler import Handler

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.groups.kip848.assignors import TopicIdPartition
    from pykclient.testing.fake.groups.kip848.members import ConsumerGroupMember
    from pykclient.testing.fake.state import ClusterState

_CONSUMER_MEMBER = 1
"""Type of a member that uses KIP-848; 0 is a classic member in such a group."""


def handle(
    cluster: ClusterState, call: Call, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describe each group, or return its error."""
    if not cluster.group_version:
        return refuse(cluster, request, BrokerUnsupportedVersionError.code)
    groups = [_described(cluster, call.broker_id, name) for name in request.group_ids]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = ALL_OPERATIONS
    return ConsumerGroupDescribeResponse(groups=groups)


def refuse(
    _: ClusterState, request: ConsumerGroupDescribeRequest, error_code: int
) -> ConsumerGroupDescribeResponse:
    """Refuse every group."""
    return ConsumerGroupDescribeResponse(
        groups=[DescribedGroup(group_id=name, error_code=error_code) for name in request.group_ids]
    )


def _described(cluster: ClusterState, broker_id: int, name: str) -> DescribedGroup:
    if not name:
        return DescribedGroup(group_id=name, error_code=InvalidGroupIdError.code)
    refusal = cluster.groups.check_coordinator(broker_id, name)
    if refusal is not None:
        return DescribedGroup(group_id=name, error_code=refusal.code)
    group = cluster.groups.find(name)
    if not isinstance(group, ConsumerGroup):
        reason = "not found" if group is None else "is not a consumer group"
        return DescribedGroup(
            group_id=name,
            error_code=GroupIdNotFoundError.code,
            error_message=f"Group {name} {reason}.",
        )
    return DescribedGroup(
        group_id=name,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.protocol_name,
        members=[_member(cluster, *each) for each in group.member_targets()],
    )


def _member(
    cluster: ClusterState, member: ConsumerGroupMember, target: Iterable[TopicIdPartition]
) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(cluster, [*member.assigned, *member.pending_revocation]),
        target_assignment=_assignment(cluster, target),
        member_type=_CONSUMER_MEMBER,
    )


def _assignment(cluster: ClusterState, names: Iterable[TopicIdPartition]) -> Assignment:
    """Return partitions by topic, without those of deleted topics."""
    topics: dict[bytes, TopicPartitions] = {}
    for topic_id, number in sorted(names):
        topic = cluster.topic_by_id(topic_id)
        if topic is not None:
            part = topics.setdefault(topic_id, TopicPartitions(topic_id, topic.name))
            part.partitions.append(number)
    return Assignment(list(topics.values()))


HANDLER = Handler(ConsumerGroupDescribeRequest, handle, refuse)
