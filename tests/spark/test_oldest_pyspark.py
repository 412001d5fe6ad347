"""The tests of this folder on the oldest PySpark that the package takes; the others run on the
installed one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pykclient.testing.fixtures import skip_or_fail
from spark_connector.source import PYSPARK_VERSION_MIN

ROOT = Path(__file__).parents[2]
LOCKED = ROOT / "tools" / "locked" / "oldest-pyspark.txt"
VERSION = ".".join(map(str, (*PYSPARK_VERSION_MIN, 0)))
TIMEOUT_S = 3_600  # of which it needs five minutes where no other work is done
OF_THIS_RUN = ("PYTEST_", "PYSPARK_", "SPARK_")
"""What the variables begin with that this run and its session have set."""


def run(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {name: os.environ[name] for name in os.environ if not name.startswith(OF_THIS_RUN)}
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


@pytest.fixture
def oldest(tmp_path: Path) -> str:
    """The path of Python with the oldest PySpark before the one that is installed."""
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--target")
    assert f"pyspark=={VERSION} " in LOCKED.read_text("ascii")
    installed = run(*pip, tmp_path, "--require-hashes", "--requirement", LOCKED, PYTHONPATH="")
    if installed.returncode != 0:
        skip_or_fail(f"pip cannot install pyspark {VERSION}: {installed.stdout.strip()[-500:]}")
    return os.pathsep.join([str(tmp_path), str(ROOT)])


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.timeout(TIMEOUT_S)
def test_the_tests_of_the_connector_pass_on_the_oldest_pyspark(oldest: str) -> None:
    version = "import pyspark; print(pyspark.__version__)"
    assert run(sys.executable, "-c", version, PYTHONPATH=oldest).stdout.strip() == VERSION
    pytest_here = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--quiet")
    chosen = ("-m", "soak or not soak", f"--ignore={__file__}", ROOT / "tests" / "spark")
    ended = run(*pytest_here, *chosen, PYTHONPATH=oldest)
    assert ended.returncode == 0, ended.stdout[-20_000:]
    assert " passed" in ended.stdout
