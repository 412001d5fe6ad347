"""``pykclient produce``: send records from lines, files or JSON to a topic.

Records before an invalid one are sent; then a line says what was invalid, and how many records were
delivered.

Owner: the main thread; the producer's sender thread counts deliveries.
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
"""Maximum records under way; beyond it, sending waits for the oldest."""
PROGRESS_RECORDS: Final = 1_000

DESCRIPTION: Final = (
    "Send records: each line of standard input, or of files with -l, or each whole file, or the "
    "JSON lines that `consume --json` prints."
)


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("produce", help="send records to a topic", description=DESCRIPTION)
    add_cluster_options(parser)
    parser.add_argument(*("-t", "--topic"), required=True, help="the topic to send to")
    parser.add_argument(
        "files", nargs="*", type=as_path, metavar="FILE", help="files, each a record or lines (-l)"
    )
    parser.add_argument(
        *("-l", "--lines"), action="store_true", help="send each line of the files as a record"
    )
    parser.add_argument(
        *("-K", "--key-delimiter"),
        type=_delimiter,
        metavar="DELIM",
        help="delimiter between key and value of a line",
    )
    parser.add_argument(
        *("-D", "--delimiter"),
        type=_delimiter,
        metavar="DELIM",
        help="delimiter that ends a record (default: \\n)",
    )
    parser.add_argument(*("-k", "--key"), type=as_bytes, help="the key of every record")
    parser.add_argument(
        *("-H", "--header"),
        action="append",
        default=[],
        type=_header,
        dest="headers",
        metavar="NAME=VALUE",
        help="a header of every record; may be repeated",
    )
    parser.add_argument(*("-p", "--partition"), type=int, help="the partition to send to")
    parser.add_argument(
        *("-Z", "--null"), action="store_true", help="send an empty key or value as null"
    )
    parser.add_argument(
        *("-z", "--compression"),
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        help="compression codec",
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
    """Sends records to a topic, and counts those delivered."""

    def __init__(self, producer: Producer, topic: str, partition_count: int) -> None:
        self.delivered_count = 0
        self._producer = producer
        self._topic = topic
        self._partition_count = partition_count
        self._under_way: deque[Delivery[RecordMetadata]] = deque()

    def send_all(self, records: Iterator[NewRecord], show: Callable[[int], None]) -> None:
        """Send records, and wait until all are delivered.

        Raises:
            KafkaError: a record cannot be sent, or was not delivered.
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
        """Process finished deliveries of the oldest records; return whether some are under way.

        Raises:
            KafkaError: a record was not delivered.
        """
        while self._under_way and self._under_way[0].done():
            self._take_oldest()
        return bool(self._under_way)

    def _check(self, partition: int | None) -> None:
        """Reject a missing partition, which a send would wait for. Raises `UsageError`."""
        if partition is not None and not 0 <= partition < self._partition_count:
            raise absent_partition(self._topic, partition, self._partition_count)

    def end(self) -> KeyboardInterrupt | None:
        """Wait for sent records, and count those delivered.

        Return the interrupt that ended the wait: Ctrl-C drops undelivered records.
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
    """Look the topic up, which creates it if brokers do so automatically."""
    try:
        return len(producer.partitions_for(options.topic, options.timeout))
    except KafkaTimeoutError as error:
        if isinstance(error.__cause__, pykclient.errors.UnknownTopicOrPartitionError):
            raise UsageError(
                f"there is no topic {options.topic!r}; create it with `pykclient topics create`"
            ) from error
        raise


def _check_form(options: argparse.Namespace) -> None:
    """Exit with status 2 if options contradict each other."""
    has_delimiters = options.delimiter is not None or options.key_delimiter is not None
    if options.json and (
        has_delimiters
        or options.key is not None
        or options.headers
        or options.null
        or options.lines
    ):
        options.parser.error("--json has complete records; leave out -k, -H, -K, -D, -Z and -l")
    if options.lines and not options.files:
        options.parser.error("-l is for files; leave it out for the lines of standard input")
    if has_delimiters and options.files and not options.lines:
        options.parser.error("each file is one record; leave out -K and -D, or give -l for lines")


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
    """Yield the records with the partition of ``-p``, which overrides their own."""
    if options.partition is None:
        return records
    return (record._replace(partition=options.partition) for record in records)


def _delimiter(text: str) -> bytes:
    try:
        delimiter = unescaped(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not delimiter:
        raise argparse.ArgumentTypeError("a delimiter needs at least one byte")
    return delimiter


def _header(text: str) -> tuple[str, bytes | None]:
    name, sign, value = text.partition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not a header; write it as NAME=VALUE")
    return name, as_bytes(value) if sign else None
