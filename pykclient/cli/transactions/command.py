"""``pykclient transactions``: transactional ids, producers of partitions, hanging transactions.

Owner: the main thread.
Source: Java class ``TransactionsCommand``, which has the same columns; KIP-664.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Final

import pykclient
from pykclient.cli.cluster_options import add_cluster_options, client_settings
from pykclient.cli.complaint import absent_partition
from pykclient.cli.described import described, found_topics
from pykclient.cli.parts import add_parts
from pykclient.cli.table import write_rows
from pykclient.cli.transactions.hanging import hanging_transactions
from pykclient.consumer.config import duration_ms
from pykclient.errors import (
    TransactionalIdNotFoundError,
    UsageError,
)
from pykclient.types import TopicPartition, by_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient import Admin

    Run = Callable[[argparse.Namespace], int]

DESCRIPTION: Final = "Show transactional ids and their transactions, and abort hanging ones."

LONGEST: Final = "PT15M"
"""Maximum duration of a transaction by the brokers' default (``transaction.max.timeout.ms``)."""

MS_PER_S: Final = 1_000


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "transactions", help="show transactions, abort hanging ones", description=DESCRIPTION
    )
    parts = add_parts(parser, "parts", "PART")
    listed = _add_part(parts, "list", run_list, "list all transactional ids")
    listed.add_argument(
        "--state",
        action="append",
        default=[],
        dest="states",
        metavar="STATE",
        help="only those in this state, such as Ongoing; may be repeated",
    )
    listed.add_argument(
        "--open-for",
        type=_duration_s,
        metavar="PT1M",
        help="only those with a transaction open for longer (brokers 3.8 or newer)",
    )
    described = _add_part(parts, "describe", run_describe, "show the transactions of ids")
    described.add_argument("ids", nargs="+", metavar="ID")
    producers = _add_part(parts, "producers", run_producers, "show the producers of partitions")
    hanging = _add_part(
        parts, "abort-hanging", run_abort_hanging, "abort transactions that no coordinator will end"
    )
    for part, is_required in ((producers, True), (hanging, False)):
        part.add_argument(
            *("-t", "--topic"),
            action="append",
            default=[],
            required=is_required,
            dest="topics",
            metavar="TOPIC",
            help="a topic; may be repeated" + ("" if is_required else " (default: all)"),
        )
        part.add_argument(
            *("-p", "--partition"),
            action="append",
            type=int,
            dest="partitions",
            metavar="N",
            help="only this partition; may be repeated",
        )
    hanging.add_argument(
        "--open-for",
        type=_duration_s,
        default=LONGEST,
        metavar="DURATION",
        help="only those whose producer has written nothing for this long (default: "
        "%(default)s), at least as long as brokers allow a transaction to be open",
    )
    hanging.add_argument(
        "--execute", action="store_true", help="abort them; without this option nothing changes"
    )


def run_list(options: argparse.Namespace) -> int:
    with pykclient.Admin(client_settings(options, "admin")) as admin:
        found = admin.list_transactions(states=options.states, open_for=options.open_for)
    rows = [
        {
            "transactional_id": each.transactional_id,
            "coordinator": each.coordinator_id,
            "producer_id": each.producer_id,
            "state": each.state,
        }
        for each in found.values()
    ]
    write_rows("transaction", rows, is_json=options.json)
    return 0


def run_describe(options: argparse.Namespace) -> int:
    rows, status = [], 0
    with pykclient.Admin(client_settings(options, "admin")) as admin:
        for name in dict.fromkeys(options.ids):
            try:
                found = admin.describe_transactions([name])[name]
            except TransactionalIdNotFoundError as error:
                status = 1
                sys.stderr.write(
                    f"pykclient: {error}; `pykclient transactions list` shows the existing ones\n"
                )
                continue
            rows.append(
                {
                    "transactional_id": name,
                    "coordinator": found.coordinator_id,
                    "producer_id": found.producer_id,
                    "producer_epoch": found.producer_epoch,
                    "state": found.state,
                    "timeout_ms": found.timeout_ms,
                    "start_ms": found.start_ms,
                    "open_ms": None if found.start_ms is None else _wall_ms() - found.start_ms,
                    "partitions": by_topic(found.partitions),
                }
            )
    write_rows("transaction", rows, is_json=options.json)
    return status


def run_producers(options: argparse.Namespace) -> int:
    with pykclient.Admin(client_settings(options, "admin")) as admin:
        found = admin.describe_producers(_partitions(admin, options))
    rows = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "coordinator_epoch": each.coordinator_epoch,
            "last_sequence": each.last_sequence,
            "last_timestamp": each.last_timestamp_ms,
            "transaction_start_offset": each.transaction_start_offset,
        }
        for partition, producers in found.items()
        for each in producers
    ]
    write_rows("producer", rows, is_json=options.json)
    return 0


def run_abort_hanging(options: argparse.Namespace) -> int:
    with pykclient.Admin(client_settings(options, "admin")) as admin:
        before_ms = _wall_ms() - round(options.open_for * MS_PER_S)
        hanging = hanging_transactions(admin, _partitions(admin, options), before_ms)
        if options.execute:
            for each in hanging:
                admin.abort_transaction(each.spec)
    rows = [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "transactional_id": each.transactional_id,
            "producer_id": each.producer.producer_id,
            "producer_epoch": each.producer.producer_epoch,
            "coordinator_epoch": each.producer.coordinator_epoch,
            "transaction_start_offset": each.producer.transaction_start_offset,
            "last_timestamp": each.producer.last_timestamp_ms,
        }
        for each in hanging
    ]
    write_rows("hanging", rows, is_json=options.json)
    if not hanging:
        sys.stderr.write("pykclient: no transaction is hanging\n")
    elif not options.execute:
        sys.stderr.write("pykclient: nothing was changed; give --execute to abort them\n")
    return 0


def _add_part(
    parts: argparse._SubParsersAction[argparse.ArgumentParser], name: str, run: Run, aim: str
) -> argparse.ArgumentParser:
    part = parts.add_parser(name, help=aim, description=f"{aim[0].upper()}{aim[1:]}.")
    add_cluster_options(part)
    part.set_defaults(run=run)
    return part


def _partitions(admin: Admin, options: argparse.Namespace) -> list[TopicPartition]:
    """Return the partitions that the options name, or all of the cluster without a topic.

    Raises:
        UsageError: a topic or a partition does not exist, or a partition comes without a topic.
    """
    if options.partitions and not options.topics:
        raise UsageError("-p needs a topic; give -t TOPIC as well")
    if options.topics:
        topics = described(admin, options.topics)
    else:
        topics = list(found_topics(admin, admin.list_topics(include_internal=True)).values())
    partitions = []
    for topic in topics:
        numbers = {each.partition for each in topic.partitions}
        for number in options.partitions or sorted(numbers):
            if number not in numbers:
                raise absent_partition(topic.name, number, len(numbers))
            partitions.append(TopicPartition(topic.name, number))
    return partitions


def _duration_s(text: str) -> float:
    try:
        return duration_ms(text) / MS_PER_S
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
