"""Instructions: how many a client's process executes while it is measured, counted by valgrind.

CPU time varies by a tenth and more where others use the cores; the number of instructions does not,
so that one turn says more than ten. It leaves out what the kernel does, and what caches and waiting
cost. Needs valgrind with its headers, a C compiler, and time: a client is slower by a factor of 50
while it is counted, and of 5 before.

Owner: the thread that made it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Self

from contestants.job import COUNTER_VARIABLE

if TYPE_CHECKING:
    from types import TracebackType

SOURCE = """
#include <valgrind/callgrind.h>
void counting_begins(void) { CALLGRIND_START_INSTRUMENTATION; }
void counting_ends(void) { CALLGRIND_STOP_INSTRUMENTATION; }
"""
COUNTED = re.compile(r"Collected : (\d+)")


class CountingError(RuntimeError):
    """Instructions cannot be counted here; the message names the obstacle."""


class Instructions:
    """A context manager: `command` goes before a client's own, `environment` is added to its."""

    def __init__(self) -> None:
        valgrind, compiler = _program("valgrind"), _program("cc")
        self._folder = TemporaryDirectory(prefix="pykclient-instructions-")
        library = Path(self._folder.name, "counter.so")
        source = library.with_suffix(".c")
        source.write_text(SOURCE, encoding="utf-8")
        self.command = (
            valgrind,
            "--tool=callgrind",
            "--instr-atstart=no",
            "--callgrind-out-file=/dev/null",
            "--fair-sched=yes",
        )
        self.environment = {COUNTER_VARIABLE: str(library), "PYTHONHASHSEED": "0"}
        built = subprocess.run(
            [compiler, "-shared", "-fPIC", "-o", library, source],
            capture_output=True,
            text=True,
            check=False,
        )
        if built.returncode != 0:
            self._folder.cleanup()
            raise CountingError(
                f"the counter was not compiled; are valgrind's headers there?\n{built.stderr}"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._folder.cleanup()

    def counted(self, report: str) -> int:
        """Return the number in what valgrind wrote.

        Raises:
            CountingError: there is none, or nothing was counted.
        """
        found = COUNTED.search(report)
        if found is None or int(found[1]) == 0:
            raise CountingError(f"valgrind counted nothing:\n{report}")
        return int(found[1])


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise CountingError(f"there is no {name} here; install it (Debian: valgrind, gcc)")
    return found
