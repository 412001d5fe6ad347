"""Which frames are struck: by direction, API, probability, count and seed, and what is counted."""

from __future__ import annotations

import pytest

from pykclient.errors.base import ConfigError
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.proxy.faults import Cut, Direction, Double, Fault, Flip, Lose, Refuse
from pykclient.testing.proxy.plan import DOUBLE_BYTES_MAX, FaultPlan, FrameHead

ANSWER = FrameHead(Direction.RESPONSE, ApiKey.PRODUCE, 100)
SEED = 7
THROWS = 2000


def plan_of(*faults: Fault, seed: int = SEED) -> FaultPlan:
    plan = FaultPlan(seed)
    plan.replace(faults)
    return plan


@pytest.mark.parametrize(
    ("fault", "is_struck"),
    [
        (Lose(), True),
        (Lose(api=ApiKey.PRODUCE), True),
        (Lose(api=ApiKey.FETCH), False),
        (Lose(direction=Direction.REQUEST), False),
        (Lose(probability=0.0), False),
        (Lose(count_max=0), False),
        (Refuse(), False),
    ],
)
def test_which_frames_a_fault_strikes(fault: Fault, is_struck: bool) -> None:
    plan = plan_of(fault)
    strike = plan.strike_frame(ANSWER)
    assert (strike is not None) is is_struck
    assert plan.counts["Lose"] == is_struck


def test_an_answer_to_no_known_request_is_struck_by_faults_for_any_api() -> None:
    head = FrameHead(Direction.RESPONSE, None, 100)
    assert plan_of(Lose(api=ApiKey.PRODUCE)).strike_frame(head) is None
    assert plan_of(Lose()).strike_frame(head) is not None


def test_a_fault_strikes_as_often_as_it_may() -> None:
    plan = plan_of(Lose(count_max=3))
    struck = [plan.strike_frame(ANSWER) is not None for _ in range(6)]
    assert struck == [True] * 3 + [False] * 3
    assert plan.counts == {"Lose": 3}


def test_the_first_fault_that_strikes_is_the_one() -> None:
    plan = plan_of(Cut(count_max=1), Lose())
    kinds = [type(strike.fault) for _ in range(2) if (strike := plan.strike_frame(ANSWER))]
    assert kinds == [Cut, Lose]


def test_a_probability_is_kept_and_the_seed_repeats_it() -> None:
    runs = []
    for seed in (SEED, SEED, SEED + 1):
        plan = plan_of(Flip(probability=0.2), seed=seed)
        runs.append([plan.strike_frame(ANSWER) for _ in range(THROWS)])
    struck = sum(strike is not None for strike in runs[0])
    assert THROWS * 0.15 < struck < THROWS * 0.25
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.promise("the fault proxy cuts a frame in the middle")
def test_places_lie_in_the_frame_behind_its_size() -> None:
    plan = plan_of(Flip())
    head = FrameHead(Direction.RESPONSE, None, 12)
    strikes = [strike for _ in range(THROWS) if (strike := plan.strike_frame(head))]
    assert {strike.byte for strike in strikes} == set(range(4, 12))
    assert {strike.bit for strike in strikes} == set(range(8))


def test_a_frame_too_large_to_keep_is_not_doubled() -> None:
    plan = plan_of(Double(), Lose())
    small, large = (
        plan.strike_frame(FrameHead(Direction.RESPONSE, None, size))
        for size in (DOUBLE_BYTES_MAX, DOUBLE_BYTES_MAX + 1)
    )
    assert small is not None
    assert isinstance(small.fault, Double)
    assert large is not None
    assert isinstance(large.fault, Lose)


def test_connections_are_refused_by_the_same_dice() -> None:
    plan = plan_of(Lose(), Refuse(count_max=2))
    assert [plan.strike_connection() for _ in range(3)] == [True, True, False]
    assert plan.counts == {"Refuse": 2}


@pytest.mark.promise("the fault proxy forges a length, doubles a response, and counts its faults")
def test_new_faults_count_anew_and_the_counts_go_on() -> None:
    plan = plan_of(Lose(count_max=1))
    assert plan.strike_frame(ANSWER)
    plan.replace([Lose(count_max=1)])
    assert plan.strike_frame(ANSWER)
    assert not plan.strike_frame(ANSWER)
    assert plan.counts == {"Lose": 2}


@pytest.mark.parametrize(("probability", "count_max"), [(-0.1, None), (1.1, None), (1.0, -1)])
def test_impossible_faults_are_refused(probability: float, count_max: int | None) -> None:
    with pytest.raises(ConfigError, match="give a number from 0"):
        Lose(probability=probability, count_max=count_max)
