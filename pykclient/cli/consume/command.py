"""``pykclient consume``: print records of topics as lines, in a format, or as JSON.

Without a group, partitions are assigned and nothing is committed. With a group, reading continues
from its committed offsets. It commits what earlier polls have printed every
``auto.commit.interval.ms``, and everything printed at the end; after Ctrl-C or SIGTERM, the last
records may be printed again.

Owner: the main thread.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, NoReturn

import pykclient
from pykclient import RebalanceListener
from pykclient.cli.cluster_options import add_cluster_options
from pykclient.cli.complaint import records_were, write_output
from pykclient.cli.progress import progress
from pykclient.cli.record_format import NULL, record_format
from pykclient.cli.record_json import record_line
from pykclient.cli.span import BEGINNING, STORED, add_span_options, partitions_of, place
from pykclient.cli.span_reader import SpanReader, reader_settings
from pykclient.cli.standstill import STANDSTILL_STATUS, Standstill
from pykclient.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from pykclient import Consumer, ConsumerRecord, TopicPartition

    Form = Callable[[ConsumerRecord], bytes]

POLL_S: Final = 1.0
FORMAT: Final = "%s\\n"

DESCRIPTION: Final = (
    "Print records: each as a line, in a format with -f, or as JSON. Formats: %t topic, "
    "%p partition, %o offset, %k key, %s value, %h headers, %T time in ms, %K and %S the "
    "sizes of key and value (-1 for null), %R the value's size in four bytes, \\n, \\t, \\xNN."
)


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("consume", help="print records", description=DESCRIPTION)
    add_cluster_options(parser)
    add_span_options(parser, default="beginning; with a group, its committed offset")
    parser.add_argument(
        "--from-beginning",
        action="append_const",
        const=place(BEGINNING),
        dest="places",
        help="-o beginning",
    )
    parser.add_argument(*("-G", "--group"), help="read as a member of this group and commit")
    parser.add_argument(
        *("-e", "--exit"), action="store_true", help="exit at the end, as of the start"
    )
    parser.add_argument(*("-c", "--count"), type=int, metavar="N", help="exit after N records")
    parser.add_argument(*("-f", "--format"), help="format of a record (default: %%s\\n)")
    parser.add_argument(
        *("-K", "--key-delimiter"),
        metavar="DELIM",
        help="print the key, followed by this delimiter, before the value",
    )
    parser.add_argument(
        *("-D", "--delimiter"), metavar="DELIM", help="print this after a record instead of \\n"
    )
    parser.add_argument(*("-Z", "--null"), action="store_true", help="print null as NULL")
    parser.set_defaults(run=run, parser=parser)


def run(options: argparse.Namespace) -> int:
    form = _form(options)
    consumer = pykclient.Consumer(reader_settings(options, options.group))
    reading = Reading(consumer, form, options.count)
    try:
        with consumer:
            if options.group is None:
                return reading.read_assigned(options)
            return reading.read_group(options)
    except KeyboardInterrupt as error:  # also a second one, during close
        raise type(error)(records_were("printed", reading.printed_count)) from error


class Reading:
    """Prints records in a form; at most `count`, or all if None."""

    def __init__(self, consumer: Consumer, form: Form, count: int | None) -> None:
        self.printed_count = 0
        self._consumer = consumer
        self._form = form
        self._count = count
        self._is_settled = False

    def read_assigned(self, options: argparse.Namespace) -> int:
        """Print the records between both ends of partitions; return the exit status."""
        reader = SpanReader(self._consumer, options)
        span = reader.span
        has_end = options.exit or any(each.until_ms is not None for each in options.places)
        ends = span.ends if has_end else {}
        total = span.record_count if has_end else None
        standstill = Standstill(self._consumer)
        with progress("read", total, is_shown=not sys.stdout.isatty()) as show:
            while not (has_end and self._is_at(ends)) and reader.read(lambda: self._poll(ends)):
                show(self.printed_count)
                if standstill.has_come(ends):
                    return STANDSTILL_STATUS
        return reader.status

    def read_group(self, options: argparse.Namespace) -> int:
        """Print the records that a group member gets; with ``--exit``, up to its partitions' ends.

        A member without partitions is at the end. Return the exit status.
        """
        consumer = self._consumer
        partitions = partitions_of(consumer, options)  # a missing topic is an error
        ends = consumer.end_offsets(partitions) if options.exit else {}
        listener = RebalanceListener(self._end_rebalance, self._begin_rebalance)
        consumer.subscribe(options.topics, listener=listener)
        standstill = Standstill(consumer)
        with progress("read", None, is_shown=not sys.stdout.isatty()) as show:
            while self._poll({}):
                show(self.printed_count)
                assigned = consumer.assignment()
                left = {p: end for p, end in ends.items() if p in assigned}
                if options.exit and (assigned or self._is_settled) and self._is_at(left):
                    return 0
                if standstill.has_come(left):
                    return STANDSTILL_STATUS
        return 0

    def _begin_rebalance(self, revoked: Sequence[TopicPartition]) -> None:
        self._is_settled = False

    def _end_rebalance(self, added: Sequence[TopicPartition]) -> None:
        self._is_settled = True

    def _poll(self, ends: dict[TopicPartition, int]) -> bool:
        """Print the records before the ends; return whether there may be more."""
        left = None if self._count is None else self._count - self.printed_count
        if left == 0:
            return False
        records = self._consumer.poll(POLL_S, left)
        lines = [
            self._form(record)
            for record in records
            if not ends or record.offset < ends[record.topic_partition]
        ]
        self.printed_count += len(lines)  # first: Ctrl-C may come once they are written
        write_output(b"".join(lines), is_flushed=True)
        return True

    def _is_at(self, ends: dict[TopicPartition, int]) -> bool:
        positions = self._consumer.position()
        return all(positions[partition] >= end for partition, end in ends.items())


def _form(options: argparse.Namespace) -> Form:
    """Return the form of records; contradicting options end the command with status 2."""
    error: Callable[[str], NoReturn] = options.parser.error
    if options.count is not None and options.count < 1:
        error(f"--count {options.count}: give 1 or more")
    if options.json and (options.format or options.key_delimiter or options.delimiter):
        error("--json prints complete records; leave out -f, -K and -D")
    if options.format and (options.key_delimiter or options.delimiter):
        error("-f defines the whole format; leave out -K and -D")
    if options.group is None:
        if any(each.word == STORED for each in options.places):
            error("-o stored needs a group: -G")
    elif options.partitions or any(each.word != STORED for each in options.places):
        error(
            "a group gets its partitions assigned and continues from its committed offsets; leave "
            "out -p and -o, or move the group with `pykclient groups reset`"
        )
    if options.json:
        return record_line
    text = options.format
    if text is None:
        key = "" if options.key_delimiter is None else f"%k{_literal(options.key_delimiter)}"
        end = "\\n" if options.delimiter is None else _literal(options.delimiter)
        text = f"{key}%s{end}"
    try:
        return record_format(text, null=NULL if options.null else b"")
    except UsageError as failure:
        error(str(failure))


def _literal(delimiter: str) -> str:
    return str(delimiter).replace("%", "%%")
