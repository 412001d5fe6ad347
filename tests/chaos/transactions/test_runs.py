"""Transactional copies under fire: some of each kind here, all of them in `make chaos`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.transactions.bounces import BOUNCES, SHORT, Size
from tests.chaos.transactions.chain import CHAINS, SHORT_CHAIN
from tests.chaos.transactions.stalls import SHORT_STALLS, STALLS
from tests.chaos.transactions.table import RUNS, Campaign, Row, markdown

if TYPE_CHECKING:
    from pykclient.testing import KafkaCluster
    from tests.chaos.transactions.bounces import Bounce
    from tests.chaos.transactions.chain import Chain
    from tests.chaos.transactions.stalls import Stall

IN_EVERY_RUN = "group-hard-copiers-beside_java"
IN_SOAK = (
    "partition-hard-brokers-1",
    "partition-hard-copiers-2-without_metadata",
    "group-clean-brokers",
    "group-hard-brokers-beside_java",
)
SHORTEST = Size(record_count=6_000, transaction_size=100, round_count=1)
PROMISE = pytest.mark.promise(
    "transactional copies have each record once and in order, whatever is killed meanwhile"
)


def test_everything_is_done_to_each_version() -> None:
    campaign = Campaign.of({})
    assert campaign == Campaign()
    assert len({run.name for run in RUNS}) == len(RUNS) == 28


def test_less_may_be_chosen() -> None:
    chosen = Campaign.of(
        {
            "CHAOS_TRANSACTIONS_RUNS": "chain-consumer,group-hard-brokers",
            "CHAOS_TRANSACTIONS_SHORT": "1",
            "CHAOS_VERSIONS": "3.9.2",
        }
    )
    assert [run.name for run in chosen.runs] == ["chain-consumer", "group-hard-brokers"]
    assert [run.is_for("3.9.2") for run in chosen.runs] == [False, True]
    assert chosen.is_short
    with pytest.raises(ValueError, match=r"\['volcano'\] are none of partition-hard-brokers-1"):
        Campaign.of({"CHAOS_TRANSACTIONS_RUNS": "volcano"})


def test_the_table_has_a_run_that_did_not_end() -> None:
    done = Row("chain-classic", "4.3.1", 60, 100, 3, 2, 7, 0, 0, 0, violations=0)
    lines = markdown([done, Row("group-hard-copiers", "3.9.2", 30)]).splitlines()
    assert lines[2] == (
        "| a chain of 4 topics, classic groups "
        "| members, SIGKILL, SIGSTOP and stalls in code; brokers, SIGKILL and SIGSTOP "
        "| 4.3.1 | 100 | 3 (2) | 7 | 0 | 0 | 0 | 60 |"
    )
    assert lines[3].endswith("| 3.9.2 | ? | ? | ? | ? | ? | ? | 30 |")
    assert lines[-1] == "2 runs, 2 min; violations: 1"


@pytest.mark.kafka
@PROMISE
@pytest.mark.parametrize(
    "bounce",
    [
        pytest.param(
            bounce, id=bounce.name, marks=() if bounce.name == IN_EVERY_RUN else pytest.mark.soak
        )
        for bounce in BOUNCES
        if bounce.name in (IN_EVERY_RUN, *IN_SOAK)
    ],
)
def test_what_is_bounced_leaves_each_record_once(
    brokers_under_fire: KafkaCluster, bounce: Bounce
) -> None:
    result = bounce.run(brokers_under_fire, SHORTEST if bounce.name == IN_EVERY_RUN else SHORT)
    assert result.violations == []


@pytest.mark.kafka
@pytest.mark.soak
@PROMISE
@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.name)
def test_the_last_topic_of_a_chain_equals_the_first(
    brokers_under_fire: KafkaCluster, chain: Chain
) -> None:
    result = chain.run(brokers_under_fire, SHORT_CHAIN)
    assert result.violations == []


@pytest.mark.kafka
@pytest.mark.soak
@pytest.mark.promise(
    "an application that stalls between the calls of a transaction loses and doubles nothing"
)
@pytest.mark.parametrize("stall", STALLS, ids=lambda stall: stall.name)
def test_members_that_stall_between_their_calls_leave_each_record_once(
    brokers_under_fire: KafkaCluster, stall: Stall
) -> None:
    result = stall.run(brokers_under_fire, SHORT_STALLS)
    assert result.violations == []
