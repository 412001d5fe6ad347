"""`python -m tests.chaos.transactions.link`: copy a topic by `ExactlyOnce`, with random aborts.

Each record keeps its partition number. The program reports each transaction it begins as JSON, one
object a line, and ends at SIGTERM or when killed. Signals make it stall in a block, as in
`stalling_copier`.

Owner: the main thread.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pykclient import Consumer, ExactlyOnce, Producer
from pykclient.errors import WakeupError
from pykclient.testing.verifiable_events import report
from tests.chaos.transactions.stalling_copier import TRANSACTION_TIMEOUT_MS, Stalls

if TYPE_CHECKING:
    from collections.abc import Sequence

ABORTED_OF: Final = 5
"""One transaction of this many is aborted."""

SESSION_MS: Final = 6_000
MAX_POLL_INTERVAL_MS: Final = 10_000
"""Longer than a commit takes while a broker is replaced."""

BEFORE_RECORDS: Final = "before the records of a block"
AFTER_RECORDS: Final = "after the records of a block"


class PlannedAbortError(Exception):
    """A planned abort of a transaction."""


def copy(
    consumer: Consumer[bytes, bytes],
    producer: Producer[bytes, bytes],
    sink: str,
    transaction_size: int,
    stalls: Stalls,
) -> None:
    """Copy until the consumer's `wakeup`.

    A block that stalled is not aborted, because its end should be refused.
    """
    dice = random.Random()
    for batch in ExactlyOnce(consumer, producer, max_records=transaction_size):
        stall_count = stalls.count
        try:
            with batch as records:
                partitions = sorted(each.partition for each in records.partitions)
                stalls.at(BEFORE_RECORDS, partitions=partitions)
                for record in records:
                    producer.send(sink, record.value, record.key, partition=record.partition)
                stalls.at(AFTER_RECORDS, partitions=partitions)
                if stalls.count == stall_count and not dice.randrange(ABORTED_OF):
                    raise PlannedAbortError
        except PlannedAbortError:
            report("aborted", count=len(records))
        else:
            report("ended", count=len(records), partitions=partitions)


def main(arguments: Sequence[str] | None = None) -> int:
    """Copy until SIGTERM; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.transactions.link")
    for option in ("--bootstrap-server", "--source", "--sink", "--group-id", "--transactional-id"):
        parser.add_argument(option, required=True)
    parser.add_argument("--group-protocol", default="classic")
    parser.add_argument("--transaction-size", type=int, default=500)
    options = parser.parse_args(arguments)
    stalls = Stalls(gaps=(AFTER_RECORDS, BEFORE_RECORDS))
    classic = {"session_timeout_ms": SESSION_MS} if options.group_protocol == "classic" else {}
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
                "on_stall": "log",
                **classic,
            }
        ) as consumer,
        Producer[bytes, bytes](
            bootstrap_servers=options.bootstrap_server,
            transactional_id=options.transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        ) as producer,
    ):
        signal.signal(signal.SIGTERM, lambda *_: consumer.wakeup())
        consumer.subscribe([options.source])
        report("startup_complete")
        with suppress(WakeupError):  # only from the signal
            copy(consumer, producer, options.sink, options.transaction_size, stalls)
    report("shutdown_complete")
    return 0


if __name__ == "__main__":
    sys.exit(main())
