"""`python -m pykclient.testing.verifiable_consumer`: the consumer of Kafka's own system tests.

It takes the options of Java's VerifiableConsumer 4.3.1 and reports assignments, records and commits
on standard output as JSON, one object a line. It ends after ``--max-messages``, or at SIGTERM and
SIGINT, after leaving its group. Errors go to standard error.

Owner: the main thread.
Source: Java class ``VerifiableConsumer``; ``verifiable_consumer.py`` of Kafka's system tests.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pykclient.config.properties import read_properties
from pykclient.consumer.consumer import Consumer
from pykclient.consumer.group.rebalance import RebalanceListener
from pykclient.errors import FencedInstanceIdError, KafkaError, WakeupError
from pykclient.testing.verifiable_events import report
from pykclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pykclient.accel import ConsumerRecord
    from pykclient.consumer.record import ConsumerRecords

NO_LIMIT: Final = -1
POLL_S: Final = 60.0
"""Java's waits without limit; an empty response is not reported."""
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

Offsets = dict[TopicPartition, OffsetAndMetadata]


class VerifiableConsumer:
    """A consumer in a group, until enough records are read or `stop` is called.

    Programs that do more extend `poll` and `on_records`.
    """

    def __init__(
        self, consumer: Consumer, topic: str, *, max_messages: int, is_verbose: bool, commits: bool
    ) -> None:
        self.consumer = consumer
        self._topic = topic
        self._max_messages = max_messages
        self._is_verbose = is_verbose
        self._commits = commits
        self._consumed_count = 0
        self._is_stopping = False

    def stop(self) -> None:
        """Make `run` end. May be called in a signal handler, repeatedly."""
        if not self._is_stopping:
            self._is_stopping = True
            self.consumer.wakeup()

    def run(self) -> int:
        """Read, report and commit; return the exit status."""
        report("startup_complete")
        status = 0
        try:
            self._read()
        except WakeupError:
            report("shutdown_requested")
        except KafkaError as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            status = 1
        finally:
            self._is_stopping = True  # a later signal must not wake up `close`
            self.consumer.close()
            report("shutdown_complete")
        return status

    def _read(self) -> None:
        listener = RebalanceListener(
            on_assigned=lambda partitions: report_partitions("partitions_assigned", partitions),
            on_revoked=lambda partitions: report_partitions("partitions_revoked", partitions),
        )
        self.consumer.subscribe([self._topic], listener=listener)
        while not self._is_finished:
            records = self.poll()
            if not records:
                continue
            offsets = self.on_records(records)
            if self._commits:
                self._commit(offsets)

    @property
    def _left_count(self) -> int | None:
        """Number of records left to read; None without a limit."""
        return None if self._max_messages < 0 else self._max_messages - self._consumed_count

    @property
    def _is_finished(self) -> bool:
        return self._left_count is not None and self._left_count <= 0

    def poll(self) -> ConsumerRecords:
        """Read the next records."""
        return self.consumer.poll(POLL_S)

    def on_records(self, records: ConsumerRecords) -> Offsets:
        """Report the records, and return the offsets to commit."""
        offsets: Offsets = {}
        summaries = []
        for partition, received in records.by_partition().items():
            taken = received[: self._left_count]
            if not taken:
                break
            first, last = taken[0].offset, taken[-1].offset
            offsets[partition] = OffsetAndMetadata(last + 1)
            summaries.append(
                {
                    **partition._asdict(),
                    "count": len(taken),
                    "minOffset": first,
                    "maxOffset": last,
                }
            )
            if self._is_verbose:
                for record in taken:
                    report_record(record)
            self._consumed_count += len(taken)
        report("records_consumed", count=len(records), partitions=summaries)
        return offsets

    def _commit(self, offsets: Offsets) -> None:
        try:
            self.consumer.commit(offsets)
        except WakeupError:
            # It is raised only once, so commit what was read before ending.
            self._commit(offsets)
            raise
        except FencedInstanceIdError:
            raise
        except KafkaError as error:
            report_commit(offsets, error)
        else:
            report_commit(offsets, None)


def report_partitions(name: str, partitions: Iterable[TopicPartition]) -> None:
    """Print assigned or revoked partitions."""
    report(name, partitions=[partition._asdict() for partition in partitions])


def report_record(record: ConsumerRecord) -> None:
    """Print a record."""
    report(
        "record_data",
        key=_text(record.key),
        value=_text(record.value),
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
    )


def report_commit(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], error: object | None
) -> None:
    """Print the outcome of a commit."""
    committed = [
        {**partition._asdict(), "offset": offset.offset} for partition, offset in offsets.items()
    ]
    reason = {} if error is None else {"error": str(error)}
    report("offsets_committed", offsets=committed, **reason, success=error is None)


def main(
    arguments: Sequence[str] | None = None,
    *,
    consumer_class: type[VerifiableConsumer] = VerifiableConsumer,
) -> int:
    """Run until everything is read or a signal arrives; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        consumer = Consumer(_settings(options))
    except KafkaError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    verifiable = consumer_class(
        consumer,
        options.topic,
        max_messages=options.max_messages,
        is_verbose=options.verbose,
        commits=not options.enable_autocommit,
    )
    for number in SIGNALS:
        signal.signal(number, lambda *_: verifiable.stop())
    return verifiable.run()


def _text(data: object) -> str | None:
    """Decode as Java does, with replacement characters for invalid UTF-8."""
    return data.decode(errors="replace") if isinstance(data, bytes) else None


def _settings(options: argparse.Namespace) -> dict[str, object]:
    """Return the consumer's settings; the command line overrides the file."""
    settings: dict[str, object] = {}
    if options.command_config is not None:
        settings.update(read_properties(options.command_config))
    settings |= {
        "bootstrap.servers": options.bootstrap_server,
        "group.id": options.group_id,
        "enable.auto.commit": options.enable_autocommit,
        "auto.offset.reset": options.reset_policy,
    }
    protocol = options.group_protocol.lower()
    if protocol in ("consumer", "auto"):
        settings["group.protocol"] = protocol
        if options.group_remote_assignor is not None:
            settings["group.remote.assignor"] = options.group_remote_assignor
    if protocol != "consumer":
        settings["partition.assignment.strategy"] = options.assignment_strategy
        settings["session.timeout.ms"] = options.session_timeout
    if options.group_instance_id is not None:
        settings["group.instance.id"] = options.group_instance_id
    return settings


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pykclient.testing.verifiable_consumer",
        description="Read a topic and report events as JSON.",
    )
    parser.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT,...")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group-id", required=True)
    parser.add_argument("--group-protocol", default="classic", metavar="classic|consumer|auto")
    parser.add_argument("--group-remote-assignor", help="only for the protocol consumer")
    parser.add_argument("--group-instance-id", help="be a static member")
    parser.add_argument("--max-messages", type=int, default=NO_LIMIT, help="-1: until a signal")
    parser.add_argument(
        "--session-timeout", type=int, default=30_000, help="milliseconds, protocol classic only"
    )
    parser.add_argument("--verbose", action="store_true", help="also report each record")
    parser.add_argument("--enable-autocommit", action="store_true")
    parser.add_argument("--reset-policy", default="earliest", metavar="earliest|latest|none")
    parser.add_argument(
        "--assignment-strategy",
        default="org.apache.kafka.clients.consumer.RangeAssignor",
        help="only for the protocol classic",
    )
    parser.add_argument(
        *("--command-config", "--consumer.config"), type=Path, metavar="FILE", help="properties"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
