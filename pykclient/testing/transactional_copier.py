"""`python -m pykclient.testing.transactional_copier`: the copier of Kafka's own system tests.

It takes the options of Java's TransactionalMessageCopier 4.3.1. It copies a topic's records to the
same partitions of another topic, in transactions that also commit the group's offsets. It prints
its progress as JSON, one object a line, and ends when it has copied all records that existed at the
start, or at its last assignment; or at SIGTERM and SIGINT.

Owner: the main thread.
Source: Java class ``TransactionalMessageCopier``; ``transactional_message_copier.py`` of Kafka's
system tests.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Final

from pykclient.consumer.consumer import Consumer
from pykclient.consumer.group.rebalance import RebalanceListener
from pykclient.errors import KafkaError, KafkaTimeoutError, WakeupError
from pykclient.producer.producer import Producer
from pykclient.types import GroupMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pykclient.consumer.record import ConsumerRecords

NO_LIMIT: Final = -1
COUNT_MAX: Final = 2**63 - 1
"""Stands for no limit, as in Java."""

POLL_S: Final = 0.2
ABORTED_OF: Final = 3
"""With random aborts, one of this many transactions is aborted."""

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class TransactionalCopier:
    """A copier of a topic's records, until all are copied or `stop` is called.

    With `partition` None it reads as a member of the group. With `commits_as_member`, offsets are
    committed with the member's metadata (KIP-447), not only with the group's name.
    """

    def __init__(
        self,
        consumer: Consumer[bytes, bytes],
        producer: Producer[bytes, bytes],
        *,
        transactional_id: str,
        group_id: str,
        source: str,
        partition: int | None,
        sink: str,
        max_messages: int,
        commits_as_member: bool,
        aborts_at_random: bool,
    ) -> None:
        self._consumer = consumer
        self._producer = producer
        self._transactional_id = transactional_id
        self._group_id = group_id
        self._source = source
        self._partition = partition
        self._sink = sink
        self._commits_as_member = commits_as_member
        self._aborts_at_random = aborts_at_random
        self._remaining_count = COUNT_MAX if max_messages < 0 else max_messages
        self._copied_count = self._consumed_count = 0
        self._is_stopping = self._is_reassigned = False

    def stop(self) -> None:
        """Make `run` end. May be called in a signal handler, repeatedly."""
        if not self._is_stopping:
            self._is_stopping = True
            self._consumer.wakeup()

    def run(self) -> int:
        """Copy and report; return the exit status."""
        status = 0
        try:
            self._producer.init_transactions()
            self._begin()
            while not self._is_stopping and self._remaining_count > 0:
                self._report("ProcessLoop")
                self._copy_some()
        except WakeupError:
            pass  # from `stop`
        except KafkaError as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            status = 1
        finally:
            self._is_stopping = True  # a later signal must not wake up `close`
            self._producer.close()
            self._consumer.close()
            self._report("ShutdownComplete")
        return status

    def _begin(self) -> None:
        if self._partition is None:
            listener = RebalanceListener(on_assigned=lambda _: self._on_assigned())
            self._consumer.subscribe([self._source], listener=listener)
            return
        self._consumer.assign([TopicPartition(self._source, self._partition)])
        self._remaining_count = min(self._unread_count(), self._remaining_count)

    def _on_assigned(self) -> None:
        self._is_reassigned = True

    def _unread_count(self) -> int:
        partitions = self._consumer.assignment()
        ends = self._consumer.end_offsets(partitions)
        return sum(ends[partition] - self._consumer.position(partition) for partition in partitions)

    def _copy_some(self) -> None:
        records = self._consumer.poll(POLL_S)
        if self._is_reassigned:
            self._is_reassigned = False
            self._remaining_count = self._unread_count() + len(records)
            self._consumed_count = 0
            self._report("RebalanceComplete")
        if not records:
            return
        try:
            is_committed = self._copy(records)
        except WakeupError:
            raise
        except KafkaError as error:
            if error.fatal:
                raise
            sys.stderr.write(f"aborting after {type(error).__name__}: {error}\n")
            self._abort()
            return
        if is_committed:
            self._remaining_count -= len(records)
            self._consumed_count += len(records)
            self._copied_count += len(records)

    def _copy(self, records: ConsumerRecords[bytes, bytes]) -> bool:
        """Copy records in a transaction; return whether it was committed."""
        self._producer.begin_transaction()
        for record in records:
            self._producer.send(self._sink, record.value, record.key, partition=record.partition)
        group = GroupMetadata(self._group_id)
        if self._commits_as_member:
            group = self._consumer.group_metadata()
        self._producer.send_offsets_to_transaction(records.next_offsets, group)
        if self._aborts_at_random and not random.randrange(ABORTED_OF):  # noqa: S311
            self._abort()
            return False
        _until_it_ends(self._producer.commit_transaction)
        return True

    def _abort(self) -> None:
        """Abort, and seek to the group's committed offsets."""
        _until_it_ends(self._producer.abort_transaction)
        partitions = self._consumer.assignment()
        committed = self._consumer.committed(partitions)
        for partition in partitions:
            found = committed.get(partition)
            if found is None:
                self._consumer.seek_to_beginning([partition])
            else:
                self._consumer.seek(partition, found.offset)

    def _report(self, stage: str) -> None:
        now = datetime.now().astimezone()
        status = {
            "transactionalId": self._transactional_id,
            "stage": stage,
            "time": f"{now:%Y/%m/%d %H:%M:%S}:{now.microsecond // 1_000:03}",
            "totalProcessed": self._copied_count,
            "consumed": self._consumed_count,
            "remaining": self._remaining_count,
        }
        sys.stdout.write(f"{json.dumps(status)}\n")
        sys.stdout.flush()


def _until_it_ends(call: Callable[[], None]) -> None:
    """Repeat a call that timed out, because it continues meanwhile."""
    while True:
        try:
            return call()
        except KafkaTimeoutError as error:
            sys.stderr.write(f"waiting on after {error}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until everything is copied or a signal arrives; return the exit status."""
    options = _parser().parse_args(arguments)
    consumer: Consumer[bytes, bytes] | None = None
    try:
        consumer = Consumer(
            {
                "bootstrap.servers": options.broker_list,
                "group.id": options.consumer_group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "max.poll.records": options.transaction_size,
                "session.timeout.ms": 10_000,
                "max.poll.interval.ms": 180_000,
                "on_stall": "log",
            }
        )
        producer: Producer[bytes, bytes] = Producer(
            {
                "bootstrap.servers": options.broker_list,
                "transactional.id": options.transactional_id,
                "transaction.timeout.ms": options.transaction_timeout,
                "batch.size": 512,
            }
        )
    except KafkaError as error:
        if consumer is not None:
            consumer.close()
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    copier = TransactionalCopier(
        consumer,
        producer,
        transactional_id=options.transactional_id,
        group_id=options.consumer_group,
        source=options.input_topic,
        partition=None if options.group_mode else options.input_partition,
        sink=options.output_topic,
        max_messages=options.max_messages,
        commits_as_member=options.use_group_metadata,
        aborts_at_random=options.enable_random_aborts,
    )
    for number in SIGNALS:
        signal.signal(number, lambda *_: copier.stop())
    return copier.run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pykclient.testing.transactional_copier",
        description="Copy a topic's records in transactions and report as JSON.",
    )
    parser.add_argument("--input-topic", required=True)
    parser.add_argument(
        "--input-partition", type=int, required=True, help="ignored with --group-mode"
    )
    parser.add_argument("--output-topic", required=True)
    parser.add_argument(
        *("--broker-list", "--bootstrap-server"), required=True, metavar="HOST:PORT,..."
    )
    parser.add_argument(
        "--max-messages", type=int, default=NO_LIMIT, help="-1: all existing records"
    )
    parser.add_argument("--consumer-group", default="-1", help="where offsets are committed")
    parser.add_argument(
        "--transaction-size", type=int, default=200, help="maximum records in a transaction"
    )
    parser.add_argument("--transaction-timeout", type=int, default=60_000, help="in milliseconds")
    parser.add_argument("--transactional-id", required=True)
    parser.add_argument(
        "--enable-random-aborts", action="store_true", help="abort a third of the transactions"
    )
    parser.add_argument(
        "--group-mode", action="store_true", help="subscribe, and share the topic with a group"
    )
    parser.add_argument(
        "--use-group-metadata",
        action="store_true",
        help="commit offsets as a member of the group (KIP-447)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
