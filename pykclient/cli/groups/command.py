"""``pykclient groups``: the groups of a cluster, their coordinators and offsets.

The clients are loaded when a part is run, so that other commands start without them.

Owner: the main thread.
Source: Java class ``ConsumerGroupCommand``, whose columns these are.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from struct import unpack
from typing import TYPE_CHECKING, Final, NamedTuple

import pykclient
from pykclient.cli.cluster_options import add_cluster_options, client_settings
from pykclient.cli.groups import reset
from pykclient.cli.table import write_rows
from pykclient.errors import (
    BrokerError,
    UnknownTopicOrPartitionError,
    UsageError,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping

    from pykclient import Admin, GroupDescription, MemberDescription, OffsetAndMetadata
    from pykclient.types import TopicPartition

__all__ = ["add_command"]

OFFSETS_TOPIC: Final = "__consumer_offsets"

INT_MIN: Final = -(2**31)
SIGN_BIT: Final = 2**31
INT_MASK: Final = 2**32 - 1

DESCRIPTION: Final = "Show consumer groups and how far they have come, and move them."


class CoordinatorRow(NamedTuple):
    """The coordinator of a group; None while the partition has no leader."""

    group: str
    topic: str
    partition: int
    leader: int | None
    host: str | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class ListRow(NamedTuple):
    group: str
    group_type: str | None
    state: str | None
    protocol: str


class GroupRow(NamedTuple):
    """A group as its coordinator describes it."""

    group: str
    group_type: str
    state: str
    coordinator: str
    assignment_strategy: str
    members: int


class MemberRow(NamedTuple):
    """A member and what it has."""

    group: str
    consumer_id: str
    host: str
    client_id: str
    instance_id: str | None
    partitions: int
    assignment: dict[str, list[int]]


class OffsetRow(NamedTuple):
    """A group's offset in a partition, and the member that reads it; None where there is none."""

    group: str
    topic: str
    partition: int
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    consumer_id: str | None
    host: str | None
    client_id: str | None


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("groups", help="show and move groups", description=DESCRIPTION)
    parts = parser.add_subparsers(title="parts", metavar="PART", required=True)
    _add_part(parts, "list", run_list, "list all groups")
    for name, run, aim in (
        ("coordinator", run_coordinator, f"show a group's partition of {OFFSETS_TOPIC}"),
        ("describe", run_describe, "show the members of groups and what they have"),
        ("offsets", run_offsets, "show how far groups have come, and their lag"),
    ):
        part = _add_part(parts, name, run, aim)
        part.add_argument("groups", nargs="+", metavar="GROUP")
    reset.add_part(parts)


def run_list(options: argparse.Namespace) -> int:
    with pykclient.Admin(client_settings(options)) as admin:
        groups = sorted(admin.list_groups().values())
    rows = [ListRow(g.group_id, g.group_type, g.state, g.protocol_type) for g in groups]
    write_rows("group", rows, is_json=options.json)
    return 0


def run_coordinator(options: argparse.Namespace) -> int:
    with pykclient.Admin(client_settings(options)) as admin:
        try:
            topic = admin.describe_topics([OFFSETS_TOPIC])[OFFSETS_TOPIC]
        except UnknownTopicOrPartitionError as error:
            raise UsageError(
                f"this cluster has no {OFFSETS_TOPIC} yet: it is made when the first group is used"
            ) from error
        places = {
            group: topic.partitions[coordinator_partition(group, len(topic.partitions))]
            for group in dict.fromkeys(options.groups)
        }
        led = [group for group, place in places.items() if place.leader_id is not None]
        nodes = admin.find_coordinators(led)
    rows = []
    for group, place in places.items():
        node = nodes.get(group)
        if node is not None and node.id != place.leader_id:
            sys.stderr.write(
                f"pykclient: group {group!r} is moving: brokers name {node} as its coordinator\n"
            )
        is_leader = node is not None and node.id == place.leader_id
        rows.append(
            CoordinatorRow(
                group,
                OFFSETS_TOPIC,
                place.partition,
                place.leader_id,
                f"{node.host}:{node.port}" if node is not None and is_leader else None,
                place.replica_ids,
                place.in_sync_replica_ids,
            )
        )
    write_rows("coordinator", rows, is_json=options.json)
    return 0


def run_describe(options: argparse.Namespace) -> int:
    with pykclient.Admin(client_settings(options)) as admin:
        groups, errors = _described(admin, options.groups)
    members = [_member_row(group, member) for group in groups for member in group.members]
    write_rows("group", [_group_row(group) for group in groups], is_json=options.json)
    if members and not options.json:
        sys.stdout.write("\n")
    write_rows("member", members, is_json=options.json)
    return _report(errors)


def run_offsets(options: argparse.Namespace) -> int:
    settings = client_settings(options)
    rows: list[OffsetRow] = []
    with pykclient.Admin(settings) as admin, pykclient.Consumer(settings) as consumer:
        descriptions, errors = _described(admin, options.groups)
        for description in descriptions:
            group = description.group_id
            committed = admin.list_group_offsets(group)
            owners = {
                partition: member
                for member in description.members
                for partition in member.assignment
            }
            partitions = sorted({*committed, *owners})
            ends = consumer.end_offsets(reset.existing_partitions(admin, partitions))
            rows += (
                _offset_row(group, partition, committed.get(partition), ends, owners)
                for partition in partitions
            )
            if not partitions:
                sys.stderr.write(f"pykclient: group {group!r} has committed nothing\n")
    write_rows("offset", rows, is_json=options.json)
    return _report(errors)


def _add_part(
    parts: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], int],
    aim: str,
) -> argparse.ArgumentParser:
    part = parts.add_parser(name, help=aim, description=f"{aim[0].upper()}{aim[1:]}.")
    add_cluster_options(part)
    part.set_defaults(run=run)
    return part


def _described(
    admin: Admin, groups: Iterable[str]
) -> tuple[list[GroupDescription], list[BrokerError]]:
    """Describe groups; of one that cannot be described, return why, and go on with the others."""
    found: list[GroupDescription] = []
    errors: list[BrokerError] = []
    for group in dict.fromkeys(groups):
        try:
            found += admin.describe_groups([group]).values()
        except BrokerError as error:
            errors.append(error)
    return found, errors


def _report(errors: Iterable[BrokerError]) -> int:
    """Say what went wrong; the exit status."""
    status = 0
    for error in errors:
        sys.stderr.write(f"pykclient: {error}\n")
        status = 1
    return status


def _group_row(group: GroupDescription) -> GroupRow:
    return GroupRow(
        group.group_id,
        group.group_type,
        group.state,
        str(group.coordinator),
        group.assignor,
        len(group.members),
    )


def _member_row(group: GroupDescription, member: MemberDescription) -> MemberRow:
    assignment: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in member.assignment:
        assignment[topic].append(partition)
    return MemberRow(
        group.group_id,
        member.member_id,
        member.host,
        member.client_id,
        member.instance_id,
        len(member.assignment),
        dict(assignment),
    )


def _offset_row(
    group: str,
    partition: TopicPartition,
    committed: OffsetAndMetadata | None,
    ends: Mapping[TopicPartition, int],
    owners: Mapping[TopicPartition, MemberDescription],
) -> OffsetRow:
    end, owner = ends.get(partition), owners.get(partition)
    return OffsetRow(
        group,
        *partition,
        current_offset=None if committed is None else committed.offset,
        log_end_offset=end,
        lag=None if committed is None or end is None else end - committed.offset,
        consumer_id=None if owner is None else owner.member_id,
        host=None if owner is None else owner.host,
        client_id=None if owner is None else owner.client_id,
    )


def java_string_hash(text: str) -> int:
    """Return what Java's ``hashCode`` gives for a string: signed, over its UTF-16 units."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in unpack(f">{len(data) // 2}H", data):
        value = (31 * value + unit) & INT_MASK
    return (value ^ SIGN_BIT) - SIGN_BIT


def coordinator_partition(group: str, partition_count: int) -> int:
    """Return the partition of ``__consumer_offsets`` whose leader coordinates a group.

    Source: Java classes ``Utils`` (``abs``), ``GroupCoordinatorService`` (``partitionFor``).
    """
    value = java_string_hash(group)
    # Java has no positive number for it, and takes 0.
    return 0 if value == INT_MIN else abs(value) % partition_count
