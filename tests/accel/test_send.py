"""The fast and the slow path of `send`: records for an open batch, and all others."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from pykclient.accel.key_rule import (
    CRC32,
    EMPTY_IS_SPREAD,
    IGNORE_KEYS,
    NULL_IS_HASHED,
    RANDOM,
    ROUND_ROBIN,
)
from tests.accel.records import new_appender, records_of

if TYPE_CHECKING:
    from types import ModuleType

NOW_MS = 1_700_000_000_123
SLOW = "slow"


class Sending:
    """A core with one topic of four partitions, and a slow path that notes its calls."""

    def __init__(self, core: ModuleType) -> None:
        self.slow_calls: list[tuple[object, ...]] = []
        self.send = core.SendCore(self._send_slowly, lambda: NOW_MS * 1_000_000 + 999_999)
        self.topic = core.TopicAppenders(4)
        self.appenders = [new_appender(core, 1000) for _ in range(4)]
        self.topic.open[:] = self.appenders
        self.topic.sticky = self.appenders[1]
        self.send.topics["t"] = self.topic

    def _send_slowly(self, *arguments: object) -> str:
        self.slow_calls.append(arguments)
        return SLOW

    def counts(self) -> list[int]:
        """Return the number of records in each partition."""
        return [appender.count for appender in self.appenders]

    def first_record(self, partition: int) -> tuple[object, ...]:
        """Timestamp, key, value and headers of the first record of a partition."""
        row: tuple[object, ...] = next(iter(records_of(self.appenders[partition])))
        return row[1:]


@pytest.fixture
def sending(core: ModuleType) -> Sending:
    return Sending(core)


def test_a_record_without_key_goes_to_the_sticky_partition_with_the_time_of_now(
    sending: Sending,
) -> None:
    delivery = sending.send.send("t", b"value")
    assert delivery.index == 0
    assert sending.counts() == [0, 1, 0, 0]
    assert sending.first_record(1) == (NOW_MS, None, b"value", ())
    assert sending.slow_calls == []


# The partitions that Java chooses of four.
@pytest.mark.parametrize(("key", "partition"), [(b"21", 0), (b"foobar", 2), (b"abc", 3), (b"", 1)])
def test_a_key_chooses_its_partition_by_murmur2(
    sending: Sending, core: ModuleType, key: bytes, partition: int
) -> None:
    assert core.partition_of_key(key, 4) == partition
    sending.send.send("t", b"value", key)
    assert [count for count in sending.counts() if count] == [1]
    assert sending.counts()[partition] == 1
    assert sending.first_record(partition)[1] == key


# The hashes are those of Java's own test; the first three are negative.
@pytest.mark.parametrize(
    ("key", "java_hash"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"abc", 479470107),
    ],
)
@pytest.mark.parametrize("partition_count", [5, 7])
def test_the_sign_of_a_hash_does_not_count(
    sending: Sending, core: ModuleType, key: bytes, java_hash: int, partition_count: int
) -> None:
    """Goal: also where the number of partitions is no power of two, as four is."""
    topic = core.TopicAppenders(partition_count)
    topic.open[:] = [new_appender(core, 1000) for _ in range(partition_count)]
    sending.send.topics["t"] = topic
    sending.send.send("t", b"value", key)
    counts = [appender.count for appender in topic.open]
    assert counts.index(1) == (java_hash & 0x7FFFFFFF) % partition_count
    assert sum(counts) == 1
    assert java_hash > 0 or counts.index(1) != (java_hash & 0xFFFFFFFF) % partition_count


def test_keys_choose_nothing_when_they_are_to_be_ignored(sending: Sending) -> None:
    sending.topic.key_rule = IGNORE_KEYS
    sending.send.send("t", b"value", b"foobar")
    assert sending.counts() == [0, 1, 0, 0]


def test_a_record_without_a_key_is_hashed_where_the_rule_says_so(sending: Sending) -> None:
    sending.topic.key_rule = CRC32 | NULL_IS_HASHED
    sending.send.send("t", b"value")
    sending.send.send("t", b"value", b"")
    assert sending.counts() == [2, 0, 0, 0]


def test_an_empty_key_is_none_where_the_rule_says_so(sending: Sending) -> None:
    sending.topic.key_rule = CRC32 | EMPTY_IS_SPREAD
    sending.send.send("t", b"value", b"")
    assert sending.counts() == [0, 1, 0, 0]


def test_round_robin_takes_the_choices_in_turn_whatever_the_key(sending: Sending) -> None:
    sending.topic.key_rule = ROUND_ROBIN
    sending.topic.choices = [0, 1, 3]
    for number in range(5):
        sending.send.send("t", b"value", b"key")
        assert sending.topic.turn == number + 1
    assert sending.counts() == [2, 2, 0, 1]


def test_the_slow_path_gets_the_partition_that_was_chosen(sending: Sending) -> None:
    """Goal: no choice is lost where a batch has to be begun first (KAFKA-9965)."""
    sending.topic.key_rule = ROUND_ROBIN
    sending.topic.choices = [2, 0]
    sending.topic.open[2] = None
    assert sending.send.send("t", b"value", b"key") == SLOW
    sending.send.send("t", b"value", b"key")
    assert sending.slow_calls == [("t", b"value", b"key", 2, None, None, None)]
    assert sending.counts() == [1, 0, 0, 0]


@pytest.mark.parametrize("choices", [[], [4], [-1]])
def test_without_a_partition_to_choose_the_slow_path_chooses(
    sending: Sending, choices: list[int]
) -> None:
    sending.topic.key_rule = ROUND_ROBIN
    sending.topic.choices = choices
    assert sending.send.send("t", b"value") == SLOW
    assert sending.slow_calls == [("t", b"value", None, None, None, None, None)]


def test_random_choices_are_spread_evenly(core: ModuleType) -> None:
    topic = core.TopicAppenders(7, key_rule=RANDOM, turn=12345)
    topic.choices = [0, 2, 4, 6]
    counts = Counter(topic.next_choice() for _ in range(8_000))
    assert set(counts) == {0, 2, 4, 6}
    assert max(counts.values()) < 1.15 * min(counts.values())
    pairs = Counter((topic.next_choice(), topic.next_choice()) for _ in range(16_000))
    assert len(pairs) == 16
    assert max(pairs.values()) < 1.3 * min(pairs.values())


def test_everything_given_is_used(sending: Sending) -> None:
    sending.send.send(
        "t",
        value=None,
        key=b"k",
        partition=3,
        timestamp_ms=5,
        headers=[("h", b"x")],
        on_delivery=print,
    )
    assert list(sending.appenders[3].callbacks) == [(0, print)]
    assert sending.first_record(3) == (5, b"k", None, (("h", b"x"),))


@pytest.mark.parametrize(
    "arguments",
    [
        {"topic": "unknown", "value": b"v"},
        {"topic": ("a", "record"), "value": None},
        {"topic": ["a list has no hash"], "value": b"v"},
        {"topic": None, "value": b"v"},
        {"topic": "t", "value": "text"},
        {"topic": "t", "value": bytearray(b"v")},
        {"topic": "t", "value": b"v", "key": 5},
        {"topic": "t", "value": b"v", "partition": 4},
        {"topic": "t", "value": b"v", "partition": -1},
        {"topic": "t", "value": b"v", "partition": "1"},
        {"topic": "t", "value": b"v", "partition": True},
        {"topic": "t", "value": b"v", "timestamp_ms": "now"},
        {"topic": "t", "value": b"v", "timestamp_ms": -1},
        {"topic": "t", "value": b"v", "timestamp_ms": 2**63},
        {"topic": "t", "value": b"v" * 2000, "partition": 2, "timestamp_ms": 1},
    ],
)
def test_what_the_core_cannot_do_alone_goes_to_the_slow_path_as_it_came(
    sending: Sending, arguments: dict[str, Any]
) -> None:
    for partition in range(4):
        sending.send.send("t", b"first", partition=partition)
    assert sending.send.send(**arguments, headers=(), on_delivery=print) == SLOW
    names = ("topic", "value", "key", "partition", "timestamp_ms")
    expected = tuple(arguments.get(name) for name in names)
    assert sending.slow_calls == [(*expected, (), print)]
    assert sending.counts() == [1, 1, 1, 1]


def test_headers_that_can_be_read_once_go_to_the_slow_path_unread(sending: Sending) -> None:
    lazy = iter([("a", b"1")])
    assert sending.send.send("t", b"v", headers=lazy) == SLOW
    assert list(lazy) == [("a", b"1")]


def test_a_partition_without_an_open_batch_goes_to_the_slow_path(sending: Sending) -> None:
    sending.topic.open[2] = None
    sending.topic.sticky = None
    assert sending.send.send("t", b"v", partition=2) == SLOW
    assert sending.send.send("t", b"v") == SLOW


def test_a_sealed_batch_goes_to_the_slow_path(sending: Sending) -> None:
    sending.appenders[1].seal()
    assert sending.send.send("t", b"v") == SLOW


def test_a_subclass_has_send_without_a_layer_of_its_own(core: ModuleType) -> None:
    class Producer(core.SendCore):  # type: ignore[name-defined, misc] # a class of a fixture
        pass

    assert Producer.send is core.SendCore.send
