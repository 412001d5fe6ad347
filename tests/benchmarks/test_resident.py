"""The growth of resident memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from contestants import resident

MEASURED_ALONE = """
from contestants.resident import ResidentGrowth
growth = ResidentGrowth()
taken = bytearray(b"x") * (64 * 2**20)
del taken
print(growth.peak_mib())
"""


def _keeps_peaks() -> bool:
    status = Path("/proc/self/status")
    return (
        os.access("/proc/self/clear_refs", os.W_OK)
        and status.exists()
        and "VmHWM:" in status.read_text(encoding="ascii")
    )


@pytest.mark.skipif(not _keeps_peaks(), reason="this kernel keeps no peak that can be set back")
def test_a_peak_that_has_gone_again_is_seen() -> None:
    # In a process of its own: what other tests left behind could be freed meanwhile.
    told = subprocess.run(
        [sys.executable, "-c", MEASURED_ALONE],
        env=os.environ | {"PYTHONPATH": str(Path(resident.__file__).parents[1])},
        capture_output=True,
        check=True,
        text=True,
    )
    assert 60 < float(told.stdout) < 100
