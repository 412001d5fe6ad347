"""What the report writes into documents, and how it tells that they are stale."""

from __future__ import annotations

from pathlib import Path

import pytest

import report
from measuring import obstacles
from measuring.measurement import write_run
from measuring.obstacles import obstacle
from measuring.targets import TARGETS, Target
from tests.benchmarks.runs import LARGE, measured, run_of

ROOT = Path(__file__).parents[2]
RUN = run_of(
    measured(LARGE, "pykclient", "records_per_second", 300),
    measured(LARGE, "confluent-kafka", "records_per_second", 100),
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with empty documents and one run."""
    (tmp_path / "benchmarks").mkdir()
    for name in ("README.md", "benchmarks/RESULTS.md"):
        (tmp_path / name).write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    write_run(tmp_path / report.RESULTS_FOLDER / "run-1.json", RUN)
    return tmp_path


def test_the_documents_get_the_tables_between_their_markers(project: Path) -> None:
    assert report.main([], project) == 0
    row = (
        "| produce, batch size 1,000,000, records/s | 300 | 100 | 3.00x "
        "| >= 1.5x confluent-kafka | met |"
    )
    for name in ("README.md", "benchmarks/RESULTS.md"):
        text = (project / name).read_text()
        assert row in text
        assert text.startswith("before\n")
        assert text.endswith(f"{report.END}\nafter\n")
        assert "old" not in text
    assert "    python benchmarks/suite.py\n" in (project / "benchmarks/RESULTS.md").read_text()
    assert "(`python benchmarks/suite.py`)" in (project / "README.md").read_text()
    assert (project / report.PLOT).is_file()


@pytest.mark.promise(
    "runs are side by side; a missed row says why and what was tried; the floor is shown"
)
def test_two_runs_stand_beside_each_other_and_each_has_its_section(project: Path) -> None:
    slower = run_of(
        measured(LARGE, "pykclient", "records_per_second", 200),
        measured(LARGE, "confluent-kafka", "records_per_second", 100),
    )
    write_run(project / report.RESULTS_FOLDER / "run-2.json", slower)
    assert report.main([], project) == 0
    readme = (project / "README.md").read_text()
    assert "| 300; 200 | 100; 100 | 3.00x; 2.00x | >= 1.5x confluent-kafka | met |" in readme
    results = (project / "benchmarks/RESULTS.md").read_text()
    assert [f"## Run {number}, " in results for number in (1, 2, 3)] == [True, True, False]


def test_the_readme_has_a_few_targets_and_the_results_why_others_are_missed(project: Path) -> None:
    late = ("latency", "one record, linger 0")
    run = run_of(
        measured(late, "pykclient", "ack_p50_ms", 2),
        measured(late, "pykclient", "ack_p99_ms", 2),
        measured(late, "confluent-kafka", "ack_p50_ms", 1),
        measured(late, "confluent-kafka", "ack_p99_ms", 3),
    )
    write_run(project / report.RESULTS_FOLDER / "run-1.json", run)
    assert report.main([], project) == 0
    readme = (project / "README.md").read_text()
    results = (project / "benchmarks/RESULTS.md").read_text()
    row = "latency, one record, linger 0, acknowledged"
    assert f"| {row}, p50, ms | 2.00 | 1.00 | 2.00x | <= 1x confluent-kafka | missed |" in readme
    assert f"| {row}, p99" not in readme
    assert f"| {row}, p99, ms | 2.00 | 3.00 | 0.67x | <= 1x confluent-kafka | met |" in results
    assert "\n1 of 2 targets are met. " in readme
    assert f"- **{row}, p50, ms (<= 1x confluent-kafka)**: " in results


def test_each_row_of_the_readme_is_a_target() -> None:
    for what, rival in report.SUMMARY:
        assert [t for t in TARGETS if t.what == what and rival in t.wanted], what


@pytest.mark.promise(
    "runs are side by side; a missed row says why and what was tried; the floor is shown"
)
def test_a_row_that_is_missed_has_its_cause() -> None:
    place = ("busy neighbour", "a record each 10 ms")
    lines = "\n".join(report.missed_lines([run_of(measured(place, "pykclient", "ack_p99_ms", 21))]))
    name = "busy neighbour, a record each 10 ms, acknowledged, p99, ms (<= 20)"
    assert f"- **{name}**: {obstacle(name, '<= 20')}" in lines


@pytest.mark.promise(
    "runs are side by side; a missed row says why and what was tried; the floor is shown"
)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"{target.what} {target.wanted}")
def test_each_row_that_may_be_missed_has_an_explanation(target: Target) -> None:
    assert obstacle(target.what, target.wanted)


@pytest.mark.promise(
    "runs are side by side; a missed row says why and what was tried; the floor is shown"
)
def test_a_row_that_is_missed_without_an_explanation_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(obstacles, "OBSTACLES", ())
    slow = run_of(
        measured(LARGE, "pykclient", "records_per_second", 1),
        measured(LARGE, "confluent-kafka", "records_per_second", 1),
    )
    with pytest.raises(ValueError, match=r"records/s .* is missed, and .* does not say"):
        list(report.missed_lines([slow]))


@pytest.mark.promise(
    "runs are side by side; a missed row says why and what was tried; the floor is shown"
)
def test_the_distance_to_the_floor_is_printed() -> None:
    run = run_of(
        measured(("floor", "in"), "pykclient, poll", "cpu_s_per_million", 0.3),
        measured(("floor", "in"), "raw socket", "cpu_s_per_million", 0.02),
        measured(("floor", "in"), "raw socket and CRC", "cpu_s_per_million", 0.03),
    )
    row = "| pykclient, poll | 0.300 | raw socket and CRC | 0.030 | 10.0x |"
    assert row in list(report.floor_lines([run]))
    assert list(report.floor_lines([RUN])) == []


@pytest.mark.promise(
    "README and `benchmarks/RESULTS.md` say what the kept runs measured, each with its command"
)
def test_a_stale_document_is_named_and_left_alone(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report.main(["--check"], project) == 1
    assert "README.md does not say what the runs say" in capsys.readouterr().err
    assert "old" in (project / "README.md").read_text()
    report.main([], project)
    assert report.main(["--check"], project) == 0


def test_a_document_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="no lines"):
        report.replaced("nothing here", "block")


def test_without_a_run_there_is_no_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        report.main([], tmp_path)
    assert "there is no run in benchmarks/results" in capsys.readouterr().err


@pytest.mark.promise(
    "README and `benchmarks/RESULTS.md` say what the kept runs measured, each with its command"
)
def test_our_documents_have_the_figures_of_the_kept_runs() -> None:
    assert report.main(["--check"], ROOT) == 0
