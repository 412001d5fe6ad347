"""How runs are judged."""

from __future__ import annotations

import pytest

from measuring.measurement import Measurement, grouped
from measuring.targets import TARGETS, GrowthTarget, LimitTarget, RatioTarget, Relation
from tests.benchmarks.runs import LARGE, measured

RATE = "records_per_second"
CPU = "cpu_s_per_million"
FASTER = RatioTarget(LARGE, RATE, Relation.AT_LEAST, 1.5, "rival")
CHEAPER = RatioTarget(LARGE, CPU, Relation.AT_MOST, 0.5, "rival")


@pytest.mark.promise("one command measures every target beside every rival, with the verdict")
@pytest.mark.parametrize(("ours", "is_met"), [(149.0, False), (150.0, True), (151.0, True)])
def test_a_rate_is_met_from_the_ratio_on(ours: float, is_met: bool) -> None:
    groups = grouped(
        [*measured(LARGE, "pykclient", RATE, ours), *measured(LARGE, "rival", RATE, 100)]
    )
    judgement = FASTER.judge(groups)
    assert judgement is not None
    assert judgement.is_met is is_met
    assert judgement.result == f"{ours / 100:.2f}x"


@pytest.mark.parametrize(("ours", "is_met"), [(0.49, True), (0.5, True), (0.51, False)])
def test_a_cost_is_met_up_to_the_ratio(ours: float, is_met: bool) -> None:
    groups = grouped([*measured(LARGE, "pykclient", CPU, ours), *measured(LARGE, "rival", CPU, 1)])
    judgement = CHEAPER.judge(groups)
    assert judgement is not None
    assert judgement.is_met is is_met


@pytest.mark.promise("one command measures every target beside every rival, with the verdict")
def test_medians_are_compared_not_the_best_turns() -> None:
    groups = grouped(
        [
            *measured(LARGE, "pykclient", RATE, 100, 900, 110),
            *measured(LARGE, "rival", RATE, 100, 100, 1),
        ]
    )
    judgement = FASTER.judge(groups)
    assert judgement is not None
    assert (judgement.ours, judgement.theirs, judgement.result) == ("110", "100", "1.10x")


def test_without_the_rival_nothing_is_judged() -> None:
    assert FASTER.judge(grouped(measured(LARGE, "pykclient", RATE, 1))) is None
    assert FASTER.judge(grouped(measured(LARGE, "rival", RATE, 1))) is None


@pytest.mark.parametrize(("socket", "is_met"), [(1_000.0, True), (1_200.0, False)])
def test_who_reaches_the_bare_socket_is_limited_by_the_broker(socket: float, is_met: bool) -> None:
    target = RatioTarget(LARGE, RATE, Relation.AT_LEAST, 8, "rival", floor="raw socket")
    judgement = target.judge(
        grouped(
            [
                *measured(LARGE, "pykclient", RATE, 900),
                *measured(LARGE, "rival", RATE, 300),
                *measured(LARGE, "raw socket", RATE, socket),
            ]
        )
    )
    assert judgement is not None
    assert judgement.is_met is is_met
    assert "raw socket" in judgement.result


@pytest.mark.parametrize(("value", "is_met"), [(60.0, True), (60.1, False)])
def test_a_limit_is_met_up_to_it(value: float, is_met: bool) -> None:
    place = ("import", "the package")
    groups = grouped(measured(place, "pykclient", "import_ms", value))
    judgement = LimitTarget(place, "import_ms", 60).judge(groups)
    assert judgement is not None
    assert judgement.is_met is is_met


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
