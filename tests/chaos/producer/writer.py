"""`python -m tests.chaos.producer.writer`: send numbers at a steady rate, and record the results.

Partition p of n gets p, p + n, p + 2n, ... It reports as JSON, one object a line, the number of
acknowledged records of each partition, each long pause between two acknowledgements, and its end.
The acknowledged numbers go to a file, eight bytes each.

`--client` is ours or confluent-kafka, both with the same settings. `--delivery-timeout-ms` also
limits the timeout of a request, which is half of it, up to Kafka's default.

Owner: the main thread sends; acknowledgements come from the client's thread, or one that polls.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from array import array
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import confluent_kafka

from pykclient import Producer
from pykclient.testing.verifiable_events import report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TICK_S: Final = 0.01
REPORT_S: Final = 0.05
LONG_MS: Final = 100
"""Minimum length of a reported pause."""
LINGER_MS: Final = 5
END_TIMEOUT_S: Final = 150.0
"""Longer than the delivery timeout, after which records fail."""
DELIVERY_TIMEOUT_MS: Final = 120_000
REQUEST_TIMEOUT_MS_MAX: Final = 30_000
POLL_S: Final = 0.05
NS_PER_MS: Final = 1_000_000
VALUE_BYTES: Final = 100

EVERY: Final = -1
"""Stands for all partitions together."""


class Journal:
    """Acknowledged numbers and pauses. One thread writes; another may read the counts."""

    def __init__(self, partition_count: int) -> None:
        self.numbers = array("q")
        self.counts = [0] * partition_count
        self.failures: list[str] = []
        self._last_ms: dict[int, int] = {}
        self._is_ended = False

    @property
    def done_count(self) -> int:
        return len(self.numbers) + len(self.failures)

    def note(self, number: int, failure: object) -> None:
        """Record the result of a record; `failure` is None if it was acknowledged."""
        if failure is not None:
            self.failures.append(f"{number}: {failure}")
            return
        partition = number % len(self.counts)
        now_ms = time.time_ns() // NS_PER_MS
        for which in (partition, EVERY):
            last_ms = self._last_ms.get(which, now_ms)
            if now_ms - last_ms >= LONG_MS:
                report("pause", partition=which, begin=last_ms, end=now_ms)
            self._last_ms[which] = now_ms
        self.numbers.append(number)
        self.counts[partition] += 1

    def report_until(self, is_over: threading.Event) -> None:
        """Report the counts repeatedly while they change."""
        reported = -1
        while not is_over.wait(REPORT_S):
            if self.done_count != reported:
                reported = self.done_count
                report("acknowledged", counts=self.counts, failures=len(self.failures))


class Client(Protocol):
    """A producer that records each result in a journal."""

    def send(self, topic: str, number: int, partition: int) -> None:
        """Send a number, waiting for memory if needed."""

    def end(self) -> dict[str, object]:
        """Wait until each record has a result; return statistics of the client."""


class OwnClient:
    """A producer of ours."""

    def __init__(self, servers: str, journal: Journal, delivery_timeout_ms: int) -> None:
        self._journal = journal
        self._producer = Producer(
            bootstrap_servers=servers,
            linger_ms=LINGER_MS,
            delivery_timeout_ms=delivery_timeout_ms,
            request_timeout_ms=min(REQUEST_TIMEOUT_MS_MAX, delivery_timeout_ms // 2),
            max_block_ms=DELIVERY_TIMEOUT_MS,
        )

    def send(self, topic: str, number: int, partition: int) -> None:
        self._producer.send(
            topic,
            _value(number),
            partition=partition,
            on_delivery=partial(self._note, number),
        )

    def end(self) -> dict[str, object]:
        self._producer.flush(END_TIMEOUT_S)
        totals = {key.name: value for key, value in self._producer.metrics().items()}
        self._producer.close()
        return {"retries": totals["record-retry-total"]}

    def _note(self, number: int, _: object, error: Exception | None) -> None:
        failure = None if error is None else f"{type(error).__name__}: {error}"
        self._journal.note(number, failure)


class ConfluentClient:
    """confluent-kafka, with a thread that polls continuously."""

    def __init__(self, servers: str, journal: Journal, delivery_timeout_ms: int) -> None:
        self._journal = journal
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": LINGER_MS,
                "message.timeout.ms": delivery_timeout_ms,
                "log_level": 0,
            }
        )
        self._is_over = threading.Event()
        self._poller = threading.Thread(target=self._poll, daemon=True)
        self._poller.start()

    def send(self, topic: str, number: int, partition: int) -> None:
        while True:
            try:
                return self._producer.produce(
                    topic,
                    _value(number),
                    partition=partition,
                    on_delivery=partial(self._note, number),
                )
            except BufferError:
                time.sleep(TICK_S)

    def end(self) -> dict[str, object]:
        self._is_over.set()
        self._poller.join()
        self._producer.flush(END_TIMEOUT_S)
        return {}

    def _note(self, number: int, error: object, _: object) -> None:
        self._journal.note(number, error)

    def _poll(self) -> None:
        while not self._is_over.is_set():
            self._producer.poll(POLL_S)


CLIENTS: Final[dict[str, Callable[[str, Journal, int], Client]]] = {
    "pykclient": OwnClient,
    "confluent-kafka": ConfluentClient,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Send until all records have a result; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.producer.writer")
    parser.add_argument("--client", choices=CLIENTS, required=True)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--topic", required=True)
    for option in ("--partitions", "--records", "--rate"):
        parser.add_argument(option, type=int, required=True)
    parser.add_argument("--delivery-timeout-ms", type=int, default=DELIVERY_TIMEOUT_MS)
    options = parser.parse_args(arguments)
    journal = Journal(options.partitions)
    is_over = threading.Event()
    reporter = threading.Thread(target=journal.report_until, args=(is_over,), daemon=True)
    reporter.start()
    client = CLIENTS[options.client](options.bootstrap_server, journal, options.delivery_timeout_ms)
    started_s, number = time.monotonic(), 0
    while number < options.records:
        due = min(options.records, int((time.monotonic() - started_s) * options.rate))
        while number < due:
            client.send(options.topic, number, number % options.partitions)
            number += 1
        time.sleep(TICK_S)
    report("sent")
    said = client.end()
    is_over.set()
    reporter.join()
    with options.journal.open("wb") as file:
        journal.numbers.tofile(file)
    unknown_count = options.records - journal.done_count
    report("done", failures=journal.failures, unknown=unknown_count, **said)
    return 0


def _value(number: int) -> bytes:
    """Pad a number with zeros to a usual record size."""
    return b"%0*d" % (VALUE_BYTES, number)


if __name__ == "__main__":
    sys.exit(main())
