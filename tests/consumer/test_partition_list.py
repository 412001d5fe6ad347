"""Partitions in a message: all of a few, the first of many."""

from __future__ import annotations

from pykclient.consumer.subscription import PARTITIONS_SHOWN_MAX, describe_partitions
from pykclient.types import TopicPartition


def partitions(count: int) -> list[TopicPartition]:
    """So many of one topic, the last one first."""
    return [TopicPartition("t", number) for number in reversed(range(count))]


def test_a_few_are_told_in_order() -> None:
    assert describe_partitions([TopicPartition("u", 0), *partitions(2)]) == "t-0, t-1, u-0"


def test_as_many_as_are_shown_are_all() -> None:
    text = describe_partitions(partitions(PARTITIONS_SHOWN_MAX))
    assert text.endswith(f", t-{PARTITIONS_SHOWN_MAX - 1}")


def test_of_many_the_rest_is_counted() -> None:
    text = describe_partitions(dict.fromkeys(partitions(PARTITIONS_SHOWN_MAX + 3)))
    assert text.endswith(f", t-{PARTITIONS_SHOWN_MAX - 1} and 3 more")
