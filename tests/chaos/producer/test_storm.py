"""Attribution of pauses to strikes; and, in soak, both producers under every strike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.copies import compare
from tests.chaos.numbers import numbers_of
from tests.chaos.producer.storm import (
    GIVEN_UP,
    HASTY,
    OURS,
    PARTITION_COUNT,
    REFUSED,
    THEIRS,
    Pause,
    StormSize,
    Window,
    Written,
    unexplained,
)
from tests.chaos.producer.strikes import STRIKES
from tests.chaos.producer.table import Campaign, Weathered, markdown, weather
from tests.chaos.producer.writer import EVERY, Journal

if TYPE_CHECKING:
    from pykclient.testing import KafkaCluster

KILLED = Window("broker_killed", 1_000, 5_000)
LATE = Window("acknowledgements_late", 9_000, 9_500)
NUMBERS = numbers_of(2, 10)
SHORT = StormSize(record_count=300_000, rate=3_000, calm=3_000)


def written(*pauses: Pause) -> Written:
    return Written(compare(NUMBERS, NUMBERS, "t"), 10, (), pauses, retries=3)


def test_a_pause_belongs_to_the_strikes_that_it_meets() -> None:
    found = written(Pause(0, 900, 4_000), Pause(1, 4_900, 9_100), Pause(EVERY, 2_000, 2_500))
    assert found.longest_ms([KILLED], is_of_all=False) == 4_200
    assert found.longest_ms([LATE], is_of_all=False) == 4_200
    assert found.longest_ms([KILLED], is_of_all=True) == 500
    assert found.longest_ms([LATE], is_of_all=True) == 0


def test_the_table_has_both_clients_and_their_ratio() -> None:
    clients = {OURS: written(Pause(0, 1_000, 3_000)), THEIRS: written(Pause(0, 1_000, 5_000))}
    lines = markdown(Weathered("4.3.1", clients, [KILLED, LATE], 20)).splitlines()
    assert lines[2] == (
        "| kill a broker (kill -9), and start it again when others lead its partitions "
        "| 1 | 0.0, 0.0 | 2.0, 4.0 | 0.50 |"
    )
    assert lines[3].endswith("| 1 | 0.0, 0.0 | 0.0, 0.0 | - |")
    assert "pykclient: 10 records acknowledged, 3 sent again, 0 failed; 0 lost" in lines[5]
    assert lines[-1] == "2 strikes in 20 s."


def test_a_journal_has_what_was_acknowledged_and_what_was_not() -> None:
    journal = Journal(2)
    journal.note(0, None)
    journal.note(3, None)
    journal.note(1, "no room")
    assert list(journal.numbers) == [0, 3]
    assert journal.counts == [1, 1]
    assert journal.failures == ["1: no room"]
    assert journal.done_count == 3


def test_only_what_is_behind_records_that_were_given_up_may_be_refused() -> None:
    behind, further = 7 + PARTITION_COUNT, 7 + 2 * PARTITION_COUNT
    refused = [f"{behind}: {REFUSED}: n", f"{further}: {REFUSED}: n"]
    assert unexplained([*refused, f"7: {GIVEN_UP}: t"]) == []
    assert unexplained([*refused, f"8: {GIVEN_UP}: t"]) == refused
    assert unexplained(["7: ClosedError: c"]) == ["7: ClosedError: c"]


def test_less_may_be_chosen() -> None:
    chosen = Campaign.of(
        {
            "CHAOS_PRODUCER_RECORDS": "1000",
            "CHAOS_PRODUCER_STRIKES": "broker_killed",
            "CHAOS_VERSIONS": "3.9.2",
        }
    )
    assert [strike.name for strike in chosen.strikes] == ["broker_killed"]
    assert chosen.size.record_count == 1_000
    assert chosen.versions == ("3.9.2",)
    for key in ("CHAOS_PRODUCER_STRIKES", "CHAOS_VERSIONS"):
        with pytest.raises(ValueError, match=r"\['volcano'\] are none of"):
            Campaign.of({key: "volcano"})


@pytest.mark.soak
@pytest.mark.kafka
@pytest.mark.promise("a producer under fire loses, doubles and swaps no record")
def test_a_producer_under_fire_loses_doubles_and_swaps_nothing(
    brokers_under_fire: KafkaCluster,
) -> None:
    weathered = weather(brokers_under_fire, STRIKES, SHORT)
    assert weathered.violations == []
    assert weathered.written[OURS].judged.record_count == SHORT.record_count
    assert weathered.written[HASTY].failures
