"""``pykclient topics``: list, describe, create, alter and delete topics.

Owner: the main thread.
Source: Java classes ``TopicCommand``, ``ConfigCommand``; kcat's option ``-L``.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Final

import pykclient
from pykclient import AlterConfigOp, AlterConfigOpType, ConfigResource, ConfigResourceType
from pykclient.cli.cluster_options import add_cluster_options, client_settings, key_and_value
from pykclient.cli.complaint import write_output
from pykclient.cli.described import described, found_topics
from pykclient.cli.parts import add_parts
from pykclient.cli.table import write_rows
from pykclient.errors import UsageError
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pykclient import Admin, TopicDescription
    from pykclient.cli.table import Row

    Run = Callable[[argparse.Namespace], int]

DESCRIPTION = "List, describe, create, alter and delete topics."

CHANGES: Final = {
    "--set": (AlterConfigOpType.SET, "a setting's new value"),
    "--append": (AlterConfigOpType.APPEND, "elements to add to a list, as cleanup.policy=compact"),
    "--subtract": (AlterConfigOpType.SUBTRACT, "elements to remove from a list"),
    "--delete": (AlterConfigOpType.DELETE, "a setting to reset to the brokers' default"),
}


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "topics", help="show, create and change topics", description=DESCRIPTION
    )
    parts = add_parts(parser, "parts", "PART")
    _add_part(parts, "list", run_list, "list all topics").add_argument(
        "--internal", action="store_true", help="include Kafka's internal topics"
    )
    describe = _add_part(parts, "describe", run_describe, "show partitions, and settings")
    describe.add_argument("topics", nargs="+", metavar="TOPIC")
    describe.add_argument(
        "--all-settings", action="store_true", help="include settings with Kafka's defaults"
    )
    _add_part(parts, "delete", run_delete, "delete topics with all their records").add_argument(
        "topics", nargs="+", metavar="TOPIC"
    )
    create = _add_part(parts, "create", run_create, "make topics")
    create.add_argument("topics", nargs="+", metavar="TOPIC")
    for option, what in (("--partitions", "partitions"), ("--replication-factor", "replicas")):
        create.add_argument(
            option, type=int, metavar="N", help=f"number of {what} (default: the brokers' choice)"
        )
    create.add_argument(
        "--topic-config",
        action="append",
        default=[],
        type=key_and_value,
        dest="topic_configs",
        metavar="KEY=VALUE",
        help="a setting of the topic, such as retention.ms=-1; may be repeated",
    )
    alter = _add_part(parts, "alter", run_alter, "change settings of topics, add partitions")
    alter.add_argument("topics", nargs="+", metavar="TOPIC")
    alter.add_argument("--partitions", type=int, metavar="N", help="new total number of partitions")
    for option, (op_type, what) in CHANGES.items():
        alter.add_argument(
            option,
            action="append",
            default=[],
            type=partial(_change, op_type),
            dest="changes",
            metavar="KEY" if op_type is AlterConfigOpType.DELETE else "KEY=VALUE",
            help=f"{what}; may be repeated",
        )
    alter.set_defaults(parser=alter)


def run_list(options: argparse.Namespace) -> int:
    with pykclient.Admin(client_settings(options, "admin")) as admin:
        names = sorted(admin.list_topics(include_internal=options.internal))
        topics = found_topics(admin, names).values()  # without topics deleted meanwhile
    rows = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "replicas": max((len(each.replica_ids) for each in topic.partitions), default=0),
        }
        for topic in topics
    ]
    write_rows("topic", rows, is_json=options.json)
    return 0


def run_describe(options: argparse.Namespace) -> int:
    with (
        pykclient.Admin(client_settings(options, "admin")) as admin,
        pykclient.Consumer(client_settings(options, "consumer")) as consumer,
    ):
        topics = described(admin, options.topics)
        places = [place for topic in topics for place in topic.partitions]
        # Offsets of a partition without a leader cannot be looked up, which must not hide the
        # others.
        led = [TopicPartition(p.topic, p.partition) for p in places if p.leader_id is not None]
        begins = consumer.beginning_offsets(led) if led else {}
        ends = consumer.end_offsets(led) if led else {}
        rows = [
            {
                "topic": place.topic,
                "partition": place.partition,
                "begin_offset": begins.get(TopicPartition(place.topic, place.partition)),
                "end_offset": ends.get(TopicPartition(place.topic, place.partition)),
                "leader": place.leader_id,
                "replicas": place.replica_ids,
                "in_sync": place.in_sync_replica_ids,
            }
            for place in places
        ]
        write_rows("partition", rows, is_json=options.json)
        settings = _setting_rows(admin, topics, is_complete=options.all_settings)
    if settings and not options.json:
        write_output("\n")
    write_rows("setting", settings, is_json=options.json)
    return 0


def _setting_rows(
    admin: Admin, topics: Iterable[TopicDescription], *, is_complete: bool
) -> list[Row]:
    resources = [_resource(topic.name) for topic in topics]
    found = admin.describe_configs(resources)
    return [
        {
            "topic": resource.name,
            "setting": name,
            "value": "<hidden>" if entry.is_sensitive else entry.value,
            "source": entry.source.name,
        }
        for resource in resources
        for name, entry in sorted(found[resource].items())
        if is_complete or not entry.is_default
    ]


def run_create(options: argparse.Namespace) -> int:
    config = dict(options.topic_configs)
    with pykclient.Admin(client_settings(options, "admin")) as admin:
        created = admin.create_topics(
            pykclient.NewTopic(name, options.partitions, options.replication_factor, config)
            for name in options.topics
        )
    rows = [
        {
            "topic": topic.name,
            "partitions": topic.num_partitions,
            "replicas": topic.replication_factor,
        }
        for topic in created.values()
    ]
    write_rows("topic", rows, is_json=options.json)
    return 0


def run_alter(options: argparse.Namespace) -> int:
    names = [change.name for change in options.changes]
    if not names and options.partitions is None:
        options.parser.error(f"there is nothing to change; give --partitions, {', '.join(CHANGES)}")
    for name in names:
        if names.count(name) > 1:
            options.parser.error(f"{name} is given twice")
    with pykclient.Admin(client_settings(options, "admin")) as admin:
        topics = described(admin, options.topics)  # change none if one does not exist
        growing = {}
        if options.partitions is not None:
            growing = {topic.name: pykclient.NewPartitions(options.partitions) for topic in topics}
        admin.create_partitions(growing, validate_only=True)  # nor if one is refused
        if names:
            admin.incremental_alter_configs(
                {_resource(topic.name): options.changes for topic in topics}
            )
        admin.create_partitions(growing)
    return 0


def run_delete(options: argparse.Namespace) -> int:
    with pykclient.Admin(client_settings(options, "admin")) as admin:
        described(admin, options.topics)  # delete none if one does not exist
        admin.delete_topics(options.topics)
    return 0


def _resource(topic: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, topic)


def _change(op_type: AlterConfigOpType, text: str) -> AlterConfigOp:
    """Parse ``KEY=VALUE``, or the key of a deletion. Raises `argparse.ArgumentTypeError`."""
    is_deletion = op_type is AlterConfigOpType.DELETE
    name, value = (text, None) if is_deletion else key_and_value(text)
    try:
        return AlterConfigOp(name, value, op_type)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _add_part(
    parts: argparse._SubParsersAction[argparse.ArgumentParser], name: str, run: Run, aim: str
) -> argparse.ArgumentParser:
    part = parts.add_parser(name, help=aim, description=f"{aim[0].upper()}{aim[1:]}.")
    add_cluster_options(part)
    part.set_defaults(run=run)
    return part
