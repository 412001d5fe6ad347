"""GroupCalls: the calls of an admin client about groups and their offsets.

Owner: the admin lock (`AdminDriver`).
Source: Java interface ``Admin``; KIP-222, KIP-396, KIP-496, KIP-848.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.admin.driver import AdminDriver
from pykclient.admin.group_offsets import (
    AlterGroupOffsets,
    DeleteGroupOffsets,
    ListGroupOffsets,
)
from pykclient.admin.groups import (
    ALL_BROKERS,
    DeleteGroups,
    DescribeClassicGroups,
    DescribeConsumerGroups,
    FindCoordinators,
    ListBrokers,
    ListGroups,
)
from pykclient.admin.lookup import GroupCoordinator
from pykclient.arguments import (
    check_text,
    name_list,
    offsets_by_partition,
    partition_list,
    shown_argument,
)
from pykclient.errors import (
    GroupIdNotFoundError,
    UnsupportedVersionError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pykclient.admin.groups import GroupDescription, GroupListing
    from pykclient.types import Node, OffsetAndMetadata, TopicPartition

__all__ = ["GroupCalls"]

NOT_OF_KIP_848: Final = (GroupIdNotFoundError, UnsupportedVersionError)
"""The broker has no such group of KIP-848, or it does not know of KIP-848."""


class GroupCalls(AdminDriver):
    """Lists, describes and deletes groups; reads, moves and deletes what they have committed."""

    def list_groups(
        self,
        timeout: float | None = None,
        *,
        states: Iterable[str] = (),
        types: Iterable[str] = (),
    ) -> dict[str, GroupListing]:
        """Return the groups of the cluster that this client may see, by name.

        `states` (as ``["Stable", "Empty"]``, brokers 2.6 or newer, KIP-518) and `types`
        (``classic``, ``consumer``, ``share``, ``streams``; brokers 3.7 or newer, KIP-848) choose
        among them; of either, none means all.

        Raises:
            UnsupportedVersionError: the one broker is too old for `states` or `types`.
            KafkaTimeoutError: a broker of the cluster did not answer in time.
            AdminCallError: several brokers did not tell; the errors are by their ids.
        """
        wanted_states = name_list(states, "state", "list_groups")
        wanted_types = name_list(types, "type", "list_groups")
        deadline_ms, timeout_ms = self._deadline(timeout)
        with self._entered(timeout_ms):
            brokers = self._call(ListBrokers(), (ALL_BROKERS,), deadline_ms)
            self._drive(brokers, deadline_ms)
            ids = self._result(brokers, "the list of", timeout_ms)[ALL_BROKERS]
            handler = ListGroups(wanted_states, wanted_types, self._watch_brokers())
            call = self._call(handler, ids, deadline_ms)
            self._drive(call, deadline_ms)
            told = self._result(call, "the groups of brokers", timeout_ms)
        return {group.group_id: group for groups in told.values() for group in groups}

    def describe_groups(
        self, groups: Iterable[str], timeout: float | None = None
    ) -> dict[str, GroupDescription]:
        """Return groups with their members and what these have, by name, of both protocols.

        Raises:
            GroupIdNotFoundError, GroupAuthorizationFailedError and others: what the broker says of
                the one group that it cannot describe.
            AdminCallError: it cannot describe several.
            KafkaTimeoutError: a coordinator did not answer in time.
        """
        names = name_list(groups, "group", "describe_groups")
        deadline_ms, timeout_ms = self._deadline(timeout)
        lookup = GroupCoordinator()
        with self._entered(timeout_ms):
            modern = self._call(DescribeConsumerGroups(lookup), names, deadline_ms)
            self._drive(modern, deadline_ms)
            others = [n for n, error in modern.errors.items() if isinstance(error, NOT_OF_KIP_848)]
            classic = self._call(DescribeClassicGroups(lookup), others, deadline_ms)
            self._drive(classic, deadline_ms)
            for name in others:
                del modern.errors[name]
            modern.errors.update(classic.errors)
            modern.values.update(classic.values)
            if classic.unfinished:
                self._result(classic, "the description of groups", timeout_ms)
            found = self._result(modern, "the description of groups", timeout_ms)
        return {name: found[name] for name in names}

    def find_coordinators(
        self, groups: Iterable[str], timeout: float | None = None
    ) -> dict[str, Node]:
        """Return the broker that coordinates each group, by name; the groups need not exist.

        Raises:
            GroupAuthorizationFailedError: this client may not see the one group.
            AdminCallError: it may not see several.
            KafkaTimeoutError: no broker told in time.
        """
        names = name_list(groups, "group", "find_coordinators")
        return self._run(FindCoordinators(), names, "the coordinators of groups", timeout)

    def delete_groups(self, groups: Iterable[str], timeout: float | None = None) -> None:
        """Delete groups that have no members, with all that they have committed.

        Raises:
            NonEmptyGroupError, GroupIdNotFoundError and others: what the broker says of the one
                group that it did not delete.
            AdminCallError: it did not delete several.
            KafkaTimeoutError: no answer in time; the groups may have been deleted.
        """
        names = name_list(groups, "group", "delete_groups")
        self._run(DeleteGroups(), names, "the deletion of groups", timeout)

    def list_group_offsets(
        self,
        group: str,
        partitions: Iterable[TopicPartition] | None = None,
        timeout: float | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what a group has committed, for some partitions or (None) all.

        A partition without an offset is left out, so a group that does not exist has none. With
        `require_stable` it waits until no transaction is about to commit offsets (brokers 2.5 or
        newer, KIP-447).

        Raises:
            GroupAuthorizationFailedError, TopicAuthorizationFailedError and others: what the broker
                says.
            KafkaTimeoutError: no answer in time.
        """
        name = _group_name(group, "list_group_offsets")
        given = None if partitions is None else _partitions(partitions, "list_group_offsets")
        handler = ListGroupOffsets(given, is_stable=require_stable)
        return self._run(handler, (name,), "the offsets of group", timeout)[name]

    def alter_group_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        timeout: float | None = None,
    ) -> None:
        """Commit offsets for a group that has no members; a group that does not exist is made.

        Raises:
            UnknownMemberIdError: the group has members.
            UnknownTopicOrPartitionError and others: what the broker says of the one partition whose
                offset it did not take.
            AdminCallError: it did not take several.
            KafkaTimeoutError: no answer in time; the offsets may have been taken.
        """
        name = _group_name(group, "alter_group_offsets")
        given = offsets_by_partition(offsets, "alter_group_offsets")
        self._run(
            AlterGroupOffsets(name, given), given, f"offsets of group {name!r}, partitions", timeout
        )

    def delete_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> None:
        """Have a group forget what it committed for partitions of topics that no member reads.

        Brokers 2.4 or newer (KIP-496). A partition without an offset is fine.

        Raises:
            GroupSubscribedToTopicError: a member reads the topic.
            GroupIdNotFoundError, UnknownTopicOrPartitionError and others: what the broker says of
                the one partition that it did not forget.
            AdminCallError: it did not forget several.
            KafkaTimeoutError: no answer in time; the offsets may have been forgotten.
        """
        name = _group_name(group, "delete_group_offsets")
        keys = _partitions(partitions, "delete_group_offsets")
        self._run(DeleteGroupOffsets(name), keys, f"offsets of group {name!r}, partitions", timeout)

    def _watch_brokers(self) -> Callable[[int], bool]:
        """Return a function that tells whether a broker has left the cluster since now.

        What is known now may be too old to have heard of the broker at all.
        """
        version = self._metadata.cluster.version

        def is_gone(broker_id: int) -> bool:
            cluster = self._metadata.cluster
            return cluster.version > version and broker_id not in cluster.nodes

        return is_gone


def _group_name(group: str, call: str) -> str:
    if not isinstance(group, str):
        raise UsageError(f"{call}: group is {shown_argument(group)}; give its name")
    check_text(group, "group", call)
    return group


def _partitions(partitions: Iterable[TopicPartition], call: str) -> list[TopicPartition]:
    return list(dict.fromkeys(partition_list(partitions, call)))
