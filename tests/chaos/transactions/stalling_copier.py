"""`python -m tests.chaos.transactions.stalling_copier`: copy by raw calls, and stall between them.

It polls, begins, sends, sends the offsets with `group_metadata()`, and commits. A signal makes it
stall in the next gap between two of these calls, until another signal ends the stall. SIGUSR1 is a
stall in application code: heartbeats continue, and the next poll is late. SIGUSR2 is a stall in a
native call that holds the GIL: no heartbeats are sent. SIGHUP ends both.

Each record keeps its partition number. The program reports as JSON, one object a line, and ends at
SIGTERM.

Owner: the main thread.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pykclient import Consumer, Producer
from pykclient.consumer.group.rebalance import RebalanceListener
from pykclient.errors import KafkaError, KafkaTimeoutError, WakeupError
from pykclient.testing.verifiable_events import report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from pykclient import ConsumerRecords, TopicPartition

ABORTED_OF: Final = 5
"""One transaction of this many is aborted, but none with a stall, which should be refused."""

SESSION_MS: Final = 6_000
HEARTBEAT_MS: Final = 500
MAX_POLL_INTERVAL_MS: Final = 3_000
TRANSACTION_TIMEOUT_MS: Final = 120_000
"""Longer than any stall; otherwise the coordinator would abort and hide the zombie."""

POLL_S: Final = 0.5
LOOK_S: Final = 0.02
HOLD_S_MAX: Final = 90
"""Maximum time for which the GIL is held without a signal."""

IN_CODE: Final = signal.SIGUSR1
IN_NATIVE_CALL: Final = signal.SIGUSR2
GO_ON: Final = signal.SIGHUP

AFTER_OFFSETS: Final = "between send_offsets and commit"
GAPS: Final = (
    "between poll and begin",
    "between send and send_offsets",
    "between begin and send",
    AFTER_OFFSETS,
)


class Stalls:
    """Stalls requested by signals, in one gap after another."""

    def __init__(self, first_gap: int = 0, gaps: Sequence[str] = GAPS) -> None:
        self.count = 0
        """Number of stalls so far."""
        self._gaps = gaps
        self._gap = first_gap % len(gaps)
        self._wanted: int | None = None
        self._is_over = False
        for number in (IN_CODE, IN_NATIVE_CALL):
            signal.signal(number, self._ask)
        signal.signal(GO_ON, self._end)

    def at(self, gap: str, **details: object) -> None:
        """Stall here if requested, and report the details."""
        if self._wanted is None or gap != self._gaps[self._gap]:
            return
        self.count += 1
        wanted, self._wanted, self._is_over = self._wanted, None, False
        self._gap = (self._gap + 1) % len(self._gaps)
        report("stalled", gap=gap, **details)
        if wanted == IN_NATIVE_CALL:
            # Unlike with `CDLL`, calls of `PyDLL` hold the GIL. A signal ends the sleep.
            ctypes.PyDLL(None).sleep(HOLD_S_MAX)
        while not self._is_over:
            time.sleep(LOOK_S)
        report("went_on", gap=gap)

    def _ask(self, number: int, _: FrameType | None) -> None:
        self._wanted = number

    def _end(self, *_: object) -> None:
        self._is_over = True


class StallingCopier:
    """A copier of a group member's records, until its consumer's `wakeup`."""

    def __init__(
        self,
        consumer: Consumer[bytes, bytes],
        producer: Producer[bytes, bytes],
        sink: str,
        stalls: Stalls,
    ) -> None:
        self._consumer = consumer
        self._producer = producer
        self._sink = sink
        self._stalls = stalls
        self._dice = random.Random()

    def run(self, source: str) -> None:
        """Copy.

        Raises:
            KafkaError: a fatal error; `WakeupError` to end.
        """
        self._producer.init_transactions()
        self._consumer.subscribe([source], listener=_listener())
        report("startup_complete")
        while True:
            records = self._consumer.poll(POLL_S)
            if records:
                self._copy(records)

    def _copy(self, records: ConsumerRecords[bytes, bytes]) -> None:
        consumer, producer, stalls = self._consumer, self._producer, self._stalls
        stall_count = stalls.count
        try:
            stalls.at("between poll and begin")
            producer.begin_transaction()
            stalls.at("between begin and send")
            for record in records:
                producer.send(self._sink, record.value, record.key, partition=record.partition)
            stalls.at("between send and send_offsets")
            producer.send_offsets_to_transaction(records.next_offsets, consumer.group_metadata())
            stalls.at(AFTER_OFFSETS)
            if stalls.count > stall_count or self._dice.randrange(ABORTED_OF):
                _until_it_ends(producer.commit_transaction)
                partitions = sorted(each.partition for each in records.partitions)
                report("ended", count=len(records), partitions=partitions)
                return
        except WakeupError:
            raise
        except KafkaError as error:
            if error.fatal:
                raise
            report("refused", error=f"{type(error).__name__}: {error}", cause=repr(error.__cause__))
        else:
            report("aborted", count=len(records))
        _until_it_ends(producer.abort_transaction)
        self._rewind()

    def _rewind(self) -> None:
        consumer = self._consumer
        for partition, committed in consumer.committed(consumer.assignment()).items():
            if committed is None:
                consumer.seek_to_beginning([partition])
            else:
                consumer.seek(partition, committed)


def _listener() -> RebalanceListener:
    def reporting(name: str) -> Callable[[Sequence[TopicPartition]], None]:
        def on_partitions(partitions: Sequence[TopicPartition]) -> None:
            report(name, partitions=[each._asdict() for each in partitions])

        return on_partitions

    revoked = reporting("partitions_revoked")
    return RebalanceListener(reporting("partitions_assigned"), revoked, revoked)


def _until_it_ends(call: Callable[[], None]) -> None:
    """Repeat a call that timed out, because it continues meanwhile."""
    while True:
        with suppress(KafkaTimeoutError):
            return call()


def main(arguments: Sequence[str] | None = None) -> int:
    """Copy until SIGTERM; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.transactions.stalling_copier")
    for option in ("--bootstrap-server", "--source", "--sink", "--group-id", "--transactional-id"):
        parser.add_argument(option, required=True)
    parser.add_argument("--group-protocol", default="classic")
    parser.add_argument("--transaction-size", type=int, default=100)
    parser.add_argument("--first-gap", type=int, default=0)
    options = parser.parse_args(arguments)
    classic = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": HEARTBEAT_MS}
    stalls = Stalls(options.first_gap)
    with (
        Consumer[bytes, bytes](
            {
                "bootstrap_servers": options.bootstrap_server,
                "client_id": options.transactional_id,
                "group_id": options.group_id,
                "group_protocol": options.group_protocol,
                "enable_auto_commit": False,
                "isolation_level": "read_committed",
                "auto_offset_reset": "earliest",
                "max_poll_interval_ms": MAX_POLL_INTERVAL_MS,
                "max_poll_records": options.transaction_size,
                "on_stall": "log",
                **(classic if options.group_protocol == "classic" else {}),
            }
        ) as consumer,
        Producer[bytes, bytes](
            bootstrap_servers=options.bootstrap_server,
            transactional_id=options.transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        ) as producer,
    ):
        signal.signal(signal.SIGTERM, lambda *_: consumer.wakeup())
        with suppress(WakeupError):  # only from the signal
            StallingCopier(consumer, producer, options.sink, stalls).run(options.source)
    report("shutdown_complete")
    return 0


if __name__ == "__main__":
    sys.exit(main())
