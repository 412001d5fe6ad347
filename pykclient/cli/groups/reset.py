"""``pykclient groups reset``: change a group's committed offsets.

It changes nothing without ``--execute``, nor for a group with members, whose commits would
overwrite it. A group that does not exist is refused without ``--create``, since its name is
probably misspelled. Offsets outside a partition's range are moved to the nearer end, and a line on
standard error says so.

Owner: the main thread.
Source: Java class ``ConsumerGroupCommand``, ``--reset-offsets`` (KIP-122).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pykclient
from pykclient.cli.cluster_options import client_settings
from pykclient.cli.moment import moment_ms
from pykclient.cli.span import offset_inside
from pykclient.cli.table import shown, write_rows
from pykclient.consumer.config import duration_ms
from pykclient.errors import GroupIdNotFoundError, UsageError
from pykclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient import Admin, Consumer

NS_PER_MS = 1_000_000

Partitions = Sequence[TopicPartition]
Committed = Mapping[TopicPartition, OffsetAndMetadata]
Offsets = dict[TopicPartition, int]
Target = Callable[[Partitions, Committed, "Consumer"], Offsets]
"""Returns the new offset of each partition; the consumer looks up their ranges."""


def add_arguments(part: argparse.ArgumentParser) -> None:
    part.add_argument("group", metavar="GROUP")
    scope = part.add_mutually_exclusive_group(required=True)
    scope.add_argument(
        *("-t", "--topic"),
        action="append",
        type=_topic,
        dest="topics",
        metavar="TOPIC[:0,1,...]",
        help="a topic, or some of its partitions; may be repeated",
    )
    scope.add_argument(
        "--all-topics", action="store_true", help="every partition that has a committed offset"
    )
    targets = part.add_mutually_exclusive_group(required=True)
    for option, target, aim in (
        ("--to-earliest", to_earliest, "to the first record"),
        ("--to-latest", to_latest, "after the last record"),
    ):
        targets.add_argument(option, dest="target", action="store_const", const=target, help=aim)
    for option, parse, metavar, aim in (
        ("--to-offset", to_offset, "N", "to this offset"),
        ("--to-datetime", to_time, "TIME", "to the first record at or after a time"),
        ("--by-duration", before_now, "PT1H", "to records no older than this duration"),
        ("--shift-by", shift_by, "N", "by N records, backwards with -N"),
    ):
        targets.add_argument(option, dest="target", type=_checked(parse), metavar=metavar, help=aim)
    part.add_argument("--create", action="store_true", help="create the group if it does not exist")
    part.add_argument(
        "--execute", action="store_true", help="commit them; without this, nothing changes"
    )


def run(options: argparse.Namespace) -> int:
    """Print the new offsets, and with ``--execute`` commit them; return the exit status."""
    group, target = options.group, options.target
    with (
        pykclient.Admin(client_settings(options, "admin")) as admin,
        pykclient.Consumer(client_settings(options, "consumer")) as consumer,
    ):
        is_there = _is_there_without_members(admin, group)
        if not is_there and not options.create:
            raise UsageError(
                f"there is no group {group!r}; `pykclient groups list` shows the existing ones. "
                f"To create it with these offsets, give --create"
            )
        committed = admin.list_group_offsets(group)
        partitions = _chosen(admin, options, committed)
        offsets = target(partitions, committed, consumer)
        if options.execute:
            admin.alter_group_offsets(group, offsets)
    rows = [
        {
            "group": group,
            "topic": partition.topic,
            "partition": partition.partition,
            "current_offset": committed[partition].offset if partition in committed else None,
            "new_offset": offsets[partition],
        }
        for partition in partitions
    ]
    write_rows("reset", rows, is_json=options.json)
    if not options.execute:
        aim = "to move the group" if is_there else f"to create group {group!r}"
        sys.stderr.write(f"pykclient: nothing was changed; give --execute {aim}\n")
    return 0


def to_earliest(partitions: Partitions, committed: Committed, consumer: Consumer) -> Offsets:
    return consumer.beginning_offsets(partitions)


def to_latest(partitions: Partitions, committed: Committed, consumer: Consumer) -> Offsets:
    return consumer.end_offsets(partitions)


def to_offset(text: str) -> Target:
    offset = _number(text)

    def target(partitions: Partitions, committed: Committed, consumer: Consumer) -> Offsets:
        return _within(dict.fromkeys(partitions, offset), consumer)

    return target


def shift_by(text: str) -> Target:
    """Target a number of records after the committed offset, or before it."""
    count = _number(text)

    def target(partitions: Partitions, committed: Committed, consumer: Consumer) -> Offsets:
        missing = [partition for partition in partitions if partition not in committed]
        if missing:
            raise UsageError(
                f"no offset is committed for {', '.join(map(str, missing))}, so there is nothing "
                f"to shift; name the partitions with --topic TOPIC:0,1 or choose another target"
            )
        wanted = {partition: committed[partition].offset + count for partition in partitions}
        return _within(wanted, consumer)

    return target


def to_time(text: str) -> Target:
    """Target the first record at or after a time; UTC if the text names no zone."""
    return _at_or_after(moment_ms(text))


def before_now(text: str) -> Target:
    """Target the first record that is no older than a duration."""
    return _at_or_after(time.time_ns() // NS_PER_MS - duration_ms(text))


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a whole number") from error


def _at_or_after(time_ms: int) -> Target:
    def target(partitions: Partitions, committed: Committed, consumer: Consumer) -> Offsets:
        found = consumer.offsets_for_times(dict.fromkeys(partitions, max(time_ms, 0)))
        later = [partition for partition in partitions if found[partition] is None]
        ends = consumer.end_offsets(later) if later else {}
        return {
            partition: ends[partition] if first is None else first.offset
            for partition, first in found.items()
        }

    return target


def _within(wanted: Offsets, consumer: Consumer) -> Offsets:
    """Move offsets to the nearer end of their partitions' ranges."""
    begins, ends = consumer.beginning_offsets(wanted), consumer.end_offsets(wanted)
    return {p: offset_inside(p, offset, begins[p], ends[p]) for p, offset in wanted.items()}


def _checked(parse: Callable[[str], Target]) -> Callable[[str], Target]:
    """Turn a parser's errors into errors of the command line."""

    def checked(text: str) -> Target:
        try:
            return parse(text)
        except (ValueError, OverflowError) as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return checked


def _topic(text: str) -> tuple[str, tuple[int, ...] | None]:
    """Parse ``TOPIC`` or ``TOPIC:0,1``; topic names have no colon."""
    topic, colon, numbers = text.partition(":")
    try:
        partitions = tuple(int(number) for number in numbers.split(",")) if colon else None
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: write partitions as 0,1,2") from error
    return topic, partitions


def _is_there_without_members(admin: Admin, group: str) -> bool:
    """Return whether a group exists.

    Raises:
        UsageError: the group has members.
    """
    try:
        description = admin.describe_groups([group])[group]
    except GroupIdNotFoundError:
        return False
    if description.members:
        members = description.members
        clients = sorted({shown(f"{m.client_id or m.member_id} at {m.host}") for m in members})
        raise UsageError(
            f"group {group!r} is in use ({description.state}, {len(members)} members: "
            f"{', '.join(clients)}), whose commits would overwrite this; stop them first"
        )
    return True


def _chosen(admin: Admin, options: argparse.Namespace, committed: Committed) -> Partitions:
    if options.all_topics:
        chosen = existing_partitions(admin, sorted(committed))
        if not chosen:
            raise UsageError(
                f"group {options.group!r} has no committed offsets; name topics with --topic"
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


def existing_partitions(admin: Admin, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions without those of topics deleted since they were read."""
    topics = {partition.topic for partition in partitions}
    known = topics & admin.list_topics(include_internal=True).keys()
    existing = {
        TopicPartition(name, place.partition)
        for name, topic in admin.describe_topics(known).items()
        for place in topic.partitions
    }
    return [partition for partition in partitions if partition in existing]
