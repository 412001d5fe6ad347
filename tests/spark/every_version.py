"""Spark's tests on older PySparks, one after the other: ``python -m tests.spark.every_version``.

Arguments choose versions; without any it is all of them. Each PySpark is installed once, into a
folder of the user's cache, and stands on the path before the installed one; what it depends on is
shared. Long forms that start no Spark are left out. The last lines are the counts of each version,
and the tests that were skipped with reasons.

Owner: the file system; a folder comes into its place whole.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pykclient.testing.cluster.jars import cache_folder

ROOT: Final = Path(__file__).parents[2]
SDISTS: Final = {
    "4.0.0": "38db1b4f6095a080d7605e578d775528990e66dc326311d93e94a71cfc24e5a5",
    "4.1.0": "09c714ada88dfac3e1213c066617c6f473c1e22fbe279855028f77e12434147d",
    "4.2.0": "5ad689d53570ee1674193fd4f9bda065f0db3be9363a27d2a3406cc457b70b61",
}
"""The first release of each minor version before the installed one, and its digest."""
TESTS: Final = ("tests/spark", "tests/integration/test_spark_command.py")
OF_THIS_RUN: Final = ("PYTEST_", "PYSPARK_", "SPARK_")
"""The beginnings of variables that a run or its session has set."""


def environment_of(version: str) -> Path:
    """Return the folder that has this PySpark, which is installed unless it is there.

    Raises: `CalledProcessError` where pip fails; it says why.
    """
    folder = cache_folder() / f"pyspark-{version}"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f"{folder.name}.partial-", dir=folder.parent) as name:
        partial = Path(name)
        wanted = partial / "requirements.txt"
        wanted.write_text(f"pyspark=={version} --hash=sha256:{SDISTS[version]}\n", "ascii")
        command = (
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps"),
            *("--require-hashes", "--requirement", wanted, "--target", partial / "installed"),
        )
        # pip makes a wheel of the sdist, and unpacks it at once.
        stored = {"DIST_EXTRA_CONFIG": str(ROOT / "tools" / "uncompressed_wheels.cfg")}
        subprocess.run(command, check=True, env={**os.environ, **stored})
        (partial / "installed").rename(folder)
    return folder


def run_tests(version: str) -> tuple[int, list[str]]:
    """Run the tests on one PySpark; return pytest's status, and the last lines that it printed."""
    path = os.pathsep.join([str(environment_of(version)), str(ROOT)])
    environ = {name: os.environ[name] for name in os.environ if not name.startswith(OF_THIS_RUN)}
    environ |= {"PYTHONPATH": path}
    found = subprocess.run(
        [sys.executable, "-c", "import pyspark; print(pyspark.__version__)"],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == version
    command = (
        *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--quiet"),
        # PySpark before 4.2 leaves sockets of its gateway to the garbage collector.
        *("-W", "ignore:unclosed:ResourceWarning", "-m", "spark or not soak", *TESTS),
    )
    process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    last: list[str] = []
    for line in process.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
        if re.match(r"SKIPPED|FAILED|ERROR|\d+ (passed|failed|skipped)", line):
            last.append(line)
    return process.wait(), last


def main(versions: list[str]) -> int:
    """Run the tests on each version; 1 where one fails."""
    statuses = {}
    report = []
    for version in versions or SDISTS:
        sys.stdout.write(f"PySpark {version}\n")
        statuses[version], last = run_tests(version)
        report += [f"\nPySpark {version}:\n", *last]
    sys.stdout.writelines(report)
    return int(any(statuses.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
