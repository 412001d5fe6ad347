"""The consumer's questions to brokers: answered, refused, or given up in time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pykclient.consumer import waiting
from pykclient.errors import KafkaTimeoutError, UnknownTopicOrPartitionError, UsageError
from tests.consumer.serving_port import LONG_S, SHORT_S, UNKNOWN, A, B, consumer_over

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.consumer.consumer import Consumer
    from tests.consumer.serving_port import ServingPort


@pytest.mark.promise("beginning and end offsets are reported")
def test_offsets_are_asked_for_without_an_assignment(port: ServingPort) -> None:
    port.logs[0].append(5)
    port.logs[0].start = 2
    with consumer_over(port) as consumer:
        assert consumer.beginning_offsets([A, B]) == {A: 2, B: 0}
        assert consumer.end_offsets([A, B]) == {A: 5, B: 0}
        assert consumer.offsets_for_times({A: 10**15}) == {A: None}
        assert consumer.end_offsets([]) == {}


@pytest.mark.parametrize("timestamp_ms", [-2, 2**63])
def test_a_time_that_no_record_can_have_is_refused(consumer: Consumer, timestamp_ms: int) -> None:
    with pytest.raises(UsageError, match="beginning_offsets"):
        consumer.offsets_for_times({A: timestamp_ms})


def test_topics_and_partitions_are_told(consumer: Consumer) -> None:
    partitions = consumer.partitions_for("t")
    assert [(p.topic, p.partition, p.leader_id) for p in partitions] == [("t", 0, 1), ("t", 1, 1)]
    assert consumer.list_topics().keys() == {"t"}


def test_a_question_about_an_unknown_topic_ends_in_time_with_its_name(consumer: Consumer) -> None:
    calls: list[Callable[[], object]] = [
        lambda: consumer.partitions_for("absent", SHORT_S),
        lambda: consumer.end_offsets([UNKNOWN], SHORT_S),
        lambda: consumer.offsets_for_times({UNKNOWN: 0}, SHORT_S),
    ]
    for call in calls:
        with pytest.raises(UnknownTopicOrPartitionError, match="absent"):
            call()


def test_a_typing_error_in_a_topic_does_not_cost_the_whole_time_out(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "UNKNOWN_TOPIC_WAIT_MS", round(SHORT_S * 1000))
    started_s = time.monotonic()
    with pytest.raises(UnknownTopicOrPartitionError):
        consumer.partitions_for("absent", LONG_S)
    assert time.monotonic() - started_s < LONG_S / 2


def test_a_question_without_an_answer_says_what_it_waited_for(
    consumer: Consumer, port: ServingPort
) -> None:
    port.is_silent = True
    calls: dict[str, Callable[[], object]] = {
        "t-0": lambda: consumer.end_offsets([A], SHORT_S),
        "position of t-0": lambda: consumer.position(A, SHORT_S),
        "topic 't'": lambda: consumer.partitions_for("t", SHORT_S),
        "list of topics": lambda: consumer.list_topics(SHORT_S),
    }
    for what, call in calls.items():
        with pytest.raises(KafkaTimeoutError, match=rf"waited 50 ms.*{what}.*boot:9092"):
            call()


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_timeout_that_is_none_is_refused(consumer: Consumer, timeout: float) -> None:
    with pytest.raises(UsageError, match="seconds, from 0"):
        consumer.poll(timeout)


def test_a_timeout_may_be_endless(consumer: Consumer, port: ServingPort) -> None:
    port.logs[0].append(1)
    assert len(consumer.poll(float("inf"))) == 1


def test_no_records_at_all_cannot_be_asked_for(consumer: Consumer) -> None:
    with pytest.raises(UsageError, match="max_records=0"):
        consumer.poll(SHORT_S, max_records=0)
