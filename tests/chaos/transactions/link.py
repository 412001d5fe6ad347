"""`python -m tests.chaos.transactions.link`: copies a topic by `ExactlyOnce`, and aborts at random.

Each record goes to the partition of its number. It reports each transaction that it began as JSON,
one object a line, and ends at SIGTERM; or is killed.

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

if TYPE_CHECKING:
    from collections.abc import Sequence

ABORTED_OF: Final = 5
"""One transaction of so many is aborted."""

SESSION_MS: Final = 6_000


class PlannedAbortError(Exception):
    """Raised where a transaction is to be aborted."""


def copy(
    consumer: Consumer[bytes, bytes],
    producer: Producer[bytes, bytes],
    sink: str,
    transaction_size: int,
) -> None:
    """Copy what the consumer reads, until its `wakeup`."""
    dice = random.Random()
    for batch in ExactlyOnce(consumer, producer, max_records=transaction_size):
        try:
            with batch as records:
                for record in records:
                    producer.send(sink, record.value, record.key, partition=record.partition)
                if not dice.randrange(ABORTED_OF):
                    raise PlannedAbortError
        except PlannedAbortError:
            report("aborted", count=len(records))
        else:
            report("ended", count=len(records))


def main(arguments: Sequence[str] | None = None) -> int:
    """Copy until SIGTERM; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.transactions.link")
    for option in ("--bootstrap-server", "--source", "--sink", "--group-id", "--transactional-id"):
        parser.add_argument(option, required=True)
    parser.add_argument("--group-protocol", default="classic")
    parser.add_argument("--transaction-size", type=int, default=500)
    options = parser.parse_args(arguments)
    classic = {"session_timeout_ms": SESSION_MS} if options.group_protocol == "classic" else {}
    with (
        Consumer[bytes, bytes](
            {
                "bootstrap_servers": options.bootstrap_server,
                "group_id": options.group_id,
                "group_protocol": options.group_protocol,
                "enable_auto_commit": False,
                "isolation_level": "read_committed",
                "auto_offset_reset": "earliest",
                "on_stall": "log",
                **classic,
            }
        ) as consumer,
        Producer[bytes, bytes](
            bootstrap_servers=options.bootstrap_server, transactional_id=options.transactional_id
        ) as producer,
    ):
        signal.signal(signal.SIGTERM, lambda *_: consumer.wakeup())
        consumer.subscribe([options.source])
        report("startup_complete")
        with suppress(WakeupError):  # only the signal wakes it up
            copy(consumer, producer, options.sink, options.transaction_size)
    report("shutdown_complete")
    return 0


if __name__ == "__main__":
    sys.exit(main())
