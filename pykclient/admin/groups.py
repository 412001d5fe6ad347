"""Groups: their descriptions, and the handlers that list, read and delete them.

Source: the ListGroups, DescribeGroups, ConsumerGroupDescribe, DeleteGroups and FindCoordinator
APIs; KIP-222 (administration), KIP-518 (states), KIP-848 (types).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.admin.call import (
    ONE_KEY_MAX_VERSION,
    AdminHandler,
    Receiver,
    coordinator_request,
    failure,
    found_coordinator,
)
from pykclient.errors import DecodeError, GroupIdNotFoundError
from pykclient.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from pykclient.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from pykclient.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from pykclient.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from pykclient.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pykclient.protocol.reader import Reader
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pykclient.admin.call import Results
    from pykclient.errors import KafkaError
    from pykclient.protocol.message import Message
    from pykclient.protocol.messages.consumer_group_describe import Assignment, Member
    from pykclient.protocol.messages.consumer_group_describe import (
        DescribedGroup as DescribedConsumerGroup,
    )
    from pykclient.protocol.messages.describe_groups import (
        DescribedGroup,
        DescribedGroupMember,
    )
    from pykclient.protocol.messages.find_coordinator import FindCoordinatorRequest
    from pykclient.types import Node

CONSUMER_PROTOCOL: Final = "consumer"
"""Protocol type of consumer groups; Connect's workers, for example, have another."""

DEAD: Final = "Dead"

ALL_BROKERS: Final = "all brokers"
"""The only key of a call that lists brokers."""


class GroupListing(NamedTuple):
    """A group in a list.

    `protocol_type` is ``consumer`` for consumers, and empty for a group with offsets that never had
    a member. `state` is None for brokers before 2.6 (KIP-518), `group_type` (``classic``,
    ``consumer``, ``share``, ``streams``) for brokers before 3.7 (KIP-848).
    """

    group_id: str
    protocol_type: str
    state: str | None
    group_type: str | None


class MemberDescription(NamedTuple):
    """A member of a group.

    `instance_id` is None unless the member is static (KIP-345). `target_assignment` (the assignment
    it is moving to) and `member_epoch` belong to KIP-848, and are None in classic groups. `rack` is
    None if not set. The `assignment` of a member that is not a consumer is empty, since its format
    is unknown.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    target_assignment: tuple[TopicPartition, ...] | None
    member_epoch: int | None
    rack: str | None


class GroupDescription(NamedTuple):
    """A group with its members.

    `group_type` is ``classic`` or ``consumer`` (KIP-848). `state` is one of Kafka's: ``Empty``,
    ``Stable``, ``PreparingRebalance`` and ``CompletingRebalance`` (classic), ``Assigning`` and
    ``Reconciling`` (consumer). `assignor` is empty while there are no members. The epochs are None
    in classic groups.
    """

    group_id: str
    group_type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: Node
    members: tuple[MemberDescription, ...]
    group_epoch: int | None
    assignment_epoch: int | None


class ListBrokers(AdminHandler[str, tuple[int, ...]]):
    """Lists the brokers of the cluster; the only key is `ALL_BROKERS`."""

    receiver = Receiver.ANY_BROKER

    def request(self, keys: Sequence[str], timeout_ms: int) -> MetadataRequest:
        return MetadataRequest(topics=[], allow_auto_topic_creation=False)

    def results(self, message: Message, keys: Sequence[str]) -> Results[str, tuple[int, ...]]:
        assert isinstance(message, MetadataResponse)
        error = failure(message.error_code, "the list of brokers")
        yield ALL_BROKERS, error or tuple(broker.node_id for broker in message.brokers)


class ListGroups(AdminHandler[int, tuple[GroupListing, ...]]):
    """Lists the groups that brokers, by id, coordinate.

    A broker for which `is_gone` is true has none: other brokers have taken over its groups.
    """

    receiver = Receiver.BROKER

    def __init__(
        self, states: Sequence[str], types: Sequence[str], is_gone: Callable[[int], bool]
    ) -> None:
        self._states = states
        self._types = types
        self._is_gone = is_gone

    def request(self, keys: Sequence[int], timeout_ms: int) -> ListGroupsRequest:
        return ListGroupsRequest(states_filter=list(self._states), types_filter=list(self._types))

    def results(
        self, message: Message, keys: Sequence[int]
    ) -> Results[int, tuple[GroupListing, ...]]:
        assert isinstance(message, ListGroupsResponse)
        groups = tuple(
            GroupListing(
                group.group_id,
                group.protocol_type,
                group.group_state or None,
                group.group_type.lower() or None,
            )
            for group in message.groups
        )
        for key in keys:
            error = failure(message.error_code, f"the groups of broker {key}")
            yield key, groups if error is None else error

    def on_unreachable(self, key: int, error: KafkaError) -> tuple[GroupListing, ...] | KafkaError:
        return () if self._is_gone(key) else error


class FindCoordinators(AdminHandler[str, "Node"]):
    """Finds the coordinators of groups, by name; the groups need not exist."""

    receiver = Receiver.ANY_BROKER
    max_version = ONE_KEY_MAX_VERSION
    keys_per_request_max = 1

    def request(self, keys: Sequence[str], timeout_ms: int) -> FindCoordinatorRequest:
        (group,) = keys
        return coordinator_request(group)

    def results(self, message: Message, keys: Sequence[str]) -> Results[str, Node]:
        (group,) = keys
        yield group, found_coordinator(group, message)


class DescribeConsumerGroups(AdminHandler[str, GroupDescription]):
    """Describes KIP-848 groups by name. Classic groups are not found."""

    receiver = Receiver.COORDINATOR

    def __init__(self, coordinators: Mapping[str, Node]) -> None:
        self._coordinators = coordinators

    def request(self, keys: Sequence[str], timeout_ms: int) -> ConsumerGroupDescribeRequest:
        return ConsumerGroupDescribeRequest(group_ids=list(keys))

    def results(self, message: Message, keys: Sequence[str]) -> Results[str, GroupDescription]:
        assert isinstance(message, ConsumerGroupDescribeResponse)
        for group in message.groups:
            name = group.group_id
            if name in self._coordinators:
                error = failure(group.error_code, f"group {name!r}", group.error_message)
                yield name, error or _consumer_description(group, self._coordinators[name])


class DescribeClassicGroups(AdminHandler[str, GroupDescription]):
    receiver = Receiver.COORDINATOR

    def __init__(self, coordinators: Mapping[str, Node]) -> None:
        self._coordinators = coordinators

    def request(self, keys: Sequence[str], timeout_ms: int) -> DescribeGroupsRequest:
        return DescribeGroupsRequest(groups=list(keys))

    def results(self, message: Message, keys: Sequence[str]) -> Results[str, GroupDescription]:
        assert isinstance(message, DescribeGroupsResponse)
        for group in message.groups:
            name = group.group_id
            if name not in self._coordinators:
                continue
            error = failure(group.error_code, f"group {name!r}", group.error_message)
            if error is None and group.group_state == DEAD:
                # Brokers before 4.0 describe a group that does not exist like this (KIP-1043).
                code = GroupIdNotFoundError.code
                error = failure(code, f"group {name!r}", "it does not exist")
            yield name, error or _classic_description(group, self._coordinators[name])


class DeleteGroups(AdminHandler[str, str]):
    """Deletes groups without members, by name, with all their committed offsets."""

    receiver = Receiver.COORDINATOR

    def request(self, keys: Sequence[str], timeout_ms: int) -> DeleteGroupsRequest:
        return DeleteGroupsRequest(groups_names=list(keys))

    def results(self, message: Message, keys: Sequence[str]) -> Results[str, str]:
        assert isinstance(message, DeleteGroupsResponse)
        for result in message.results:
            name = result.group_id
            error = failure(result.error_code, f"group {name!r}", result.error_message)
            yield name, error or name


def _consumer_description(group: DescribedConsumerGroup, coordinator: Node) -> GroupDescription:
    return GroupDescription(
        group_id=group.group_id,
        group_type="consumer",
        state=group.group_state,
        protocol_type=CONSUMER_PROTOCOL,
        assignor=group.assignor_name,
        coordinator=coordinator,
        members=tuple(map(_consumer_member, group.members)),
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
    )


def _consumer_member(member: Member) -> MemberDescription:
    return MemberDescription(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=_partitions(member.assignment),
        target_assignment=_partitions(member.target_assignment),
        member_epoch=member.member_epoch,
        rack=member.rack_id,
    )


def _partitions(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return _in_order(
        TopicPartition(topic.topic_name, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )


def _classic_description(
    group: DescribedGroup, coordinator: Node
) -> GroupDescription | DecodeError:
    is_of_consumers = group.protocol_type == CONSUMER_PROTOCOL
    try:
        members = tuple(
            _classic_member(member, _assigned(member) if is_of_consumers else ())
            for member in group.members
        )
    except DecodeError as error:
        return DecodeError(f"group {group.group_id!r} has an assignment that is malformed: {error}")
    return GroupDescription(
        group_id=group.group_id,
        group_type="classic",
        state=group.group_state,
        protocol_type=group.protocol_type,
        assignor=group.protocol_data,
        coordinator=coordinator,
        members=members,
        group_epoch=None,
        assignment_epoch=None,
    )


def _classic_member(
    member: DescribedGroupMember, assignment: tuple[TopicPartition, ...]
) -> MemberDescription:
    return MemberDescription(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=assignment,
        target_assignment=None,
        member_epoch=None,
        rack=None,
    )


def _assigned(member: DescribedGroupMember) -> tuple[TopicPartition, ...]:
    """Return the assignment that the group's leader gave a member; empty before that."""
    if not member.member_assignment:
        return ()
    reader = Reader(member.member_assignment)
    # Newer versions add fields at the end.
    version = min(reader.int16(), ConsumerProtocolAssignment.max_version)
    assignment = ConsumerProtocolAssignment.read(reader, max(version, 0))
    return _in_order(
        TopicPartition(topic.topic, partition)
        for topic in assignment.assigned_partitions
        for partition in topic.partitions
    )


def _in_order(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(partitions))
