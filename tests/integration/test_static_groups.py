"""Static groups whose leader restarts, on fake brokers (KIP-345, KIP-814).

Goal: a restart moves nothing, and nothing that came meanwhile is left unread. Method: three
members, the first of which leads; it goes and comes back under its name.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake import faults
from tests.integration.fake_group import (
    PARTITIONS,
    TOPIC,
    ListenerRecording,
    member,
    poll_until,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient import Consumer
    from pykclient.testing import FakeKafka

MEMBER_COUNT = 3
SOME_POLLS = 5


class StaticGroup:
    """Three members with names; the first leads."""

    def __init__(self, fake: FakeKafka, strategy: str) -> None:
        self._fake = fake
        self._strategy = strategy
        self.recordings = [ListenerRecording() for _ in range(MEMBER_COUNT)]
        self.members: list[Consumer] = []
        for number in range(MEMBER_COUNT):
            self.members.append(self.start(number))
            self.poll_until(lambda: self.count == len(PARTITIONS) and self.all_have_some)

    def start(self, number: int) -> Consumer:
        consumer = member(
            self._fake,
            group_instance_id=f"i{number}",
            partition_assignment_strategy=self._strategy,
            metadata_max_age_ms=100,
        )
        consumer.subscribe([TOPIC], listener=self.recordings[number].listener)
        return consumer

    def close(self) -> None:
        for each in self.members:
            each.close()

    def restart_leader(self) -> None:
        self.members[0] = self.start(0)

    @property
    def count(self) -> int:
        return len(frozenset().union(*(each.assignment() for each in self.members)))

    @property
    def all_have_some(self) -> bool:
        return all(each.assignment() for each in self.members)

    def poll_until(self, condition: Callable[[], bool]) -> None:
        poll_until(condition, *self.members)

    def poll_on(self) -> None:
        for _ in range(SOME_POLLS):
            for each in self.members:
                each.poll(0.02)


@pytest.fixture(params=["range", "roundrobin", "sticky", "cooperative-sticky"])
def group(request: pytest.FixtureRequest, fake: FakeKafka) -> Iterator[StaticGroup]:
    with ExitStack() as stack:
        group = StaticGroup(fake, request.param)
        stack.callback(group.close)
        yield group


def test_a_leader_that_restarts_moves_nothing(group: StaticGroup, fake: FakeKafka) -> None:
    before = [each.assignment() for each in group.members]
    events = [list(recording.events) for recording in group.recordings[1:]]
    group.members[0].close()
    with fake.control() as cluster:
        joins = cluster.faults.add(faults.delay_response(0), ApiKey.JOIN_GROUP, times=None)
        fault = cluster.faults.add(faults.delay_response(0), ApiKey.DESCRIBE_GROUPS, times=None)
    group.restart_leader()
    group.poll_until(lambda: fault.used_count == 1 and group.all_have_some)
    group.poll_on()
    assert [each.assignment() for each in group.members] == before
    assert [recording.events for recording in group.recordings[1:]] == events
    assert joins.used_count == 1, "the leader's own"


def test_what_came_while_the_leader_was_away_is_read(group: StaticGroup, fake: FakeKafka) -> None:
    """Also where the leader's own share would stay the same."""
    group.members[0].close()
    with fake.control() as cluster:
        cluster.add_partitions(TOPIC, len(PARTITIONS) + 1)
    group.restart_leader()
    group.poll_until(lambda: group.count == len(PARTITIONS) + 1)
