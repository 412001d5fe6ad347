"""The compiled core makes no mistake with memory or numbers that GCC's sanitizers would see.

A part of `make sanitize`, which runs more: what reads and writes bytes that others made. `make
soak` runs it. The script itself makes sure that the sanitizers see a mistake.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 1800  # of which it needs a minute and a half where no other work is done
CASES = "50"
FILES = ("appender", "arrow", "decoder", "differential", "rows", "contiguous")


def reason_to_skip() -> str:
    """Name the missing tools; return an empty text if there are none."""
    gcc = shutil.which("gcc")
    if not sys.platform.startswith("linux") or gcc is None:
        return "needs GCC on Linux"
    command = [gcc, "-print-file-name=libasan.so"]
    library = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    # GCC prints the bare name of what it does not have.
    return "" if Path(library).is_absolute() else "needs GCC's library libasan"


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S)
def test_the_compiled_core_gives_the_sanitizers_nothing_to_report() -> None:
    if reason := reason_to_skip():
        pytest.skip(reason)
    tests = [f"tests/accel/test_{name}.py" for name in FILES]
    ended = subprocess.run(
        [ROOT / "tools" / "sanitize.sh", sys.executable, "-k", "not pure", *tests],
        cwd=ROOT,
        env=os.environ | {"PYKCLIENT_FUZZ_CASES": CASES},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-10_000:]
    assert " passed" in ended.stdout
