"""The benchmarks of the Spark connector: what they count, their targets, and their report."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import spark_report
from measuring.measurement import grouped, read_run, write_run
from measuring.obstacles import obstacle
from spark.arena import records
from spark.obstacles import OBSTACLES
from spark.processes import CpuMeter
from spark.targets import TARGETS
from tests.benchmarks.runs import measured, run_of

if TYPE_CHECKING:
    from measuring.targets import Target

ROOT = Path(__file__).parents[2]
BUSY = """
import sys, time
while time.process_time() < 0.4: pass
sys.stdout.write("x"); sys.stdout.flush(); sys.stdin.read()
"""
NOOP = ("read", "none, noop")
DOCUMENTS = ("docs/spark.md", "benchmarks/RESULTS.md")
README = "README.md"
RUN = run_of(
    measured(NOOP, "pykclient", "records_per_second", 2_500_000),
    measured(NOOP, "Spark's own, tuned", "records_per_second", 1_000_000),
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with empty documents and one run."""
    for name in (README, *DOCUMENTS):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(
            f"before\n{spark_report.BEGIN}\nold\n{spark_report.END}\nafter\n"
        )
    write_run(tmp_path / spark_report.RESULTS_FOLDER / "run-1.json", RUN)
    return tmp_path


@pytest.mark.promise("one command measures every target beside every rival, with the verdict")
@pytest.mark.soak
@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_suite_measures_what_every_target_needs(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    # In a process of its own: a session fixes the settings of its JVM.
    command = [sys.executable, "benchmarks/spark_suite.py", "--quick", "--records", "6000"]
    subprocess.run(
        [*command, "--turns", "1", "--json", str(path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    groups = grouped(read_run(path).measurements)
    assert [target.what for target in TARGETS if target.judge(groups) is None] == []


@pytest.mark.promise(
    "README and `benchmarks/RESULTS.md` say what the kept runs measured, each with its command"
)
def test_the_documents_get_the_rows_between_their_markers(project: Path) -> None:
    assert spark_report.main(["--check"], project) == 1
    assert spark_report.main([], project) == 0
    row = (
        "| read, none, noop, records/s | 2,500,000 | 1,000,000 | 2.50x | >= 2x Spark's own, tuned "
        "| met |"
    )
    for name in DOCUMENTS:
        text = (project / name).read_text()
        assert row in text
        assert "old" not in text
    readme = (project / README).read_text()
    assert (
        "read, none, noop, records/s: 2,500,000 (pykclient), 1,000,000 (Spark's own, tuned)"
        in readme
    )
    assert "; write, none, records/s: not measured." in readme
    assert spark_report.main(["--check"], project) == 0


@pytest.mark.promise(
    "README and `benchmarks/RESULTS.md` say what the kept runs measured, each with its command"
)
def test_our_documents_say_what_the_kept_runs_of_spark_say() -> None:
    assert spark_report.main(["--check"], ROOT) == 0


@pytest.mark.promise(
    "runs are side by side; a missed row says why and what was tried; the floor is shown"
)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"{target.what} {target.wanted}")
def test_each_row_that_may_be_missed_has_a_word(target: Target) -> None:
    assert obstacle(target.what, target.wanted, OBSTACLES)


def test_each_row_of_the_page_is_a_target() -> None:
    for what, rival in spark_report.SUMMARY:
        assert [t for t in TARGETS if t.what == what and t.wanted.endswith(f"x {rival}")], what


def test_the_cpu_of_a_process_is_that_of_its_children_too() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        all_of_it, without = CpuMeter(os.getpid()), CpuMeter(os.getpid(), but=child.pid)
        child.stdout.read(1)
        alone = without.seconds()  # what other threads of this process use is in both
        assert all_of_it.seconds() - alone >= 0.2
        child.kill()


def test_values_have_the_size_that_sums_are_checked_with() -> None:
    table = records(999_990, 20)
    assert {len(value) for value in table["value"].to_pylist()} == {100}
    assert table["partition"].to_pylist()[:7] == [0, 1, 2, 3, 4, 5, 0]
