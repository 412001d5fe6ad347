"""Time that ``import pykclient`` takes, and the optional modules that it loads.

Each import runs in a process of its own, with its bytecode compiled before. The time of a process
that imports nothing is subtracted. The optional dependencies that were loaded are counted.

    python benchmarks/import_time.py [--runs N] [--json FILE]
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from measuring.benchmark import Benchmark, run_benchmark
from measuring.measurement import Measurement
from pykclient import accel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measuring.arena import Arena
    from measuring.benchmark import Settings

# Some environments tell Python to recompile at every start.
ENVIRONMENT = {
    **{name: os.environ[name] for name in os.environ if name != "PYTHONDONTWRITEBYTECODE"},
    "PYTHONPATH": str(Path(accel.__file__).parents[2]),
}
NOTHING = "pass"
STATEMENTS = {
    "the package": "import pykclient",
    "the clients": "from pykclient import Admin, Consumer, Producer",
}
OPTIONAL = ("pyarrow", "pyspark", "numpy", "pandas", "rich", "lz4", "zstandard", "cramjam")
TURNS = 4
"""Number of processes in each run, since they are short."""


def measure(_: Arena, settings: Settings) -> Iterator[Measurement]:
    """Import nothing and each statement in turns, after one turn that warms up."""
    for statement in (NOTHING, *STATEMENTS.values()):
        import_ms(statement)
    for _turn in range(settings.run_count * TURNS):
        nothing_ms = import_ms(NOTHING)
        for case, statement in STATEMENTS.items():
            figures = {
                "import_ms": import_ms(statement) - nothing_ms,
                "optional_modules": float(len(optional_modules(statement))),
            }
            yield Measurement(BENCHMARK.name, case, "pykclient", figures)


def import_ms(statement: str) -> float:
    """Milliseconds of one process that runs a statement."""
    start_s = time.perf_counter()
    subprocess.run([sys.executable, "-P", "-c", statement], check=True, env=ENVIRONMENT)
    return (time.perf_counter() - start_s) * 1000


def optional_modules(statement: str) -> list[str]:
    """Return the optional dependencies that a statement loads."""
    program = f"import sys\n{statement}\nprint(*sys.modules.keys() & {set(OPTIONAL)})"
    ended = subprocess.run(
        [sys.executable, "-P", "-c", program],
        check=True,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    )
    return ended.stdout.split()


BENCHMARK = Benchmark("import", "The time of an import", measure)

if __name__ == "__main__":
    sys.exit(run_benchmark(BENCHMARK, __doc__))
