"""BusyLoop: an application thread that computes without a pause, and may send now and then.

It computes in Python, so it gives up the interpreter's lock only when it is asked to; whoever
writes the request and reads the acknowledgement has to ask.

Owner: the thread that loops; the delivery callbacks may come from any.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from contestants.job import Figures

PAUSE_S = 0.01
SLICE = range(2_000)


class BusyLoop:
    """Computes, and every 10 ms asks for one of `record_count` records to be sent."""

    def __init__(self, record_count: int) -> None:
        self._record_count = record_count
        self._latencies_s: list[float] = []

    def turns(self, between: Callable[[], object] | None = None) -> Iterator[Callable[..., None]]:
        """Yield a delivery callback per record to be sent; call `between` after each slice."""
        for _ in range(self._record_count):
            yield partial(self._acknowledged, time.perf_counter())
            until_s = time.perf_counter() + PAUSE_S
            while time.perf_counter() < until_s:
                sum(SLICE)
                if between is not None:
                    between()

    def compute(self) -> Figures:
        """Compute as long and send nothing; from when until when, by the monotonic clock."""
        from_s = time.monotonic()
        for _ in self.turns():
            pass
        return {"computing_from_s": from_s, "computing_until_s": time.monotonic()}

    def latencies_s(self) -> list[float]:
        """Seconds from each send to its acknowledgement.

        Raises:
            RuntimeError: some are missing.
        """
        if len(self._latencies_s) != self._record_count:
            raise RuntimeError(f"{len(self._latencies_s)} of {self._record_count} acknowledged")
        return self._latencies_s

    def _acknowledged(self, sent_s: float, *outcome: object) -> None:
        """Record one acknowledgement; a failed one has an error somewhere in `outcome`."""
        errors = [value for value in outcome if isinstance(value, Exception)]
        if errors:
            raise errors[0]
        self._latencies_s.append(time.perf_counter() - sent_s)
