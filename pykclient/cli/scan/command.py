"""``pykclient scan``: count the records, keys, nulls, sizes and times of topics by partition.

Owner: the main thread.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import pykclient
from pykclient.cli.cluster_options import add_cluster_options
from pykclient.cli.complaint import write_output
from pykclient.cli.progress import progress
from pykclient.cli.scan.tally import COLUMNS, KEY_COUNT_MAX, Tallies
from pykclient.cli.span import STORED, add_span_options
from pykclient.cli.span_reader import SpanReader, reader_settings
from pykclient.cli.standstill import STANDSTILL_STATUS, Standstill
from pykclient.cli.table import write_rows
from pykclient.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from pykclient import Consumer

POLL_S: Final = 1.0
BATCH_BYTES_MAX: Final = 32 * 1024 * 1024

DESCRIPTION: Final = (
    "Read topics from start to end, and count records, records with a key, distinct keys (by their "
    f"hashes, up to {KEY_COUNT_MAX} in all), null values, bytes of keys and values, and the times "
    "of the first and the last record. Reading stops at the end as of the start. It "
    "needs pyarrow."
)


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "scan", help="count the contents of topics by partition", description=DESCRIPTION
    )
    add_cluster_options(parser)
    add_span_options(parser, default="beginning")
    parser.set_defaults(run=run, parser=parser)


def run(options: argparse.Namespace) -> int:
    if any(each.word == STORED for each in options.places):
        options.parser.error("-o stored is for consume with a group")
    if find_spec("pyarrow") is None:
        raise UsageError("scan needs pyarrow: pip install pyarrow")
    with pykclient.Consumer(reader_settings(options)) as consumer:
        reader = SpanReader(consumer, options)
        span = reader.span
        tallies = Tallies(reader.partitions)
        with progress("scanned", span.record_count) as show:
            _count(consumer, reader, tallies, show)
    rows = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "begin_offset": span.starts[partition],
            "end_offset": span.ends[partition],
            **tally.row(),
        }
        for partition, tally in tallies.by_partition.items()
    ]
    write_rows("partition", rows, is_json=options.json)
    if not options.json:
        write_output("\n")
    topics = dict.fromkeys(options.topics)
    totals = [{"topic": topic, **tallies.total(topic).row()} for topic in topics]
    write_rows("topic", totals, is_json=options.json)
    return reader.status


def _count(
    consumer: Consumer, reader: SpanReader, tallies: Tallies, show: Callable[[int], None]
) -> None:
    ends = reader.span.ends
    standstill = Standstill(consumer)
    while any(at < ends[partition] for partition, at in consumer.position().items()):
        batch = reader.read(
            lambda: consumer.poll_arrow(
                POLL_S, until=ends, columns=COLUMNS, max_bytes=BATCH_BYTES_MAX
            )
        )
        if batch.num_rows:
            tallies.add(batch)
            show(tallies.record_count)
        if standstill.has_come(ends):
            reader.status = STANDSTILL_STATUS
            return
