"""`make mutants`: plants one defect after the other in a copy, and checks whether its tests fail.

First all those tests have to pass without any defect. Then a defect is *noticed* when each of its
tests fails by itself: pytest ends with status 1, and not by an import that fails, a fixture, or a
limit of time other than the test's own. The exit status is 1 when one was not noticed.

    python -m tests.mutants.run --jobs 2 --only heartbeat

Owner: the main thread; a copy belongs to the one that has taken it.
"""

from __future__ import annotations

import argparse
import compileall
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from py_compile import PycInvalidationMode
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from tests.mutants.defects import ROOT, Defect, read_defects, troubles

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

TIME_LIMIT_S = 300
"""A run of one defect's tests ends then, and they have not failed."""

WHOLE_TIME_LIMIT_S = 1_800
BUILD_TIME_LIMIT_S = 600

PYTEST = (
    *("-m", "pytest", "-q", "-rfEp", "--tb=line", "--timeout", "0"),
    *("-p", "no:cacheprovider", "-p", "no:randomly"),
)
BUILD = ("setup.py", "--quiet", "build_ext", "--inplace")
SOURCES = ("pykclient", "spark_connector", "pyspark_pykafka")
LEFT_OUT = shutil.ignore_patterns(
    *(".git", ".venv", ".*cache", ".hypothesis", "__pycache__", "dist", "*-output", "*.egg-info")
)
NO_DEFECT = ("ImportError", "ModuleNotFoundError", "NameError", "SyntaxError")
"""Errors that need no test to find. An entry whose tests fail by one of them is itself wrong."""


class Run(NamedTuple):
    """A run of pytest: its exit status, None when its time was up, and what it printed."""

    status: int | None
    output: str

    def line_of(self, test: str, outcome: str) -> str | None:
        """Return the line of the summary with this outcome of a test, in one of its cases."""
        head = f"{outcome} {test}"
        for line in self.output.splitlines():
            if line.startswith(head) and line[len(head) : len(head) + 1] in ("", " ", "["):
                return line
        return None


def why_not_sound(tests: Iterable[str], run: Run) -> list[str]:
    """Return the tests that fail without a defect."""
    wrong = [test for test in tests if run.line_of(test, "PASSED") is None]
    if not wrong and run.status != 0:
        return [f"pytest ended with status {run.status}"]
    return wrong


def why_not_noticed(defect: Defect, run: Run) -> str:
    """Return why a defect counts as not noticed; empty if it was noticed."""
    if run.status is None:
        return f"its tests ran for more than {TIME_LIMIT_S} s"
    if run.status != 1:
        return f"pytest ended with status {run.status}"
    for test in defect.tests:
        line = run.line_of(test, "FAILED")
        if line is None:
            return f"{test} did not fail"
        if line.rpartition(" - ")[2].startswith(NO_DEFECT):
            return f"no defect but a mistake: {line}"
    return ""


class Copy:
    """A copy of the project, in which one defect at a time is planted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT, folder, ignore=LEFT_OUT)
        # By what is in a file, since a defect may leave its size and its time as they were.
        checked_hash = PycInvalidationMode.CHECKED_HASH
        for name in SOURCES:
            compileall.compile_dir(folder / name, quiet=2, invalidation_mode=checked_hash)

    def run(self, tests: Sequence[str], core: str, time_limit_s: float = TIME_LIMIT_S) -> Run:
        """Run tests with a core."""
        return self._run((*PYTEST, *tests), core, time_limit_s)

    @contextmanager
    def planted(self, defect: Defect) -> Iterator[None]:
        """Plant a defect in the source, and rebuild the core if it is one of the core's."""
        path = self.folder / defect.file
        source = path.read_text(encoding="utf-8")
        libraries = list(self.folder.rglob("*.so")) if defect.is_compiled else []
        built = {library: library.read_bytes() for library in libraries}
        path.write_text(defect.planted_in(source), encoding="utf-8")
        try:
            if defect.is_compiled:
                run = self._run(BUILD, "", BUILD_TIME_LIMIT_S)
                if run.status != 0:
                    raise RuntimeError(f"{defect.what} cannot be built:\n{run.output}")
            yield
        finally:
            path.write_text(source, encoding="utf-8")
            for library, content in built.items():
                library.write_bytes(content)

    def check_is_used(self) -> None:
        """Raise an error if Python would import the package from elsewhere."""
        run = self._run(("-c", "import pykclient; print(pykclient.__file__)"), "", TIME_LIMIT_S)
        if not run.output.startswith(str(self.folder)):
            raise RuntimeError(f"in {self.folder} another package is used: {run.output}")

    def _run(self, arguments: Sequence[str], core: str, time_limit_s: float) -> Run:
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.folder),
            "PYTHONHASHSEED": "0",
            "COLUMNS": "200",
            "CFLAGS": "-O0 -g0",
        }
        if core:
            environment["PYKCLIENT_ACCEL"] = core
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=time_limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return Run(None, output)
        return Run(process.returncode, output)


class Trial(NamedTuple):
    """The outcome of one defect."""

    defect: Defect
    seconds: float
    trouble: str
    """Why it was not noticed; empty if it was."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant the chosen defects; return the exit status."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=2, help="how many at the same time")
    parser.add_argument("--only", default="", help="those with this in file or sentence")
    options = parser.parse_args(arguments)
    defects = [each for each in read_defects() if options.only in f"{each.file}: {each.what}"]
    wrong = list(troubles(defects))
    if wrong or not defects:
        sys.stdout.write("\n".join(wrong or ["there is no such defect"]) + "\n")
        return 1
    started_s = time.monotonic()
    with TemporaryDirectory(prefix="pykclient-mutants-") as folder:
        trials = list(_try_all(defects, Path(folder), max(1, options.jobs)))
    unnoticed_count = sum(bool(trial.trouble) for trial in trials)
    sys.stdout.write(
        f"{len(trials)} defects, {len(trials) - unnoticed_count} noticed, {unnoticed_count} not, "
        f"in {time.monotonic() - started_s:.0f} s\n"
    )
    return int(unnoticed_count > 0 or len(trials) < len(defects))


def _try_all(defects: Sequence[Defect], folder: Path, job_count: int) -> Iterator[Trial]:
    """Print and yield the outcome of each defect; yield nothing if tests fail without one."""
    first = Copy(folder / "0")
    first.check_is_used()
    for core in sorted({defect.core for defect in defects}):
        named = [test for defect in defects if defect.core == core for test in defect.tests]
        tests = list(dict.fromkeys(named))
        run = first.run(tests, core, WHOLE_TIME_LIMIT_S)
        wrong = why_not_sound(tests, run)
        if wrong:
            sys.stdout.write(f"{run.output}\nwithout a defect: {', '.join(wrong)} did not pass\n")
            return
    copies: SimpleQueue[Copy] = SimpleQueue()
    copies.put(first)
    for number in range(1, job_count):
        copies.put(Copy(folder / str(number)))

    def try_one(defect: Defect) -> Trial:
        copy = copies.get()
        try:
            started_s = time.monotonic()
            with copy.planted(defect):
                trouble = why_not_noticed(defect, copy.run(defect.tests, defect.core))
            return Trial(defect, time.monotonic() - started_s, trouble)
        finally:
            copies.put(copy)

    with ThreadPoolExecutor(job_count) as pool:
        for trial in pool.map(try_one, defects):
            defect, seconds, trouble = trial
            outcome = "NOT NOTICED" if trouble else "noticed"
            sys.stdout.write(f"{outcome:<11} {seconds:5.1f} s  {defect.file}: {defect.what}\n")
            if trouble:
                sys.stdout.write(f"{'':<21}{trouble}\n")
            sys.stdout.flush()
            yield trial


if __name__ == "__main__":
    sys.exit(main())
