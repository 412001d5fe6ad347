"""Groups whose coordinator is unreachable or admits no member: errors of polls, and logs.

A group has a few consumers, and its network may refuse connections to one broker.
"""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from pykclient.errors import CoordinatorLoadInProgressError, KafkaTimeoutError
from pykclient.network.log import REPEAT_MS
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake import faults
from pykclient.types import TopicPartition
from tests.simulation.living_group import JOIN_MS, LivingGroup
from tests.simulation.simulated_member import POLL_MS

SESSION_MS = 45_000
MAX_POLL_INTERVAL_MS = 300_000
JOINING = {"classic": ApiKey.JOIN_GROUP, "consumer": ApiKey.CONSUMER_GROUP_HEARTBEAT}
PROTOCOLS = tuple(JOINING)
TROUBLE_MS = 2 * REPEAT_MS
ALIKE_MAX = 2 * (1 + TROUBLE_MS // REPEAT_MS)
"""Limit of equal log lines; a coordinator is logged again after each loss, and there are two
reasons for a loss."""


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("has_joined", [True, False])
def test_a_coordinator_that_is_found_but_out_of_reach_is_reported(
    protocol: str, has_joined: bool
) -> None:
    with LivingGroup(protocol) as group:
        if has_joined:
            group.run(JOIN_MS)
            assert group.errors_of_polls(JOIN_MS) == []
        group.refuse_coordinator()
        errors = group.errors_of_polls(3 * SESSION_MS)
        # Partitions led by this broker are reported as well, if they are known.
        reported = [error for error in errors if "coordinator of group 'g' was " in str(error)]
        assert 1 < len(reported) <= 3, "once a session"
        assert isinstance(reported[0], KafkaTimeoutError)
        assert "refused" in str(reported[0])
        group.let_through()
        group.run(JOIN_MS)
        assert group.member.owned
        assert group.errors_of_polls(2 * SESSION_MS) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_coordinator_that_accepts_no_member_is_reported(protocol: str) -> None:
    with LivingGroup(protocol) as group:
        fault = faults.fail_with(CoordinatorLoadInProgressError)
        group.cluster.faults.add(fault, JOINING[protocol], times=None)
        (error,) = group.errors_of_polls(SESSION_MS + JOIN_MS)
        assert "did not accept this consumer as a member" in str(error)
        assert "COORDINATOR_LOAD_IN_PROGRESS" in str(error)
        group.cluster.faults.clear()
        assert group.errors_of_polls(2 * SESSION_MS) == []
        assert group.member.owned


def test_a_group_that_waits_for_another_member_is_not_reported() -> None:
    """Its JoinGroup waits, and gets a response when the other one has rejoined or is removed."""
    with LivingGroup("classic") as group:
        fault = faults.fail_with(CoordinatorLoadInProgressError)
        group.cluster.faults.add(fault, ApiKey.JOIN_GROUP, times=3)
        group.cluster.faults.add(faults.drop(), ApiKey.JOIN_GROUP, times=None)
        assert group.errors_of_polls(2 * SESSION_MS) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("has_joined", [True, False])
def test_a_coordinator_out_of_reach_is_reported_now_and_then(
    protocol: str, has_joined: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with LivingGroup(protocol) as group:
        if has_joined:
            group.run(JOIN_MS)
            assert group.member.owned
        caplog.clear()
        caplog.set_level(logging.INFO, "pykclient")
        group.refuse_coordinator()
        group.run(TROUBLE_MS)
        reported = Counter(record.msg for record in caplog.records)
        assert any("could not connect" in each for each in reported)
        assert any("is no longer used" in each for each in reported)
        assert {each: count for each, count in reported.items() if count > ALIKE_MAX} == {}
        brief = [record for record in caplog.records if "times since" in record.getMessage()]
        assert brief, "that it goes on is logged, too"


def test_what_was_taken_from_a_member_that_is_away_is_read_by_another_at_once() -> None:
    """A member at work gets a target with more partitions, then one without them.

    Until it acknowledges that, the coordinator assigns them to no other member, which would take
    max_poll_interval_ms if it waited for the application.
    """
    with LivingGroup("consumer") as group:
        group.run(JOIN_MS)
        second = group.join()
        group.run(2 * JOIN_MS)
        assert second.owned
        group.member.busy_until_ms = group.now_ms + MAX_POLL_INTERVAL_MS
        group.run(POLL_MS)
        second.is_leaving = True
        group.run(JOIN_MS)
        third = group.join()
        group.run(2 * JOIN_MS)
        assert group.member.busy_until_ms > group.now_ms
        assert third.owned
        assert third.owned | group.member.owned == {TopicPartition("t", n) for n in range(3)}
