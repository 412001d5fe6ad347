"""``pykclient produce``: records from lines, files or JSON into a topic.

What was read before something bad is sent; then the line says what was bad, and how many records
the brokers have.

Owner: the main thread; the producer's sender thread counts what was delivered.
"""

from __future__ import annotations

import argparse
import sys
from collections import deque
from typing import TYPE_CHECKING, Final

import pykclient
from pykclient.cli.argument import as_bytes, as_path
from pykclient.cli.cluster_options import add_cluster_options, client_settings
from pykclient.cli.complaint import absent_partition, reason_of, records_were
from pykclient.cli.produce.source import (
    DELIMITER,
    LineForm,
    records_of_files,
    records_of_json,
    records_of_lines,
)
from pykclient.cli.progress import progress
from pykclient.cli.record_format import unescaped
from pykclient.errors import KafkaError, KafkaTimeoutError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient import Delivery, Producer, RecordMetadata
    from pykclient.cli.produce.source import Settle
    from pykclient.cli.record_json import NewRecord

UNDER_WAY_MAX: Final = 10_000
"""So many records are under way; then the oldest is waited for."""
PROGRESS_RECORDS: Final = 1_000

DESCRIPTION: Final = (
    "Send records: each line of standard input, or of the files with -l, or each file as a whole, "
    "or the lines of JSON that `consume --json` prints."
)


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("produce", help="send records to a topic", description=DESCRIPTION)
    add_cluster_options(parser)
    parser.add_argument(*("-t", "--topic"), required=True, help="the topic to send to")
    parser.add_argument(
        "files", nargs="*", type=as_path, metavar="FILE", help="each is a record, or has lines (-l)"
    )
    parser.add_argument(
        *("-l", "--lines"), action="store_true", help="the files have a record on each line"
    )
    parser.add_argument(
        *("-K", "--key-delimiter"),
        type=_delimiter,
        metavar="DELIM",
        help="what stands between key and value of a line",
    )
    parser.add_argument(
        *("-D", "--delimiter"),
        type=_delimiter,
        metavar="DELIM",
        help="what ends a record, \\n if not given",
    )
    parser.add_argument(*("-k", "--key"), type=as_bytes, help="the key of every record")
    parser.add_argument(
        *("-H", "--header"),
        action="append",
        default=[],
        type=_header,
        dest="headers",
        metavar="NAME=VALUE",
        help="a header of every record; may be given again",
    )
    parser.add_argument(*("-p", "--partition"), type=int, help="the partition to send to")
    parser.add_argument(
        *("-Z", "--null"), action="store_true", help="an empty key or value is null"
    )
    parser.add_argument(
        *("-z", "--compression"),
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        help="the codec of batches",
    )
    parser.set_defaults(run=run, parser=parser)


def run(options: argparse.Namespace) -> int:
    _check_form(options)
    settings = client_settings(options, "producer", is_bounded=False)
    if options.compression is not None:
        settings["compression.type"] = options.compression
    with pykclient.Producer(settings) as producer:
        sending = Sending(producer, options.topic, _partition_count(producer, options))
        is_typed = sys.stdin is not None and sys.stdin.isatty()
        try:
            with progress("sent", None, is_shown=not is_typed) as show:
                sending.send_all(_records(options, sending.settle), show)
        except (KafkaError, OSError, KeyboardInterrupt) as error:
            interrupt = sending.end() or error
            sent = records_were("sent", sending.delivered_count)
            if isinstance(interrupt, KeyboardInterrupt):
                raise type(interrupt)(sent) from interrupt
            raise KafkaError(f"{reason_of(error)} ({sent})") from error
    return 0


class Sending:
    """Sends records to a topic, and counts those that brokers have."""

    def __init__(self, producer: Producer, topic: str, partition_count: int) -> None:
        self.delivered_count = 0
        self._producer = producer
        self._topic = topic
        self._partition_count = partition_count
        self._under_way: deque[Delivery[RecordMetadata]] = deque()

    def send_all(self, records: Iterator[NewRecord], show: Callable[[int], None]) -> None:
        """Send them, and wait until all are delivered.

        Raises:
            KafkaError: one cannot be sent, or the brokers did not take it.
        """
        shown_count = 0
        for record in records:
            self._check(record.partition)
            delivery = self._producer.send(
                self._topic,
                record.value,
                record.key,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
                headers=record.headers or None,
            )
            self._under_way.append(delivery)
            self.settle()
            if len(self._under_way) >= UNDER_WAY_MAX:
                self._take_oldest()
            if self.delivered_count >= shown_count + PROGRESS_RECORDS:
                shown_count = self.delivered_count
                show(shown_count)
        self._producer.flush()
        while self._under_way:
            self._take_oldest()

    def settle(self) -> bool:
        """Take what is known of the oldest records; return whether some are still under way.

        Raises:
            KafkaError: the brokers did not take one.
        """
        while self._under_way and self._under_way[0].done():
            self._take_oldest()
        return bool(self._under_way)

    def _check(self, partition: int | None) -> None:
        """Refuse a partition that is not there: a send would wait for it. Raises `UsageError`."""
        if partition is not None and not 0 <= partition < self._partition_count:
            raise absent_partition(self._topic, partition, self._partition_count)

    def end(self) -> KeyboardInterrupt | None:
        """Wait for what was sent, and count what was delivered of it.

        Return the interrupt that ended the wait: Ctrl-C gives up what is not delivered.
        """
        interrupted = None
        try:
            self._producer.close()
        except KeyboardInterrupt as interrupt:
            interrupted = interrupt
            self._producer.close(0)
        done = [each for each in self._under_way if each.done()]
        self.delivered_count += sum(each.exception() is None for each in done)
        self._under_way.clear()
        return interrupted

    def _take_oldest(self) -> None:
        self._under_way.popleft().result()
        self.delivered_count += 1


def _partition_count(producer: Producer, options: argparse.Namespace) -> int:
    """Look the topic up, which makes it where brokers make topics by themselves."""
    try:
        return len(producer.partitions_for(options.topic, options.timeout))
    except KafkaTimeoutError as error:
        if isinstance(error.__cause__, pykclient.errors.UnknownTopicOrPartitionError):
            raise UsageError(
                f"there is no topic {options.topic!r}; make it with `pykclient topics create`"
            ) from error
        raise


def _check_form(options: argparse.Namespace) -> None:
    """End with status 2 where options contradict each other."""
    has_delimiters = options.delimiter is not None or options.key_delimiter is not None
    if options.json and (
        has_delimiters
        or options.key is not None
        or options.headers
        or options.null
        or options.lines
    ):
        options.parser.error("--json says all of a record; leave out -k, -H, -K, -D, -Z and -l")
    if options.lines and not options.files:
        options.parser.error("-l is for files; leave it out for the lines of standard input")
    if has_delimiters and options.files and not options.lines:
        options.parser.error("each file is a record; leave out -K and -D, or give -l for its lines")


def _records(options: argparse.Namespace, settle: Settle) -> Iterator[NewRecord]:
    if options.json:
        return _placed(options, records_of_json(options.files, settle))
    form = LineForm(
        DELIMITER if options.delimiter is None else options.delimiter,
        options.key_delimiter,
        options.key,
        tuple(options.headers),
        options.null,
    )
    if options.lines or not options.files:
        return _placed(options, records_of_lines(options.files, form, settle))
    return _placed(options, records_of_files(options.files, form))


def _placed(options: argparse.Namespace, records: Iterator[NewRecord]) -> Iterator[NewRecord]:
    """Yield the records, for the partition that ``-p`` names, whatever else says."""
    if options.partition is None:
        return records
    return (record._replace(partition=options.partition) for record in records)


def _delimiter(text: str) -> bytes:
    try:
        delimiter = unescaped(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not delimiter:
        raise argparse.ArgumentTypeError("a delimiter has at least one byte")
    return delimiter


def _header(text: str) -> tuple[str, bytes | None]:
    name, sign, value = text.partition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} is no header; write it as NAME=VALUE")
    return name, as_bytes(value) if sign else None
