"""Job: what a client is measured at, and how; the same for all of them.

The clock and the CPU meter start when the client stands and has spoken to the broker once, and stop
when the last record is acknowledged or read. The CPU is that of the whole process, all its threads,
user and system. All clients get the same settings: batches of 1,000,000 bytes, linger 5 ms,
acks=all, idempotent, checksums on, socket buffers left to the operating system. Each holds one
delivery per record and looks at every one; any error ends the process.

Owner: the one thread of the process that does the job.
"""

from __future__ import annotations

import resource
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BATCH_BYTES", "LINGER_MS", "OPEN_DELIVERIES_MAX", "SILENCE_S_MAX", "Job", "measured"]

BATCH_BYTES = 1_000_000
LINGER_MS = 5
OPEN_DELIVERIES_MAX = 100_000
"""A delivery is looked at when so many later ones were sent: it is done by then, nobody waits."""
SILENCE_S_MAX = 30.0


@dataclass(frozen=True, slots=True)
class Job:
    """One topic, and how many records of which size go there or come from it."""

    bootstrap_servers: str
    topic: str
    partition_count: int
    record_count: int
    value_bytes: int

    def check_silence(self, polled: object, read_count: int) -> None:
        """Raise when a poll gave nothing although there is more to come."""
        if not polled:
            raise RuntimeError(
                f"nothing came for {SILENCE_S_MAX} s after {read_count} of {self.record_count} "
                f"records of {self.topic}"
            )

    def check_bytes(self, read_bytes: int) -> None:
        """Raise when what was read is not what the topic holds."""
        expected_bytes = self.record_count * self.value_bytes
        if read_bytes != expected_bytes:
            raise RuntimeError(f"{self.topic}: {read_bytes} bytes of values, not {expected_bytes}")


@dataclass(slots=True)
class Taken:
    """What a job took: seconds on the clock, and seconds of CPU in the whole process."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0


@contextmanager
def measured() -> Iterator[Taken]:
    """Measure what happens inside."""
    taken = Taken()
    cpu_start_s, start_s = _cpu_seconds(), time.perf_counter()
    yield taken
    taken.seconds = time.perf_counter() - start_s
    taken.cpu_seconds = _cpu_seconds() - cpu_start_s


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
