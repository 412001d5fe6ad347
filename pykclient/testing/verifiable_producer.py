"""`python -m pykclient.testing.verifiable_producer`: the producer of Kafka's own system tests.

It takes the options of Java's VerifiableProducer 4.3.1, sends the numbers from 0 on as text, and
reports each delivery on standard output as JSON, one object a line. It ends after
``--max-messages``, or at SIGTERM and SIGINT, after delivering what it has sent.

Owner: the main thread sends; the producer's own thread reports deliveries.
Source: Java class ``VerifiableProducer``; ``verifiable_producer.py`` of Kafka's system tests.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from functools import partial
from itertools import count, cycle, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pykclient.config.properties import read_properties
from pykclient.errors import ClosedError, KafkaError
from pykclient.producer.producer import Producer
from pykclient.testing.verifiable_events import NS_PER_MS, report

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pykclient.producer.record import RecordMetadata

NO_LIMIT: Final = -1
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class VerifiableProducer:
    """A producer of numbers, until enough are sent or `stop` is called.

    `throughput` is the maximum number of records a second, -1 for no limit. `created_ms` is the
    timestamp of the first record, to which later ones add the elapsed time; -1 means the current
    time.
    """

    def __init__(
        self,
        producer: Producer[bytes, bytes],
        topic: str,
        *,
        throughput: int,
        created_ms: int,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._throughput = throughput
        self._created_ms = created_ms
        self._stopping = threading.Event()
        self._sent_count = self._acked_count = 0

    def stop(self) -> None:
        """Make `run` end. May be called in a signal handler, repeatedly."""
        self._stopping.set()
        self._producer.request_close()

    def run(self, records: Iterator[tuple[str | None, str]]) -> None:
        """Send and report each key and value; then close, and report the totals."""
        started_ns = time.monotonic_ns()
        report("startup_complete")
        try:
            for key, value in records:
                if not self._is_due(started_ns):
                    break
                self._send(key, value, (time.monotonic_ns() - started_ns) // NS_PER_MS)
        finally:
            self._producer.close()
            report("shutdown_complete")
            elapsed_ms = max(1, (time.monotonic_ns() - started_ns) // NS_PER_MS)
            report(
                "tool_data",
                sent=self._sent_count,
                acked=self._acked_count,
                target_throughput=self._throughput,
                avg_throughput=1_000 * self._acked_count / elapsed_ms,
            )

    def _is_due(self, started_ns: int) -> bool:
        """Wait until the next record is due; return False to stop."""
        if self._throughput < 0:
            return not self._stopping.is_set()
        if self._throughput == 0:  # as in Java, nothing is ever due
            return not self._stopping.wait()
        due_s = self._sent_count / self._throughput
        return not self._stopping.wait(max(0.0, due_s - (time.monotonic_ns() - started_ns) / 1e9))

    def _send(self, key: str | None, value: str, elapsed_ms: int) -> None:
        self._sent_count += 1
        try:
            self._producer.send(
                self._topic,
                value.encode(),
                None if key is None else key.encode(),
                timestamp_ms=None if self._created_ms < 0 else self._created_ms + elapsed_ms,
                on_delivery=partial(self._on_delivery, key, value),
            )
        except ClosedError:  # a signal arrived before the record was accepted
            self._sent_count -= 1
        except KafkaError as error:
            self._report_error(key, value, error)

    def _on_delivery(
        self, key: str | None, value: str, metadata: RecordMetadata, error: KafkaError | None
    ) -> None:
        if error is not None:
            self._report_error(key, value, error)
            return
        self._acked_count += 1
        report(
            "producer_send_success",
            key=key,
            value=value,
            offset=-1 if metadata.offset is None else metadata.offset,
            topic=metadata.topic,
            partition=metadata.partition,
        )

    def _report_error(self, key: str | None, value: str, error: KafkaError) -> None:
        kind = type(error)
        report(
            "producer_send_error",
            topic=self._topic,
            key=key,
            value=value,
            exception=f"class {kind.__module__}.{kind.__qualname__}",
            message=str(error),
        )


def records_of(
    *, max_messages: int, value_prefix: int | None, repeating_keys: int | None
) -> Iterator[tuple[str | None, str]]:
    """Return keys and values like those of Java's tool."""
    prefix = "" if value_prefix is None else f"{value_prefix}."
    values = (f"{prefix}{number}" for number in count())
    keys: Iterator[str | None] = repeat(None)
    if repeating_keys:
        keys = cycle(map(str, range(repeating_keys)))
    return islice(zip(keys, values, strict=False), None if max_messages < 0 else max_messages)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until everything is sent or a signal arrives; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        producer: Producer[bytes, bytes] = Producer(_settings(options))
    except KafkaError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    verifiable = VerifiableProducer(
        producer,
        options.topic,
        throughput=options.throughput,
        created_ms=options.message_create_time,
    )
    for number in SIGNALS:
        signal.signal(number, lambda *_: verifiable.stop())
    verifiable.run(
        records_of(
            max_messages=options.max_messages,
            value_prefix=options.value_prefix,
            repeating_keys=options.repeating_keys,
        )
    )
    return 0


def _settings(options: argparse.Namespace) -> dict[str, object]:
    """Return the producer's settings; as in Java, the file overrides the command line."""
    settings: dict[str, object] = {
        "bootstrap.servers": options.bootstrap_server,
        "acks": options.acks,
        "retries": 0,
    }
    if options.command_config is not None:
        settings.update(read_properties(options.command_config))
    return settings


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pykclient.testing.verifiable_producer",
        description="Send numbers to a topic and report their deliveries as JSON.",
    )
    parser.add_argument(
        *("--bootstrap-server", "--broker-list"), required=True, metavar="HOST:PORT,..."
    )
    parser.add_argument("--topic", required=True)
    parser.add_argument("--max-messages", type=int, default=NO_LIMIT, help="-1: until a signal")
    parser.add_argument(
        "--throughput", type=int, default=NO_LIMIT, help="maximum records a second; -1: no limit"
    )
    parser.add_argument("--acks", default="-1", metavar="0|1|-1")
    parser.add_argument(
        "--message-create-time", type=int, default=-1, help="the first timestamp, in milliseconds"
    )
    parser.add_argument("--value-prefix", type=int, help="prefix of each value, before a dot")
    parser.add_argument("--repeating-keys", type=int, help="keys are 0 to this number less 1")
    parser.add_argument(
        *("--command-config", "--producer.config"), type=Path, metavar="FILE", help="properties"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
