"""Groups of real members on three real brokers, under fire: nothing is lost, and nothing stalls.

`make test` runs one scenario and `make soak` each once; `make chaos` runs all of them several times
with groups of every kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.arena import GroupKind
from tests.chaos.scenarios import SCENARIOS, Scenario

if TYPE_CHECKING:
    from pykclient.testing import KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

IN_EVERY_RUN = "coordinator_killed"
IN_SHORT = [
    ("coordinator_killed", GroupKind.MODERN),
    ("coordinator_frozen", GroupKind.EAGER),
    ("leader_frozen", GroupKind.MODERN),
    ("brokers_rolled", GroupKind.COOPERATIVE),
    ("member_killed", GroupKind.COOPERATIVE),
    ("member_frozen", GroupKind.MODERN),
    ("static_members_restarted", GroupKind.EAGER),
    ("members_churned", GroupKind.MODERN),
    ("topic_grown", GroupKind.EAGER),
    ("work_long", GroupKind.EAGER),
    ("application_stalled", GroupKind.COOPERATIVE),
    ("application_stalled", GroupKind.MODERN),
    ("network_broken", GroupKind.EAGER),
    ("answers_damaged", GroupKind.COOPERATIVE),
]


@pytest.mark.promise(
    "a group under fire loses nothing, has one owner a partition, stalls briefly, closes in time"
)
@pytest.mark.parametrize(
    ("scenario", "kind"),
    [
        pytest.param(
            scenario,
            kind,
            id=f"{name}-{kind.name.lower()}",
            marks=() if name == IN_EVERY_RUN else pytest.mark.soak,
        )
        for name, kind in IN_SHORT
        for scenario in SCENARIOS
        if scenario.name == name
    ],
)
def test_a_group_under_fire_loses_nothing_and_does_not_stall(
    brokers_under_fire: KafkaCluster, scenario: Scenario, kind: GroupKind
) -> None:
    judged = scenario.run(brokers_under_fire, kind)
    assert judged.violations == []
    assert judged.record_count > 0


@pytest.mark.promise(
    "a group under fire loses nothing, has one owner a partition, stalls briefly, closes in time"
)
def test_every_scenario_is_in_the_short_form() -> None:
    assert {scenario.name for scenario in SCENARIOS} == {name for name, _ in IN_SHORT}
