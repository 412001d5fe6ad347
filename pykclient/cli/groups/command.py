"""``pykclient groups``: the groups of a cluster, their coordinators and offsets.

Clients are imported when a subcommand runs, so that other commands start faster.

Owner: the main thread.
Source: Java class ``ConsumerGroupCommand``, which has the same columns.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from struct import unpack
from typing import TYPE_CHECKING, Final

import pykclient
from pykclient.cli.cluster_options import add_cluster_options, client_settings
from pykclient.cli.complaint import write_output
from pykclient.cli.groups import reset
from pykclient.cli.parts import add_parts
from pykclient.cli.table import write_rows
from pykclient.errors import (
    BrokerError,
    GroupIdNotFoundError,
    UnknownTopicOrPartitionError,
    UsageError,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping

    from pykclient import Admin, GroupDescription, MemberDescription, OffsetAndMetadata
    from pykclient.cli.table import Row
    from pykclient.types import TopicPartition

OFFSETS_TOPIC: Final = "__consumer_offsets"

INT_MIN: Final = -(2**31)
SIGN_BIT: Final = 2**31
INT_MASK: Final = 2**32 - 1

DESCRIPTION: Final = "Show consumer groups, their offsets and their lag, and reset offsets."


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "groups", help="show groups, reset offsets", description=DESCRIPTION
    )
    parts = add_parts(parser, "parts", "PART")
    for name, run, aim in (
        ("list", run_list, "list all groups"),
        ("coordinator", run_coordinator, f"show a group's partition of {OFFSETS_TOPIC}"),
        ("describe", run_describe, "show the members of groups and their partitions"),
        ("offsets", run_offsets, "show the offsets of groups, and their lag"),
        ("reset", reset.run, "reset the offsets of a group that has no members"),
    ):
        part = parts.add_parser(name, help=aim, description=f"{aim[0].upper()}{aim[1:]}.")
        add_cluster_options(part)
        part.set_defaults(run=run)
        if run is reset.run:
            reset.add_arguments(part)
        elif run is not run_list:
            part.add_argument("groups", nargs="+", metavar="GROUP")


def run_list(options: argparse.Namespace) -> int:
    with pykclient.Admin(client_settings(options, "admin")) as admin:
        groups = sorted(admin.list_groups().values())
    rows = [
        {
            "group": group.group_id,
            "group_type": group.group_type,
            "state": group.state,
            "protocol": group.protocol_type,
        }
        for group in groups
    ]
    write_rows("group", rows, is_json=options.json)
    return 0


def run_coordinator(options: argparse.Namespace) -> int:
    with pykclient.Admin(client_settings(options, "admin")) as admin:
        try:
            topic = admin.describe_topics([OFFSETS_TOPIC])[OFFSETS_TOPIC]
        except UnknownTopicOrPartitionError as error:
            raise UsageError(
                f"this cluster has no {OFFSETS_TOPIC} yet: brokers create it with the first group"
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
            {
                "group": group,
                "topic": OFFSETS_TOPIC,
                "partition": place.partition,
                "leader": place.leader_id,
                "host": f"{node.host}:{node.port}" if node is not None and is_leader else None,
                "replicas": place.replica_ids,
                "in_sync": place.in_sync_replica_ids,
            }
        )
    write_rows("coordinator", rows, is_json=options.json)
    return 0


def run_describe(options: argparse.Namespace) -> int:
    with pykclient.Admin(client_settings(options, "admin")) as admin:
        groups, errors = _described(admin, options.groups)
    members = [_member_row(group, member) for group in groups for member in group.members]
    write_rows("group", [_group_row(group) for group in groups], is_json=options.json)
    if members and not options.json:
        write_output("\n")
    write_rows("member", members, is_json=options.json)
    return _report(errors)


def run_offsets(options: argparse.Namespace) -> int:
    rows: list[Row] = []
    with (
        pykclient.Admin(client_settings(options, "admin")) as admin,
        pykclient.Consumer(client_settings(options, "consumer")) as consumer,
    ):
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
                sys.stderr.write(f"pykclient: group {group!r} has no committed offsets\n")
    write_rows("offset", rows, is_json=options.json)
    return _report(errors)


def _described(
    admin: Admin, groups: Iterable[str]
) -> tuple[list[GroupDescription], list[BrokerError]]:
    """Describe groups, and return the errors of those that cannot be described."""
    found: list[GroupDescription] = []
    errors: list[BrokerError] = []
    for group in dict.fromkeys(groups):
        try:
            found += admin.describe_groups([group]).values()
        except BrokerError as error:
            errors.append(error)
    return found, errors


def _report(errors: Iterable[BrokerError]) -> int:
    """Print errors; return the exit status."""
    status = 0
    for error in errors:
        is_absent = isinstance(error, GroupIdNotFoundError)
        cure = "; `pykclient groups list` shows the existing ones" if is_absent else ""
        sys.stderr.write(f"pykclient: {error}{cure}\n")
        status = 1
    return status


def _group_row(group: GroupDescription) -> Row:
    return {
        "group": group.group_id,
        "group_type": group.group_type,
        "state": group.state,
        "coordinator": str(group.coordinator),
        "assignment_strategy": group.assignor,
        "members": len(group.members),
    }


def _member_row(group: GroupDescription, member: MemberDescription) -> Row:
    assignment: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in member.assignment:
        assignment[topic].append(partition)
    return {
        "group": group.group_id,
        "consumer_id": member.member_id,
        "host": member.host,
        "client_id": member.client_id,
        "instance_id": member.instance_id,
        "partitions": len(member.assignment),
        "assignment": assignment,
    }


def _offset_row(
    group: str,
    partition: TopicPartition,
    committed: OffsetAndMetadata | None,
    ends: Mapping[TopicPartition, int],
    owners: Mapping[TopicPartition, MemberDescription],
) -> Row:
    """Return the row of a group's offset in a partition, with the member that reads it, if any."""
    end, owner = ends.get(partition), owners.get(partition)
    return {
        "group": group,
        "topic": partition.topic,
        "partition": partition.partition,
        "current_offset": None if committed is None else committed.offset,
        "log_end_offset": end,
        "lag": None if committed is None or end is None else end - committed.offset,
        "consumer_id": None if owner is None else owner.member_id,
        "host": None if owner is None else owner.host,
        "client_id": None if owner is None else owner.client_id,
    }


def java_string_hash(text: str) -> int:
    """Return Java's ``hashCode`` of a string: signed, over its UTF-16 units."""
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
    # Java has no positive counterpart of it, and uses 0.
    return 0 if value == INT_MIN else abs(value) % partition_count
