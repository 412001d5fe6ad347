"""What the benchmarks measure with: turns, figures, targets, tables, the plot."""

from __future__ import annotations

import time
from collections import Counter
from itertools import count as numbers
from typing import TYPE_CHECKING

import pytest
from matplotlib.patches import Rectangle

import import_time
from measuring.benchmark import Settings, parser_of
from measuring.client import KAFKA_PYTHON, PYKCLIENT, RAW_SOCKET, Client
from measuring.contest import in_turns
from measuring.machine import describe
from measuring.measurement import Measurement, grouped, read_run, write_run
from measuring.plot import figure_of, write_plot
from measuring.pulse import gaps_s, listening
from measuring.tables import figures_rows, markdown, target_rows
from measuring.targets import TARGETS, GrowthTarget, LimitTarget, RatioTarget, Relation
from pykclient.version import __version__
from tests.benchmarks.runs import LARGE, SMALL, measured, run_of

if TYPE_CHECKING:
    from pathlib import Path

RATE = "records_per_second"
CPU = "cpu_s_per_million"
FASTER = RatioTarget(LARGE, RATE, Relation.AT_LEAST, 1.5, "rival")
CHEAPER = RatioTarget(LARGE, CPU, Relation.AT_MOST, 0.5, "rival")


MEDIANS = ("110", "100", "1.10x", False)
IMPORT = LimitTarget(LARGE, "import_ms", 60)
BROKER = RatioTarget(LARGE, RATE, Relation.AT_LEAST, 8, "rival", floor="raw socket")


@pytest.mark.promise("one command measures every target beside every rival, with the verdict")
@pytest.mark.parametrize(
    ("target", "figures", "judgement"),
    [
        (FASTER, {"pykclient": [149], "rival": [100]}, ("149", "100", "1.49x", False)),
        (FASTER, {"pykclient": [150], "rival": [100]}, ("150", "100", "1.50x", True)),
        (FASTER, {"pykclient": [100, 900, 110], "rival": [100, 100, 1]}, MEDIANS),
        (FASTER, {"pykclient": [1]}, None),
        (FASTER, {"rival": [1]}, None),
        (CHEAPER, {"pykclient": [0.5], "rival": [1]}, ("0.500", "1.000", "0.50x", True)),
        (CHEAPER, {"pykclient": [0.51], "rival": [1]}, ("0.510", "1.000", "0.51x", False)),
        (IMPORT, {"pykclient": [60.0]}, ("60.0", "", "60.0", True)),
        (IMPORT, {"pykclient": [60.1]}, ("60.1", "", "60.1", False)),
    ],
)
def test_a_target_is_met_up_to_its_ratio_or_limit(
    target: RatioTarget | LimitTarget,
    figures: dict[str, list[float]],
    judgement: tuple[str, str, str, bool] | None,
) -> None:
    """Medians are compared; without the rival nothing is judged."""
    turns = [
        measurement
        for client, values in figures.items()
        for measurement in measured(LARGE, client, target.figure, *values)
    ]
    assert target.judge(grouped(turns)) == judgement


@pytest.mark.parametrize(("socket", "is_met"), [(1_000.0, True), (1_200.0, False)])
def test_a_client_as_fast_as_the_bare_socket_is_limited_by_the_broker(
    socket: float, is_met: bool
) -> None:
    turns = [
        *measured(LARGE, "pykclient", RATE, 900),
        *measured(LARGE, "rival", RATE, 300),
        *measured(LARGE, "raw socket", RATE, socket),
    ]
    judgement = BROKER.judge(grouped(turns))
    assert judgement is not None
    assert judgement.is_met is is_met
    assert "raw socket" in judgement.result


@pytest.mark.promise(
    "a lost or late heartbeat beside a computing thread is a miss, and one bad turn is enough"
)
def test_the_worst_turn_decides_where_no_turn_may_be_bad() -> None:
    groups = grouped(measured(LARGE, "pykclient", "missed_heartbeats", 0, 0, 1))
    assert LimitTarget(LARGE, "missed_heartbeats", 0).judge(groups) == ("0", "", "0", True)
    worst = LimitTarget(LARGE, "missed_heartbeats", 0, is_worst=True)
    assert worst.judge(groups) == ("1", "", "1", False)
    assert worst.wanted == "<= 0 in every turn"


def test_growth_is_the_dearest_size_by_the_smallest() -> None:
    groups = grouped(
        Measurement("growth", f"produce, partitions: {size}", "pykclient", {CPU: cpu})
        for size, cpu in (("1", 1.0), ("10", 1.3), ("1,000", 1.2))
    )
    judgement = GrowthTarget("produce, partitions", 1.1).judge(groups)
    assert judgement is not None
    assert (judgement.result, judgement.is_met) == ("1.30x", False)


def test_no_two_targets_are_the_same() -> None:
    assert len({(target.what, target.wanted) for target in TARGETS}) == len(TARGETS)


@pytest.mark.promise("the clients' order rotates")
def test_each_has_as_many_turns_and_each_goes_first() -> None:
    turns = list(in_turns("abc", 3))
    assert Counter(turns) == {"a": 3, "b": 3, "c": 3}
    assert [turns[start] for start in (0, 3, 6)] == ["a", "b", "c"]


def test_no_clients_have_no_turns() -> None:
    assert list(in_turns([], 3)) == []


def test_the_machine_is_printed_with_the_versions() -> None:
    completed = describe(["pykclient", "rich"])
    assert completed["pykclient"] == __version__
    assert {"cores", "memory", "system", "Python", "rich"} <= completed.keys()


def test_each_figure_has_the_median_and_range_of_its_turns() -> None:
    groups = grouped(
        [
            *measured(LARGE, "a", "records_per_second", 9, 300, 200),
            *measured(LARGE, "b", "records_per_second", 1),
            *measured(LARGE, "a", "cpu_s_per_million", 5),
        ]
    )
    series = groups[*LARGE, "a"]["records_per_second"]
    assert (series.median, series.range) == (200, (9, 300))
    assert groups[*LARGE, "a"]["cpu_s_per_million"].median == 5
    assert groups[*LARGE, "b"]["records_per_second"].median == 1


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = run_of(measured(LARGE, "a", "records_per_second", 9.5, 300))
    path = tmp_path / "deep" / "run.json"
    write_run(path, run)
    assert read_run(path) == run


def test_each_heartbeat_is_noted_once_with_its_time() -> None:
    counts = numbers(7)
    from_s = time.monotonic()
    with listening(lambda: next(counts)) as beats_s:
        while len(beats_s) < 3:
            time.sleep(0.001)  # gives the listener the interpreter
    assert next(counts) == 7 + 1 + len(beats_s)
    times_s = [from_s, *beats_s, time.monotonic()]
    assert times_s == sorted(times_s)


def test_the_time_before_the_first_and_after_the_last_heartbeat_counts() -> None:
    assert gaps_s([11.0, 12.5], 10.0, 16.0) == [1.0, 1.5, 3.5]


def test_a_gap_that_had_begun_before_counts_whole() -> None:
    assert gaps_s([8.0, 9.5, 11.0, 17.0], 10.0, 12.0) == [1.5, 1.0]


@pytest.mark.parametrize("beats_s", [[], [13.0]])
def test_without_a_heartbeat_the_whole_time_is_one_gap(beats_s: list[float]) -> None:
    assert gaps_s(beats_s, 10.0, 12.0) == [2.0]


ABSENT = Client("absent", "with_absent", "package_that_is_not_there", "absent-client")


def test_the_short_form_is_the_default() -> None:
    options = parser_of(None).parse_args([])
    assert (options.records, options.runs, options.json) == (1_000_000, 5, None)
    assert PYKCLIENT.name in options.clients


@pytest.mark.parametrize("text", ["50,000", "50_000", "50000"])
def test_counts_may_have_separators(text: str) -> None:
    assert parser_of(None).parse_args(["--records", text]).records == 50_000


@pytest.mark.parametrize("arguments", [["--records", "0"], ["--runs", "-1"], ["--clients", "me"]])
def test_what_cannot_be_measured_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser_of(None).parse_args(arguments)
    assert arguments[0] in capsys.readouterr().err


def test_a_client_that_is_not_installed_is_left_out_and_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = Settings(100, 1, frozenset({PYKCLIENT.name, ABSENT.name}))
    assert settings.able("consume", [PYKCLIENT, ABSENT, RAW_SOCKET]) == [PYKCLIENT]
    assert "absent-client is not installed" in capsys.readouterr().err


def test_slow_clients_get_a_tenth() -> None:
    settings = Settings(1_000, 1, frozenset())
    assert settings.records_for(PYKCLIENT) == 1_000
    assert settings.records_for(KAFKA_PYTHON) == 100


def test_the_values_of_several_runs_stand_beside_each_other() -> None:
    runs = [
        run_of(
            measured(LARGE, "pykclient", RATE, ours), measured(LARGE, "confluent-kafka", RATE, 100)
        )
        for ours in (200, 120)
    ]
    row = target_rows(runs)[0]
    assert row.what == "produce, batch size 1,000,000, records/s"
    assert (row.ours, row.theirs, row.result) == ("200; 120", "100; 100", "2.00x; 1.20x")
    assert (row.wanted, row.verdict) == (">= 1.5x confluent-kafka", "met; missed")


def test_a_target_that_no_run_measured_stays_in_the_table() -> None:
    assert {row.verdict for row in target_rows([run_of()])} == {"not measured"}


def test_a_comparisons_rows_are_its_cases_and_clients() -> None:
    run = run_of(measured(LARGE, "pykclient", RATE, 3, 1_000, 20), measured(SMALL, "Java", RATE, 7))
    headings, *rows = figures_rows("produce", run.measurements)
    assert headings == ["case", "client", "records/s", "runs"]
    assert rows == [
        ["batch size 1,000,000", "pykclient", "20 (3 to 1,000)", "3"],
        ["batch size 16,384", "Java", "7 (7 to 7)", "1"],
    ]
    assert figures_rows("consume", run.measurements)[1:] == []


def test_a_document_gets_a_table() -> None:
    lines = list(markdown(["a", "b"], [["1", "2"]]))
    assert lines == ["| a | b |", "| --- | --- |", "| 1 | 2 |"]


RUN = run_of(
    measured(LARGE, "pykclient", "records_per_second", 2_000_000),
    measured(LARGE, "confluent-kafka", "records_per_second", 1_000_000),
)


@pytest.mark.promise("the plot has titles, and axes with units")
def test_every_panel_has_a_title_and_axes_with_units() -> None:
    panels = figure_of(RUN).axes
    assert [axes.get_title() for axes in panels] == [
        "Produce: records/s",
        "Produce: client CPU s per million",
        "Consume: records/s",
        "Consume: client CPU s per million",
    ]
    assert {axes.get_xlabel() for axes in panels} == {
        "records/s (logarithmic)",
        "client CPU, seconds per million records (logarithmic)",
    }
    assert {axes.get_ylabel() for axes in panels} == {"client"}


def test_a_chart_has_a_bar_for_each_client_and_names_what_is_missing() -> None:
    produced, _, consumed, _ = figure_of(RUN).axes
    assert [bar.get_width() for bar in produced.patches if isinstance(bar, Rectangle)] == [
        1_000_000,
        2_000_000,
    ]
    assert [text.get_text() for text in consumed.texts] == ["not measured"]


def test_what_was_too_short_to_be_measured_has_no_bar() -> None:
    figures = [measured(LARGE, "Java", "cpu_s_per_million", value) for value in (-0.5, 0.0)]
    _, cpu, _, _ = figure_of(run_of(*figures)).axes
    assert [text.get_text() for text in cpu.texts] == ["not measured"]


def test_the_file_is_a_png(tmp_path: Path) -> None:
    path = tmp_path / "clients.png"
    write_plot(path, RUN)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_an_import_is_timed() -> None:
    assert import_time.import_ms("pass") > 0


def test_an_optional_dependency_that_is_loaded_is_seen() -> None:
    assert import_time.optional_modules("pass") == []
    assert import_time.optional_modules("import rich") == ["rich"]
