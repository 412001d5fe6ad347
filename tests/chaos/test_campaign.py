"""What `make chaos` does is chosen by the environment."""

from __future__ import annotations

import pytest

from tests.chaos.arena import GroupKind
from tests.chaos.campaign import Campaign
from tests.chaos.scenarios import SCENARIOS


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
