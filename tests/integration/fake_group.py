"""Members of a group on fake brokers, their listeners' calls, and helpers that wait.

Owner: the test that made them.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from pykclient import Consumer, Producer, RebalanceListener, TopicPartition
from pykclient.testing import FakeKafka, GroupSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TOPIC = "t"
GROUP = "g"
PARTITIONS = [TopicPartition(TOPIC, number) for number in range(4)]
NUMBERS = [partition.partition for partition in PARTITIONS]
TIMEOUT_S = 20.0
POLL_S = 0.02
INTERVAL_MS = 50
CLASSIC = "classic"

each_protocol = pytest.mark.parametrize("protocol", [CLASSIC, "consumer"])


def make_brokers(broker_count: int = 3, session_ms: int = 2_500) -> FakeKafka:
    """Start brokers with topic ``t``; KIP-848 members send frequent heartbeats."""
    settings = GroupSettings(
        group_min_session_timeout_ms=session_ms,
        group_consumer_session_timeout_ms=session_ms,
        group_consumer_heartbeat_interval_ms=INTERVAL_MS,
        group_consumer_assignment_interval_ms=0,
    )
    fake = FakeKafka(broker_count, group_settings=settings)
    with fake.control() as cluster:
        cluster.create_topic(TOPIC, len(PARTITIONS))
    return fake


class ListenerRecording:
    """A listener that records its calls and their threads."""

    def __init__(self) -> None:
        self.events: list[tuple[str, list[int]]] = []
        self.threads: set[int] = set()

    @property
    def listener(self) -> RebalanceListener:
        return RebalanceListener(
            lambda partitions: self._write("assigned", partitions),
            lambda partitions: self._write("revoked", partitions),
            lambda partitions: self._write("lost", partitions),
        )

    @property
    def calls(self) -> list[str]:
        return [call for call, _ in self.events]

    def _write(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        self.events.append((what, [partition.partition for partition in partitions]))
        self.threads.add(threading.get_ident())


def member(fake: FakeKafka, protocol: str = CLASSIC, **settings: object) -> Consumer:
    timing = {"heartbeat_interval_ms": 2 * INTERVAL_MS, "session_timeout_ms": 6_000}
    given = {
        "group_id": GROUP,
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
        **(timing if protocol == CLASSIC else {}),
        **settings,
    }
    return Consumer(given, bootstrap_servers=fake.bootstrap_servers)


def write(fake: FakeKafka, count: int, partition_count: int = len(PARTITIONS)) -> None:
    """Write numbers to the first partitions in turn."""
    with Producer(bootstrap_servers=fake.bootstrap_servers) as producer:
        for number in range(count):
            producer.send(TOPIC, b"%d" % number, partition=number % partition_count)


def poll_until(condition: Callable[[], bool], *consumers: Consumer) -> None:
    """Poll all consumers in turn until the condition holds."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        for consumer in consumers:
            consumer.poll(POLL_S)
        assert time.monotonic() < deadline_s, f"not within {TIMEOUT_S} s"


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds, without polling."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        time.sleep(POLL_S)
        assert time.monotonic() < deadline_s, f"not within {TIMEOUT_S} s"


def member_count(fake: FakeKafka) -> int:
    with fake.control() as cluster:
        group = cluster.groups.snapshot(GROUP)
    return 0 if group is None else len(group.members)


def has_all(consumer: Consumer) -> Callable[[], bool]:
    return have_counts({consumer: len(PARTITIONS)})


def have_counts(counts: dict[Consumer, int]) -> Callable[[], bool]:
    """Return a condition: each consumer has this number of partitions."""
    return lambda: all(len(each.assignment()) == count for each, count in counts.items())
