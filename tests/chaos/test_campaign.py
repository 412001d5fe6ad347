"""The environment chooses what `make chaos` does."""

from __future__ import annotations

import pytest

from tests.chaos.arena import GroupKind
from tests.chaos.campaign import LOADS, main
from tests.chaos.scenarios import SCENARIOS, Scenario, member_killed, topic_grown
from tests.chaos.table import Campaign, Row, markdown


def test_everything_is_done_to_groups_of_every_kind() -> None:
    assert Campaign.of({}) == Campaign(SCENARIOS, tuple(GroupKind))


def test_less_may_be_chosen_and_more_often() -> None:
    chosen = Campaign.of(
        {"CHAOS_ROUNDS": "7", "CHAOS_SCENARIOS": "topic_grown,work_long", "CHAOS_KINDS": "modern"}
    )
    assert [scenario.name for scenario in chosen.scenarios] == ["topic_grown", "work_long"]
    assert chosen.kinds == (GroupKind.MODERN,)
    assert chosen.round_count == 7


@pytest.mark.parametrize("key", ["CHAOS_SCENARIOS", "CHAOS_KINDS"])
def test_what_there_is_not_is_refused_with_what_there_is(key: str) -> None:
    with pytest.raises(ValueError, match=r"\['volcano'\] are none of \w+, \w+"):
        Campaign.of({key: "volcano"})


def test_a_load_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match=rf"\['volcano'\] are none of {', '.join(LOADS)}"):
        main(["groups", "volcano"])


def row(scenario: str, group: str, *, stall_ms: int = 1_240, violations: int = 0) -> Row:
    return Row(
        scenario,
        group,
        rounds=3,
        seconds=30,
        records=700,
        lost=0,
        repeated=2,
        longest_stall_ms=stall_ms,
        longest_close_ms=60,
        violations=violations,
    )


def test_groups_of_all_kinds_are_a_row() -> None:
    rows = [row("member_killed", "eager"), row("member_killed", "modern", stall_ms=6_000)]
    lines = markdown([Scenario(member_killed)], rows).splitlines()
    assert "s: eager, KIP-848 |" in lines[0]
    assert lines[2] == (
        "| kill a member; the others get its partitions when its session expires "
        "| 1,400 | 0 | 4 | 1.2, 6.0 | 0.1 |"
    )
    assert lines[-1] == "2 groups, 3 rounds, 1 min; violations: 0"


def test_a_group_that_did_not_get_over_it_is_seen() -> None:
    rows = [Row("topic_grown", "eager", rounds=3, seconds=60), row("topic_grown", "modern")]
    lines = markdown([Scenario(topic_grown)], rows).splitlines()
    assert "| ? | ? | ? | ?, 1.2 |" in lines[2]
    assert lines[-1].endswith("; violations: 1")
