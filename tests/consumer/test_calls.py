"""Calls about offsets and topics: answered, rejected, or timed out."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from pykclient.config.other_clients import other_clients
from pykclient.consumer import waiting
from pykclient.consumer.topics import TopicLookups
from pykclient.errors import (
    DecodeError,
    DisconnectedError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UsageError,
)
from pykclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.consumer.known_cluster import RETRY_BACKOFF, RETRY_MS, START_MS
from tests.consumer.serving_port import LONG_S, SHORT_S, UNKNOWN, A, B, consumer_over

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.consumer.consumer import Consumer
    from pykclient.network.manager import Request
    from tests.consumer.serving_port import ServingPort


def test_offsets_are_requested_without_an_assignment(port: ServingPort) -> None:
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


@pytest.mark.promise("names and methods of other clients raise errors that name the replacement")
def test_an_argument_of_another_client_is_an_error_with_the_one_here(consumer: Consumer) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("poll", {"timeout_ms": 100}),
        ("commit", {"message": None, "asynchronous": False}),
        ("subscribe", {"topics": ["t"], "on_assign": print}),
    ]
    for method, arguments in calls:
        with pytest.raises(TypeError, match="unexpected keyword argument") as caught:
            getattr(consumer, method)(**arguments)
        assert any(str(caught.value).endswith(each) for each in other_clients().arguments.values())
    with pytest.raises(TypeError) as caught:
        consumer.poll(timeouts=1)  # type: ignore[call-arg]
    assert other_clients().arguments["timeout_ms"] not in str(caught.value)


def test_topics_and_partitions_are_reported(consumer: Consumer) -> None:
    partitions = consumer.partitions_for("t")
    assert [(p.topic, p.partition, p.leader_id) for p in partitions] == [("t", 0, 1), ("t", 1, 1)]
    assert consumer.list_topics().keys() == {"t"}


def test_a_query_about_an_unknown_topic_ends_in_time_with_its_name(consumer: Consumer) -> None:
    calls: list[Callable[[], object]] = [
        lambda: consumer.partitions_for("absent", SHORT_S),
        lambda: consumer.end_offsets([UNKNOWN], SHORT_S),
        lambda: consumer.offsets_for_times({UNKNOWN: 0}, SHORT_S),
    ]
    for call in calls:
        with pytest.raises(UnknownTopicOrPartitionError, match="absent"):
            call()


def test_a_topic_that_was_refused_is_requested_anew_by_the_next_call(
    consumer: Consumer, port: ServingPort
) -> None:
    port.topic_error = TopicAuthorizationFailedError
    for _ in range(2):
        with pytest.raises(TopicAuthorizationFailedError):
            consumer.partitions_for("t", LONG_S)
    port.topic_error = None
    assert len(consumer.partitions_for("t", LONG_S)) == 2


def test_a_typing_error_in_a_topic_does_not_cost_the_whole_time_out(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "UNKNOWN_TOPIC_WAIT_MS", round(SHORT_S * 1000))
    started_s = time.monotonic()
    with pytest.raises(UnknownTopicOrPartitionError):
        consumer.partitions_for("absent", LONG_S)
    assert time.monotonic() - started_s < LONG_S / 2


def test_the_timeout_of_a_query_names_what_it_waited_for(
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


def test_no_records_at_all_cannot_be_requested(consumer: Consumer) -> None:
    with pytest.raises(UsageError, match="max_records=0"):
        consumer.poll(SHORT_S, max_records=0)


@pytest.fixture
def lookups() -> TopicLookups:
    return TopicLookups(RETRY_BACKOFF)


def poll(lookups: TopicLookups, now_ms: int = START_MS) -> list[Request]:
    return list(lookups.poll(now_ms).requests)


def topic(name: str, partition_count: int = 1, error_code: int = 0) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=name,
        error_code=error_code,
        partitions=[
            MetadataResponsePartition(partition_index=index, leader_id=1)
            for index in range(partition_count)
        ],
    )


def test_it_requests_of_any_broker_for_all_topics_and_creates_none(lookups: TopicLookups) -> None:
    lookups.start()
    (request,) = poll(lookups)
    assert request.node_id is None
    assert isinstance(request.message, MetadataRequest)
    assert request.message.topics is None
    assert not request.message.allow_auto_topic_creation
    assert poll(lookups) == []


def test_the_response_has_the_topics_that_exist(lookups: TopicLookups) -> None:
    lookup = lookups.start()
    message = MetadataResponse(topics=[topic("a", 2), topic("b", 0, LeaderNotAvailableError.code)])
    poll(lookups)[0].on_response(message, START_MS)
    (info,) = lookup.operation.result()
    assert (info.name, len(info.partitions)) == ("a", 2)
    assert poll(lookups, START_MS + 10_000) == []


def test_a_lost_connection_is_tried_again_after_a_back_off(lookups: TopicLookups) -> None:
    lookup = lookups.start()
    lost = DisconnectedError("gone")
    poll(lookups)[0].on_failure(lost, START_MS)
    assert lookup.attempt.last_error is lost
    assert lookups.poll(START_MS).next_poll_ms == START_MS + RETRY_MS
    poll(lookups, START_MS + RETRY_MS)[0].on_response(
        MetadataResponse(topics=[topic("a")]), START_MS
    )
    assert lookup.operation.is_done


def test_a_response_that_makes_no_sense_ends_it(lookups: TopicLookups) -> None:
    lookup = lookups.start()
    bad = topic("a")
    bad.partitions[0].partition_index = 7
    poll(lookups)[0].on_response(MetadataResponse(topics=[bad]), START_MS)
    assert isinstance(lookup.operation.error, DecodeError)


def test_a_cancelled_lookup_is_not_sent_again(lookups: TopicLookups) -> None:
    lookup = lookups.start()
    (request,) = poll(lookups)
    lookups.cancel(lookup)
    request.on_failure(DisconnectedError("gone"), START_MS)
    assert poll(lookups, START_MS + 10_000) == []
