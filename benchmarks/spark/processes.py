"""CpuMeter: what a process takes of the cores with all that it has started, by the kernel's counts.

A process that ends is counted up to the last look before that: Spark's daemons do not wait for
their workers, so the kernel adds them to nothing.

Owner: the thread that made it.
Source: proc(5), ``stat``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class _Stat(NamedTuple):
    parent: int
    cpu_s: float


class CpuMeter:
    """Starts now. `pid` counts with its descendants, without those of `but`."""

    def __init__(self, pid: int, *, but: int | None = None) -> None:
        self._pid = pid
        self._but = but
        self._before = self._look()

    def seconds(self) -> float:
        """CPU seconds since the start, user and system."""
        now = self._look()
        return sum(cpu_s - self._before.get(pid, 0.0) for pid, cpu_s in now.items())

    def _look(self) -> dict[int, float]:
        stats = _stats()
        found: dict[int, float] = {}
        pending = [self._pid]
        while pending:
            one = pending.pop()
            if one in stats and one != self._but:
                found[one] = stats[one].cpu_s
                pending += [child for child, stat in stats.items() if stat.parent == one]
        return found


def _stats() -> dict[int, _Stat]:
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text()
            except OSError:
                continue  # It has ended since.
            # The name in parentheses may hold anything; what follows begins with the state.
            fields = text.rpartition(")")[2].split()
            ticks = int(fields[11]) + int(fields[12])
            found[int(folder.name)] = _Stat(int(fields[1]), ticks / TICKS_PER_S)
    return found
