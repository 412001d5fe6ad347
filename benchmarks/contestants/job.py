"""Job: what a client is measured at, and how; the same for all of them.

The clock and the CPU meter start when the client stands and has spoken to the broker once, and stop
when the last record is acknowledged or read. The CPU is that of the whole process, all its threads,
user and system, without its start-up. All clients get the same settings: batches of
`Job.batch_bytes`, linger 5 ms, acks=all, idempotent, checksums on, socket buffers left to the
operating system. Each has a delivery or a callback per record and looks at every one; any error
ends the process.

Owner: the one thread of the process that does the job.
"""

from __future__ import annotations

import ctypes
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, repeat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LINGER_MS = 5
OPEN_DELIVERIES_MAX = 100_000
"""A delivery is checked once this many later ones were sent: it is done then, without a wait."""
CHUNK_COUNT = 10_000
"""Number of records in a chunk, whose deliveries are kept together."""
BULK_COUNT = 100_000
"""Number of records in a list or an Arrow table."""
TRANSACTION_COUNT = 1_000
"""Number of records in a transaction."""
POLL_RECORDS_MAX = 10_000
"""Maximum number of records that a poll returns."""
SILENCE_S_MAX = 30.0
SESSION_TIMEOUT_MS = 3_000
HEARTBEAT_INTERVAL_MS = 500
KEY_COUNT = 10_000
COUNTER_VARIABLE = "PYKCLIENT_BENCHMARKS_COUNTER"
"""The environment variable that names the library of `InstructionCounter`."""

Figures = dict[str, float]
"""Measured values by name with unit: ``records_per_second``, ``ack_p99_ms`` ..."""


@dataclass(frozen=True, slots=True)
class Job:
    """One topic, and how many records of which size go there or come from it."""

    bootstrap_servers: str
    topic: str
    partition_count: int
    record_count: int
    value_bytes: int
    batch_bytes: int = 1_000_000
    has_keys: bool = False
    """Records with 10,000 different keys of 8 bytes, which spread them over the partitions."""
    ca_location: str | None = None
    """The file of the authority that TLS trusts, in PEM; None means a connection in plain text."""
    linger_ms: int = LINGER_MS
    """Longer where a client runs at a fraction of its speed, for its batches to fill as well."""

    def keys(self) -> Iterator[bytes | None]:
        """Yield the keys of the records one after the other, without end."""
        if self.has_keys:
            return cycle([b"%08d" % number for number in range(KEY_COUNT)])
        return repeat(None)

    def chunks(self, count_max: int = CHUNK_COUNT) -> Iterator[int]:
        """Yield the records that remain after the first one, in counts of at most `count_max`."""
        rest = self.record_count - 1
        while rest > 0:
            yield min(rest, count_max)
            rest -= count_max

    @property
    def warm_up_count(self) -> int:
        """The number of records sent before the counted ones: a JVM compiles meanwhile."""
        return self.record_count // 2

    def check_silence(self, polled: object, read_count: int) -> None:
        """Raise when a poll gave nothing although there is more to come."""
        if not polled:
            raise RuntimeError(
                f"nothing came for {SILENCE_S_MAX} s after {read_count} of {self.record_count} "
                f"records of {self.topic}"
            )

    def check_bytes(self, read_bytes: int) -> None:
        """Raise an error if the records read are not those of the topic."""
        expected_bytes = self.record_count * self.value_bytes
        if read_bytes != expected_bytes:
            raise RuntimeError(f"{self.topic}: {read_bytes} bytes of values, not {expected_bytes}")


class InstructionCounter:
    """Has valgrind count the process's instructions, where it runs under it; else does nothing.

    The environment names a library with two functions (`measuring/instructions.py` makes it).
    """

    def __init__(self) -> None:
        path = os.environ.get(COUNTER_VARIABLE)
        self._library = None if path is None else ctypes.CDLL(path)

    def begin(self) -> None:
        """Count from here on."""
        if self._library is not None:
            self._library.counting_begins()

    def end(self) -> None:
        """Stop counting."""
        if self._library is not None:
            self._library.counting_ends()


@contextmanager
def measured(job: Job) -> Iterator[Figures]:
    """Measure the block; the figures are available when it has ended."""
    figures: Figures = {}
    counter = InstructionCounter()
    cpu_start_s, start_s = time.process_time(), time.perf_counter()
    counter.begin()
    yield figures
    counter.end()
    seconds = time.perf_counter() - start_s
    cpu_s = time.process_time() - cpu_start_s
    figures["records_per_second"] = job.record_count / seconds
    figures["cpu_s_per_million"] = cpu_s / job.record_count * 1e6


def percentiles(name: str, latencies_s: Sequence[float]) -> Figures:
    """Return median and 99th percentile of latencies, in ms, as ``<name>_p50_ms`` and so on."""
    ascending = sorted(latencies_s)
    return {
        f"{name}_p{percent}_ms": ascending[len(ascending) * percent // 100] * 1e3
        for percent in (50, 99)
    }
