"""``pykclient topics``: list, describe, create and delete topics.

Owner: the main thread.
Source: Java class ``TopicCommand``; kcat's option ``-L``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pykclient
from pykclient.cli.cluster_options import add_cluster_options, client_settings, key_and_value
from pykclient.cli.complaint import absent_topic
from pykclient.cli.table import write_rows
from pykclient.errors import AdminCallError, UnknownTopicOrPartitionError
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

    from pykclient import Admin, TopicDescription

    Run = Callable[[argparse.Namespace], int]

DESCRIPTION = "List, describe, create and delete topics."


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("topics", help="show and make topics", description=DESCRIPTION)
    parts = parser.add_subparsers(title="parts", metavar="PART", required=True)
    _add_part(parts, "list", run_list, "list all topics").add_argument(
        "--internal", action="store_true", help="Kafka's own, too"
    )
    _add_part(parts, "describe", run_describe, "show partitions and what they hold").add_argument(
        "topics", nargs="+", metavar="TOPIC"
    )
    _add_part(parts, "delete", run_delete, "delete topics with all their records").add_argument(
        "topics", nargs="+", metavar="TOPIC"
    )
    create = _add_part(parts, "create", run_create, "make topics")
    create.add_argument("topics", nargs="+", metavar="TOPIC")
    for option, what in (("--partitions", "partitions"), ("--replication-factor", "replicas")):
        create.add_argument(
            option, type=int, metavar="N", help=f"how many {what}; else as brokers choose"
        )
    create.add_argument(
        *("-c", "--topic-config"),
        action="append",
        default=[],
        type=key_and_value,
        dest="topic_configs",
        metavar="KEY=VALUE",
        help="a setting of the topic, such as retention.ms=-1; may be given again",
    )


def run_list(options: argparse.Namespace) -> int:
    with pykclient.Admin(client_settings(options, "admin")) as admin:
        names = sorted(admin.list_topics(include_internal=options.internal))
        topics = _found(admin, names).values()  # less what was deleted meanwhile
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
        topics = _described(admin, options.topics)
        places = [place for topic in topics for place in topic.partitions]
        # Of what has no leader no offsets can be looked up; it need not hide the others.
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
    return 0


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


def run_delete(options: argparse.Namespace) -> int:
    with pykclient.Admin(client_settings(options, "admin")) as admin:
        _described(admin, options.topics)  # none is deleted when one is not there
        admin.delete_topics(options.topics)
    return 0


def _described(admin: Admin, names: Iterable[str]) -> list[TopicDescription]:
    """Return topics, in this order. Raises `UsageError` for one that is not there."""
    wanted = dict.fromkeys(names)
    found = _found(admin, wanted)
    for name in wanted:
        if name not in found:
            raise absent_topic(name)
    return [found[name] for name in wanted]


def _found(admin: Admin, names: Iterable[str]) -> dict[str, TopicDescription]:
    """Describe the topics that are there, in this order."""
    left = list(names)
    while True:
        try:
            found = admin.describe_topics(left)
            return {name: found[name] for name in left}
        except (UnknownTopicOrPartitionError, AdminCallError):
            existing = admin.list_topics(include_internal=True)
            if existing.keys() >= {*left}:
                raise
            left = [name for name in left if name in existing]


def _add_part(
    parts: argparse._SubParsersAction[argparse.ArgumentParser], name: str, run: Run, aim: str
) -> argparse.ArgumentParser:
    part = parts.add_parser(name, help=aim, description=f"{aim[0].upper()}{aim[1:]}.")
    add_cluster_options(part)
    part.set_defaults(run=run)
    return part
