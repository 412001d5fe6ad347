"""When metadata is requested, and when the request times out."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest

from pykclient.errors import (
    BrokerError,
    KafkaError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from pykclient.network.manager import NEVER_MS, Request
from pykclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
)
from tests.network.metadata_exchange import (
    LEADER_NOT_AVAILABLE,
    LOST,
    MAX_AGE_MS,
    OTHER_ID,
    REBOOTSTRAP_REQUIRED,
    START_MS,
    UNSUPPORTED_VERSION,
    due_request,
    make_metadata,
    metadata_response,
    poll,
    requested_topics,
    respond_with,
    topic,
)

if TYPE_CHECKING:
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.network.cluster.metadata import Metadata


# When a request is due.


def test_the_first_request_is_due_at_once_and_goes_to_any_node(metadata: Metadata) -> None:
    request = due_request(metadata, START_MS)
    assert request.node_id is None
    assert requested_topics(request) == []


def test_nothing_is_requested_while_a_response_is_due(metadata: Metadata) -> None:
    due_request(metadata, START_MS)
    metadata.request_update()
    metadata.add_topic("t", START_MS)
    assert metadata.next_poll_ms() == NEVER_MS
    assert poll(metadata, START_MS + 10**9) is None


def test_a_good_response_holds_until_it_is_too_old(metadata: Metadata) -> None:
    respond_with(metadata, START_MS)
    assert metadata.next_poll_ms() == START_MS + MAX_AGE_MS
    assert poll(metadata, START_MS + MAX_AGE_MS - 1) is None
    due_request(metadata, START_MS + MAX_AGE_MS)


def test_an_update_requested_waits_for_the_back_off_after_the_last_one(metadata: Metadata) -> None:
    respond_with(metadata, START_MS)
    metadata.request_update()
    assert poll(metadata, START_MS + 99) is None
    due_request(metadata, START_MS + 100)


def test_an_update_requested_in_flight_is_made_after_the_response(metadata: Metadata) -> None:
    # The response may be older than the event that made our snapshot stale.
    request = due_request(metadata, START_MS)
    metadata.request_update()
    request.on_response(metadata_response(), START_MS + 10)
    assert metadata.next_poll_ms() == START_MS + 110
    respond_with(metadata, START_MS + 110)
    assert metadata.next_poll_ms() == START_MS + 110 + MAX_AGE_MS


def test_failures_back_off_more_and_more(metadata: Metadata) -> None:
    now_ms = START_MS
    waits_ms = []
    for _ in range(6):
        due_request(metadata, now_ms).on_failure(LOST, now_ms)
        waits_ms.append(metadata.next_poll_ms() - now_ms)
        now_ms = metadata.next_poll_ms()
    assert waits_ms == [100, 200, 400, 800, 1_000, 1_000]
    respond_with(metadata, now_ms)
    metadata.request_update()
    assert metadata.next_poll_ms() == now_ms + 100


def test_the_last_failure_is_reported_until_an_update_succeeds(metadata: Metadata) -> None:
    due_request(metadata, START_MS).on_failure(LOST, START_MS)
    assert metadata.last_error is LOST
    respond_with(metadata, START_MS + 100)
    assert metadata.last_error is None


# Topics.


def test_a_new_topic_is_requested_at_once(metadata: Metadata) -> None:
    respond_with(metadata, START_MS)
    metadata.add_topic("t", START_MS)
    assert metadata.next_poll_ms() <= START_MS
    assert requested_topics(due_request(metadata, START_MS)) == ["t"]


def test_a_topic_already_tracked_is_not_requested_again(metadata: Metadata) -> None:
    metadata.add_topic("t", START_MS)
    respond_with(metadata, START_MS, topic())
    metadata.add_topic("t", START_MS + 1)
    assert metadata.next_poll_ms() == START_MS + MAX_AGE_MS


@pytest.mark.parametrize("succeeds", [True, False])
def test_a_topic_added_in_flight_is_requested_right_after(
    metadata: Metadata, succeeds: bool
) -> None:
    request = due_request(metadata, START_MS)
    metadata.add_topic("t", START_MS)
    if succeeds:
        request.on_response(metadata_response(), START_MS + 5)
    else:
        request.on_failure(LOST, START_MS + 5)
    assert requested_topics(due_request(metadata, START_MS + 5)) == ["t"]


def test_fewer_topics_are_no_reason_for_a_request(metadata: Metadata) -> None:
    metadata.set_topics(["t", "u"])
    respond_with(metadata, START_MS, topic("t"), topic("u"))
    metadata.set_topics(["u"])
    assert metadata.next_poll_ms() == START_MS + MAX_AGE_MS
    assert requested_topics(due_request(metadata, START_MS + MAX_AGE_MS)) == ["u"]


def test_all_topics_are_requested_without_creating_any(metadata: Metadata) -> None:
    respond_with(metadata, START_MS)
    metadata.set_all_topics(list)
    request = due_request(metadata, START_MS)
    assert requested_topics(request) is None
    assert isinstance(request.message, MetadataRequest)
    assert request.message.allow_auto_topic_creation is False
    request.on_response(metadata_response(), START_MS)
    metadata.set_all_topics(list)
    metadata.add_topic("t", START_MS)
    assert metadata.next_poll_ms() == START_MS + MAX_AGE_MS
    metadata.set_topics(["t"])
    assert requested_topics(due_request(metadata, START_MS)) == ["t"]


def test_of_all_topics_only_those_that_are_used_are_waited_for(metadata: Metadata) -> None:
    """In a large cluster some partition may have no leader for weeks."""
    used: list[str] = []
    metadata.set_all_topics(lambda: used)
    leaderless = [
        topic("elsewhere", leaders=(-1,), topic_id=OTHER_ID),
        topic("new", error_code=LEADER_NOT_AVAILABLE),
    ]
    respond_with(metadata, START_MS, topic("t"), *leaderless)
    assert metadata.next_poll_ms() == START_MS + MAX_AGE_MS
    for name in ("elsewhere", "new"):
        used[:] = [name]
        metadata.request_update()
        now_ms = metadata.next_poll_ms()
        respond_with(metadata, now_ms, topic("t"), *leaderless)
        assert metadata.next_poll_ms() <= now_ms + 1_000


def test_a_topic_that_is_not_named_any_more_is_forgotten() -> None:
    metadata = make_metadata(topic_idle_ms=1_000)
    metadata.add_topic("idle", START_MS)
    metadata.add_topic("used", START_MS)
    respond_with(metadata, START_MS, topic("idle"), topic("used"))
    metadata.add_topic("used", START_MS + 900)
    metadata.request_update()
    assert requested_topics(due_request(metadata, START_MS + 1_001)) == ["used"]


def test_a_set_of_topics_does_not_idle() -> None:
    metadata = make_metadata(topic_idle_ms=1_000)
    metadata.set_topics(["t"])
    assert requested_topics(due_request(metadata, START_MS + 10**6)) == ["t"]


# Rebootstrap, and failure.


def test_a_cluster_may_have_it_start_over(metadata: Metadata) -> None:
    respond_with(metadata, START_MS, topic())
    metadata.request_update()
    received: list[Cluster] = []
    metadata.add_listener(received.append)
    response = MetadataResponse(error_code=REBOOTSTRAP_REQUIRED)
    due_request(metadata, START_MS + 100).on_response(response, START_MS + 100)
    assert metadata.cluster.nodes == {}
    assert metadata.cluster.version == 2
    assert received == [metadata.cluster]
    assert metadata.next_poll_ms() == START_MS + 200


@pytest.mark.parametrize("code", [LEADER_NOT_AVAILABLE, UNSUPPORTED_VERSION])
def test_another_error_of_the_whole_response_is_a_failure_but_never_fatal(
    metadata: Metadata, code: int
) -> None:
    due_request(metadata, START_MS).on_response(MetadataResponse(error_code=code), START_MS)
    assert isinstance(metadata.last_error, BrokerError)
    assert metadata.last_error.code == code
    assert metadata.fatal_error is None
    assert metadata.next_poll_ms() == START_MS + 100


def test_after_failing_for_too_long_it_starts_over_from_the_bootstrap_addresses() -> None:
    metadata = make_metadata(metadata_recovery_rebootstrap_trigger_ms=5_000)
    respond_with(metadata, START_MS)
    metadata.request_update()
    due_request(metadata, START_MS + 100).on_failure(LOST, START_MS + 200)
    due_request(metadata, START_MS + 5_199).on_failure(LOST, START_MS + 5_199)
    assert metadata.cluster.nodes
    due_request(metadata, START_MS + 20_000).on_failure(LOST, START_MS + 20_000)
    assert not metadata.cluster.nodes
    # Without a snapshot there is nothing to drop; with the next one, the time restarts.
    version = metadata.cluster.version
    due_request(metadata, START_MS + 40_000).on_response(metadata_response(), START_MS + 40_000)
    assert metadata.cluster.version == version + 1
    metadata.request_update()
    due_request(metadata, START_MS + 50_000).on_failure(LOST, START_MS + 50_000)
    due_request(metadata, START_MS + 54_000)
    assert metadata.cluster.nodes


def test_without_that_strategy_it_keeps_its_snapshot() -> None:
    metadata = make_metadata(
        metadata_recovery_strategy="none", metadata_recovery_rebootstrap_trigger_ms=5_000
    )
    respond_with(metadata, START_MS)
    metadata.request_update()
    due_request(metadata, START_MS + 100).on_failure(LOST, START_MS + 100)
    due_request(metadata, START_MS + 10**9)
    assert metadata.cluster.nodes


def test_what_is_fatal_is_reported_to_listeners_and_requests_go_on(metadata: Metadata) -> None:
    received: list[KafkaError | None] = []
    metadata.add_listener(lambda _: received.append(metadata.fatal_error))
    error = UnsupportedVersionError("too old")
    request = due_request(metadata, START_MS)
    metadata.on_verdict(error)
    assert received == [error]
    assert repr(metadata.fatal_since(0)) == repr(error)
    assert metadata.fatal_since(metadata.fatal_count) is None
    request.on_failure(LOST, START_MS)
    assert metadata.fatal_error is error
    due_request(metadata, START_MS + 100).on_response(metadata_response(topic()), START_MS + 100)
    assert metadata.take_fatal_error() is None, "a good response ends it"
    metadata.on_verdict(error)
    assert repr(metadata.take_fatal_error()) == repr(error)
    assert metadata.take_fatal_error() is None, "it is raised once"


def test_the_pace_is_bounded_by_the_back_off_whatever_is_wanted() -> None:
    # Random calls of managers, except for new topics, which are urgent.
    random = Random(3)
    metadata = make_metadata()
    metadata.set_topics(["t"])
    requested_ms = []
    pending: Request | None = None
    for now_ms in range(START_MS, START_MS + 20_000):
        if random.random() < 0.5:
            metadata.request_update()
        if pending is not None and random.random() < 0.2:
            if random.random() < 0.5:
                pending.on_response(metadata_response(topic()), now_ms)
            else:
                pending.on_failure(LOST, now_ms)
            pending = None
        request = poll(metadata, now_ms)
        if request is not None:
            requested_ms.append(now_ms)
            pending = request
    assert len(requested_ms) > 20
    assert all(later - earlier >= 100 for earlier, later in pairwise(requested_ms))


def test_a_topic_that_did_not_exist_is_logged_with_its_partitions_once_it_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "pykclient.network")
    metadata = make_metadata()
    metadata.set_topics(["t"])
    absent = topic(error_code=UnknownTopicOrPartitionError.code)
    for number, found in enumerate((absent, topic(), topic())):
        respond_with(metadata, START_MS + number * MAX_AGE_MS, found)
    [line] = [record.getMessage() for record in caplog.records if "exist" in record.msg]
    assert line.startswith("topic 't' did not exist and now has 1 partitions; brokers create")
