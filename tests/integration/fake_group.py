"""Members of one group of fake brokers, what they are told, and waiting until something is so.

Owner: the test that made them.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from pykclient import Consumer, RebalanceListener, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pykclient.testing import FakeKafka

__all__ = [
    "GROUP",
    "PARTITIONS",
    "POLL_S",
    "TIMEOUT_S",
    "TOPIC",
    "Diary",
    "each_way_to_close",
    "has_all",
    "member",
    "member_count",
    "poll_until",
    "wait_until",
]

TOPIC = "t"
GROUP = "g"
PARTITIONS = [TopicPartition(TOPIC, number) for number in range(4)]
TIMEOUT_S = 20.0
POLL_S = 0.02

each_way_to_close = pytest.mark.parametrize(
    ("group_membership", "instance_id", "left_count"),
    [
        ("default", None, 0),
        ("leave_group", None, 0),
        ("remain_in_group", None, 1),
        ("default", "i", 1),
        ("leave_group", "i", 0),
        ("remain_in_group", "i", 1),
    ],
)
"""KIP-1092: how to close, as whom, and how many members the group then has."""


class Diary:
    """A listener that writes down what it is told, with the thread."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, list[int]]] = []
        self.threads: set[int] = set()

    @property
    def listener(self) -> RebalanceListener:
        return RebalanceListener(
            lambda partitions: self._write("assigned", partitions),
            lambda partitions: self._write("revoked", partitions),
            lambda partitions: self._write("lost", partitions),
        )

    def _write(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        self.lines.append((what, [partition.partition for partition in partitions]))
        self.threads.add(threading.get_ident())


def member(fake: FakeKafka, **settings: object) -> Consumer:
    return Consumer(
        bootstrap_servers=fake.bootstrap_servers,
        **{
            "group_id": GROUP,
            "auto_offset_reset": "earliest",
            "heartbeat_interval_ms": 100,
            "session_timeout_ms": 6_000,
            **settings,
        },
    )


def poll_until(condition: Callable[[], bool], *consumers: Consumer) -> None:
    """Have all of them poll in turn until it is so."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        for consumer in consumers:
            consumer.poll(POLL_S)
        assert time.monotonic() < deadline_s, f"not within {TIMEOUT_S} s"


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until it is so; nobody polls."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        time.sleep(POLL_S)
        assert time.monotonic() < deadline_s, f"not within {TIMEOUT_S} s"


def member_count(fake: FakeKafka) -> int:
    with fake.control() as cluster:
        group = cluster.groups.snapshot(GROUP)
    return 0 if group is None else len(group.members)


def has_all(consumer: Consumer) -> Callable[[], bool]:
    return lambda: len(consumer.assignment()) == len(PARTITIONS)
