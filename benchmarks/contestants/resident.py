"""ResidentGrowth: how far the resident memory of this process has grown since it was made.

The kernel keeps the peak, which is set back at the start; nothing is sampled, so no peak is missed.

Owner: the thread that made it.
Source: proc(5), ``clear_refs`` and ``status``.
"""

from __future__ import annotations

import gc
from pathlib import Path

CLEAR_REFS = Path("/proc/self/clear_refs")
STATUS = Path("/proc/self/status")
RESET_PEAK = "5"


class ResidentGrowth:
    """Memory growth, measured from the resident memory at the start."""

    def __init__(self) -> None:
        gc.collect()
        CLEAR_REFS.write_text(RESET_PEAK)
        self._start_kib = _status_kib("VmRSS")

    def peak_mib(self) -> float:
        """Return the most that was resident at any time since, beyond the start, in MiB."""
        return (_status_kib("VmHWM") - self._start_kib) / 1024


def _status_kib(name: str) -> int:
    for line in STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise RuntimeError(f"{STATUS} has no {name}: the memory benchmark needs Linux")
