"""``pykclient groups``: what groups there are, who coordinates them, how far they have come.

``groups reset`` changes nothing without ``--execute``, and nothing at all for a group that has
members: what they commit would overwrite it.

The clients are loaded when a part is run, so that other commands start without them.

Owner: the main thread.
Source: Java class ``ConsumerGroupCommand``, whose columns these are.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

import pykclient
from pykclient.admin.coordinator_partition import OFFSETS_TOPIC, coordinator_partition
from pykclient.cli import reset_target
from pykclient.cli.cluster_options import add_cluster_options, client_settings
from pykclient.cli.table import shown, write_rows
from pykclient.errors import (
    BrokerError,
    GroupIdNotFoundError,
    UnknownTopicOrPartitionError,
    UsageError,
)
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pykclient import Admin, GroupDescription, MemberDescription, OffsetAndMetadata
    from pykclient.cli.reset_target import Target

__all__ = ["add_command"]

DESCRIPTION: Final = "Show consumer groups and how far they have come, and move them."


class CoordinatorRow(NamedTuple):
    """Where a group is looked after; None while the partition has no leader."""

    group: str
    topic: str
    partition: int
    leader: int | None
    host: str | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class ListRow(NamedTuple):
    """A group in the list."""

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
    """How far a group has come with a partition, and who reads it; None where there is none."""

    group: str
    topic: str
    partition: int
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    consumer_id: str | None
    host: str | None
    client_id: str | None


class ResetRow(NamedTuple):
    """Where a partition goes on."""

    group: str
    topic: str
    partition: int
    current_offset: int | None
    new_offset: int


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Tell the parser of the command line about this command and its parts."""
    parser = commands.add_parser("groups", help="show and move groups", description=DESCRIPTION)
    parts = parser.add_subparsers(title="parts", metavar="PART", required=True)
    _add_part(parts, "list", run_list, "list all groups")
    for name, run, told in (
        ("coordinator", run_coordinator, f"tell a group's partition of {OFFSETS_TOPIC}"),
        ("describe", run_describe, "show the members of groups and what they have"),
        ("offsets", run_offsets, "show how far groups have come, and their lag"),
    ):
        part = _add_part(parts, name, run, told)
        part.add_argument("groups", nargs="+", metavar="GROUP")
    _add_reset(parts)


def run_list(options: argparse.Namespace) -> int:
    """Print all groups; the exit status."""
    with pykclient.Admin(client_settings(options)) as admin:
        groups = sorted(admin.list_groups().values())
    rows = [ListRow(g.group_id, g.group_type, g.state, g.protocol_type) for g in groups]
    write_rows("group", rows, is_json=options.json)
    return 0


def run_coordinator(options: argparse.Namespace) -> int:
    """Print where groups are looked after; the exit status."""
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
        is_told = node is not None and node.id == place.leader_id
        rows.append(
            CoordinatorRow(
                group,
                OFFSETS_TOPIC,
                place.partition,
                place.leader_id,
                f"{node.host}:{node.port}" if node is not None and is_told else None,
                place.replica_ids,
                place.in_sync_replica_ids,
            )
        )
    write_rows("coordinator", rows, is_json=options.json)
    return 0


def run_describe(options: argparse.Namespace) -> int:
    """Print groups and their members; the exit status."""
    with pykclient.Admin(client_settings(options)) as admin:
        groups, errors = _described(admin, options.groups)
    members = [_member_row(group, member) for group in groups for member in group.members]
    write_rows("group", [_group_row(group) for group in groups], is_json=options.json)
    if members and not options.json:
        sys.stdout.write("\n")
    write_rows("member", members, is_json=options.json)
    return _tell(errors)


def run_offsets(options: argparse.Namespace) -> int:
    """Print how far groups have come; the exit status."""
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
            ends = consumer.end_offsets(_existing(admin, partitions))
            rows += (
                _offset_row(group, partition, committed.get(partition), ends, owners)
                for partition in partitions
            )
            if not partitions:
                sys.stderr.write(f"pykclient: group {group!r} has committed nothing\n")
    write_rows("offset", rows, is_json=options.json)
    return _tell(errors)


def run_reset(options: argparse.Namespace) -> int:
    """Print where a group shall go on, and with ``--execute`` have it do so; the exit status."""
    settings = client_settings(options)
    group, target = options.group, options.target
    with pykclient.Admin(settings) as admin, pykclient.Consumer(settings) as consumer:
        _refuse_members(admin, group)
        committed = admin.list_group_offsets(group)
        partitions = _chosen(admin, options, committed)
        offsets = target(partitions, committed, consumer)
        if options.execute:
            admin.alter_group_offsets(group, offsets)
    rows = [
        ResetRow(group, *partition, _offset_of(committed.get(partition)), offsets[partition])
        for partition in partitions
    ]
    write_rows("reset", rows, is_json=options.json)
    if not options.execute:
        sys.stderr.write("pykclient: nothing was changed; give --execute to move the group\n")
    return 0


def _add_part(
    parts: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], int],
    told: str,
) -> argparse.ArgumentParser:
    part = parts.add_parser(name, help=told, description=f"{told[0].upper()}{told[1:]}.")
    add_cluster_options(part)
    part.set_defaults(run=run)
    return part


def _add_reset(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    part = _add_part(parts, "reset", run_reset, "move a group that has no members")
    part.add_argument("group", metavar="GROUP")
    scope = part.add_mutually_exclusive_group(required=True)
    scope.add_argument(
        "--topic",
        action="append",
        type=_topic,
        dest="topics",
        metavar="TOPIC[:0,1,...]",
        help="a topic, or some of its partitions; may be given again",
    )
    scope.add_argument(
        "--all-topics", action="store_true", help="every partition that has a committed offset"
    )
    targets = part.add_mutually_exclusive_group(required=True)
    for option, target, told in (
        ("--to-earliest", reset_target.to_earliest, "to the first record that there is"),
        ("--to-latest", reset_target.to_latest, "behind the last record"),
    ):
        targets.add_argument(option, dest="target", action="store_const", const=target, help=told)
    for option, parse, metavar, told in (
        ("--to-offset", reset_target.to_offset, "N", "to this offset"),
        ("--to-datetime", reset_target.to_time, "TIME", "to the first record at or after a time"),
        ("--by-duration", reset_target.before_now, "PT1H", "to records no older than that"),
        ("--shift-by", reset_target.shift_by, "N", "by so many records, -N for backwards"),
    ):
        targets.add_argument(option, dest="target", type=_told(parse), metavar=metavar, help=told)
    part.add_argument("--execute", action="store_true", help="do it; without it nothing changes")


def _told(parse: Callable[[str], Target]) -> Callable[[str], Target]:
    """Have the parser of the command line say what is wrong with a value."""

    def told(text: str) -> Target:
        try:
            return parse(text)
        except (ValueError, OverflowError) as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return told


def _topic(text: str) -> tuple[str, tuple[int, ...] | None]:
    """Read ``TOPIC`` or ``TOPIC:0,1``; no topic has a colon in its name."""
    topic, colon, numbers = text.partition(":")
    try:
        partitions = tuple(int(number) for number in numbers.split(",")) if colon else None
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: write partitions as 0,1,2") from error
    return topic, partitions


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


def _tell(errors: Iterable[BrokerError]) -> int:
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
        current_offset=_offset_of(committed),
        log_end_offset=end,
        lag=None if committed is None or end is None else end - committed.offset,
        consumer_id=None if owner is None else owner.member_id,
        host=None if owner is None else owner.host,
        client_id=None if owner is None else owner.client_id,
    )


def _offset_of(committed: OffsetAndMetadata | None) -> int | None:
    return None if committed is None else committed.offset


def _existing(admin: Admin, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Leave out the partitions of topics that were deleted since they were read."""
    topics = {partition.topic for partition in partitions}
    known = topics & admin.list_topics(include_internal=True).keys()
    existing = {
        TopicPartition(name, place.partition)
        for name, topic in admin.describe_topics(known).items()
        for place in topic.partitions
    }
    return [partition for partition in partitions if partition in existing]


def _refuse_members(admin: Admin, group: str) -> None:
    """Raise for a group that is in use. One that does not exist may be given offsets."""
    try:
        description = admin.describe_groups([group])[group]
    except GroupIdNotFoundError:
        return
    if description.members:
        members = description.members
        clients = sorted({shown(f"{m.client_id or m.member_id} at {m.host}") for m in members})
        raise UsageError(
            f"group {group!r} is in use ({description.state}, {len(members)} members: "
            f"{', '.join(clients)}), and what they commit would overwrite this; stop them first"
        )


def _chosen(
    admin: Admin,
    options: argparse.Namespace,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
) -> Sequence[TopicPartition]:
    if options.all_topics:
        chosen = _existing(admin, sorted(committed))
        if not chosen:
            raise UsageError(
                f"group {options.group!r} has committed nothing; name topics with --topic"
            )
        return chosen
    topics = admin.describe_topics({topic for topic, _ in options.topics})
    wanted: set[TopicPartition] = set()
    for topic, numbers in options.topics:
        known = {place.partition for place in topics[topic].partitions}
        unknown = sorted({*(numbers or ())} - known)
        if unknown:
            raise UsageError(f"topic {topic!r} has no partition {', '.join(map(str, unknown))}")
        wanted.update(TopicPartition(topic, number) for number in numbers or known)
    return sorted(wanted)
