"""Polls of a group that gets nowhere, though it is known who coordinates, say so in time."""

from __future__ import annotations

import pytest

from pykclient.errors import CoordinatorLoadInProgressError, KafkaTimeoutError
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake import faults
from tests.simulation.living_group import JOIN_MS, LivingGroup

SESSION_MS = 45_000
JOINING = {"classic": ApiKey.JOIN_GROUP, "consumer": ApiKey.CONSUMER_GROUP_HEARTBEAT}
PROTOCOLS = tuple(JOINING)


@pytest.mark.promise(
    "a stalled group is raised by empty polls; a group that waits for its members is not"
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("has_joined", [True, False])
def test_a_coordinator_that_is_found_but_out_of_reach_is_told(
    protocol: str, has_joined: bool
) -> None:
    with LivingGroup(protocol) as scene:
        if has_joined:
            scene.run(JOIN_MS)
            assert scene.told_by_polls(JOIN_MS) == []
        scene.refuse_coordinator()
        errors = scene.told_by_polls(3 * SESSION_MS)
        # Of partitions that this broker leads it is told as well, if they are known.
        told = [error for error in errors if "coordinator of group 'g' was " in str(error)]
        assert 1 < len(told) <= 3, "once a session"
        assert isinstance(told[0], KafkaTimeoutError)
        assert "refused" in str(told[0])
        scene.let_through()
        scene.run(JOIN_MS)
        assert scene.member.owned
        assert scene.told_by_polls(2 * SESSION_MS) == []


@pytest.mark.promise(
    "a stalled group is raised by empty polls; a group that waits for its members is not"
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_coordinator_that_takes_nobody_in_is_told(protocol: str) -> None:
    with LivingGroup(protocol) as scene:
        fault = faults.fail_with(CoordinatorLoadInProgressError)
        scene.cluster.faults.add(fault, JOINING[protocol], times=None)
        (error,) = scene.told_by_polls(SESSION_MS + JOIN_MS)
        assert "did not take this consumer in" in str(error)
        assert "COORDINATOR_LOAD_IN_PROGRESS" in str(error)
        scene.cluster.faults.clear()
        assert scene.told_by_polls(2 * SESSION_MS) == []
        assert scene.member.owned


@pytest.mark.promise(
    "a stalled group is raised by empty polls; a group that waits for its members is not"
)
def test_a_group_that_waits_for_another_member_is_not_told() -> None:
    """Its JoinGroup is taken, and answered when the other one has joined again, or is gone."""
    with LivingGroup("classic") as scene:
        fault = faults.fail_with(CoordinatorLoadInProgressError)
        scene.cluster.faults.add(fault, ApiKey.JOIN_GROUP, times=3)
        scene.cluster.faults.add(faults.drop(), ApiKey.JOIN_GROUP, times=None)
        assert scene.told_by_polls(2 * SESSION_MS) == []
