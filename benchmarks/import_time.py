"""How long does ``import pykclient`` take?

Each import is a process of its own, with its bytecode compiled before; what a process takes that
imports nothing is measured beside it, in turns. The table shows medians.

    python benchmarks/import_time.py [--runs N]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from statistics import median

from rich.console import Console
from rich.table import Table

from machine import describe

# Some environments tell Python to compile anew at every start.
ENVIRONMENT = {name: os.environ[name] for name in os.environ if name != "PYTHONDONTWRITEBYTECODE"}
STATEMENTS = {
    "nothing": "pass",
    "import pykclient": "import pykclient",
    "the clients": "from pykclient import Admin, Consumer, Producer",
}


def import_ms(statement: str) -> float:
    """Milliseconds of one process that runs a statement."""
    start_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True, env=ENVIRONMENT)
    return (time.perf_counter() - start_s) * 1000


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=21, help="processes per statement")
    run_count = parser.parse_args().runs
    times_ms: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    for turn in range(run_count + 1):
        for name, statement in STATEMENTS.items():
            taken_ms = import_ms(statement)
            if turn > 0:  # the first turn compiles and warms the file cache
                times_ms[name].append(taken_ms)
    base_ms = median(times_ms["nothing"])
    table = Table(title="Medians of processes, in ms")
    for heading in ("statement", "process", "beyond nothing"):
        table.add_column(heading)
    for name, of_statement_ms in times_ms.items():
        median_ms = median(of_statement_ms)
        table.add_row(name, f"{median_ms:.1f}", f"{median_ms - base_ms:.1f}")
    console = Console()
    console.print(", ".join(f"{name} {value}" for name, value in describe(["pykclient"]).items()))
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
