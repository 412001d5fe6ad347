"""When metadata is asked for, and when that is given up."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest

from pykclient.errors import (
    BrokerError,
    KafkaError,
    UnsupportedVersionError,
)
from pykclient.network.cluster.metadata import NEXT, Metadata, MetadataState
from pykclient.network.manager import NEVER_MS, Request
from pykclient.producer.config import ProducerConfig
from pykclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
)
from pykclient.types import Node
from tests.network.metadata_talk import (
    LEADER_NOT_AVAILABLE,
    LOST,
    MAX_AGE_MS,
    REBOOTSTRAP_REQUIRED,
    START_MS,
    UNSUPPORTED_VERSION,
    ask,
    asked_topics,
    learn,
    make_metadata,
    poll,
    told,
    topic,
)

if TYPE_CHECKING:
    from pykclient.network.cluster.cluster import Cluster


@pytest.fixture
def metadata() -> Metadata:
    return make_metadata()


# When it asks.


def test_the_first_request_is_due_at_once_and_goes_to_any_node(metadata: Metadata) -> None:
    request = ask(metadata, START_MS)
    assert request.node_id is None
    assert asked_topics(request) == []


def test_nothing_is_asked_while_an_answer_is_due(metadata: Metadata) -> None:
    ask(metadata, START_MS)
    metadata.request_update()
    metadata.add_topic("t", START_MS)
    assert metadata.next_poll_ms() == NEVER_MS
    assert poll(metadata, START_MS + 10**9) is None


@pytest.mark.promise("metadata is refreshed by age")
def test_a_good_answer_holds_until_it_is_too_old(metadata: Metadata) -> None:
    learn(metadata, START_MS)
    assert metadata.next_poll_ms() == START_MS + MAX_AGE_MS
    assert poll(metadata, START_MS + MAX_AGE_MS - 1) is None
    ask(metadata, START_MS + MAX_AGE_MS)


@pytest.mark.promise("metadata is refreshed after errors")
def test_an_update_asked_for_waits_for_the_back_off_after_the_last_one(metadata: Metadata) -> None:
    learn(metadata, START_MS)
    metadata.request_update()
    assert poll(metadata, START_MS + 99) is None
    ask(metadata, START_MS + 100)


def test_an_update_asked_for_in_flight_is_made_after_the_answer(metadata: Metadata) -> None:
    # The answer may have been written before that happened which made our picture stale.
    request = ask(metadata, START_MS)
    metadata.request_update()
    request.on_response(told(), START_MS + 10)
    assert metadata.next_poll_ms() == START_MS + 110
    learn(metadata, START_MS + 110)
    assert metadata.next_poll_ms() == START_MS + 110 + MAX_AGE_MS


def test_failures_back_off_more_and_more(metadata: Metadata) -> None:
    now_ms = START_MS
    waits_ms = []
    for _ in range(6):
        ask(metadata, now_ms).on_failure(LOST, now_ms)
        waits_ms.append(metadata.next_poll_ms() - now_ms)
        now_ms = metadata.next_poll_ms()
    assert waits_ms == [100, 200, 400, 800, 1_000, 1_000]
    learn(metadata, now_ms)
    metadata.request_update()
    assert metadata.next_poll_ms() == now_ms + 100


def test_the_last_failure_is_told_until_an_update_succeeds(metadata: Metadata) -> None:
    ask(metadata, START_MS).on_failure(LOST, START_MS)
    assert metadata.last_error is LOST
    learn(metadata, START_MS + 100)
    assert metadata.last_error is None


# Topics.


def test_a_new_topic_is_asked_for_at_once(metadata: Metadata) -> None:
    learn(metadata, START_MS)
    metadata.add_topic("t", START_MS)
    assert metadata.next_poll_ms() <= START_MS
    assert asked_topics(ask(metadata, START_MS)) == ["t"]


def test_a_topic_already_tracked_is_not_asked_for_again(metadata: Metadata) -> None:
    metadata.add_topic("t", START_MS)
    learn(metadata, START_MS, topic())
    metadata.add_topic("t", START_MS + 1)
    assert metadata.next_poll_ms() == START_MS + MAX_AGE_MS


@pytest.mark.parametrize("succeeds", [True, False])
def test_a_topic_added_in_flight_is_asked_for_right_after(
    metadata: Metadata, succeeds: bool
) -> None:
    request = ask(metadata, START_MS)
    metadata.add_topic("t", START_MS)
    if succeeds:
        request.on_response(told(), START_MS + 5)
    else:
        request.on_failure(LOST, START_MS + 5)
    assert asked_topics(ask(metadata, START_MS + 5)) == ["t"]


def test_an_urgent_request_that_fails_backs_off_like_any(metadata: Metadata) -> None:
    metadata.add_topic("t", START_MS)
    ask(metadata, START_MS).on_failure(LOST, START_MS)
    assert metadata.next_poll_ms() == START_MS + 100


def test_a_set_of_topics_replaces_all_others(metadata: Metadata) -> None:
    metadata.add_topic("t", START_MS)
    learn(metadata, START_MS, topic())
    metadata.set_topics(["u", "v"])
    assert asked_topics(ask(metadata, START_MS)) == ["u", "v"]


def test_fewer_topics_are_no_reason_to_ask(metadata: Metadata) -> None:
    metadata.set_topics(["t", "u"])
    learn(metadata, START_MS, topic("t"), topic("u"))
    metadata.set_topics(["u"])
    assert metadata.next_poll_ms() == START_MS + MAX_AGE_MS
    assert asked_topics(ask(metadata, START_MS + MAX_AGE_MS)) == ["u"]


def test_all_topics_are_asked_for_without_creating_any(metadata: Metadata) -> None:
    learn(metadata, START_MS)
    metadata.set_all_topics()
    request = ask(metadata, START_MS)
    assert asked_topics(request) is None
    assert isinstance(request.message, MetadataRequest)
    assert request.message.allow_auto_topic_creation is False
    request.on_response(told(), START_MS)
    metadata.set_all_topics()
    metadata.add_topic("t", START_MS)
    assert metadata.next_poll_ms() == START_MS + MAX_AGE_MS
    metadata.set_topics(["t"])
    assert asked_topics(ask(metadata, START_MS)) == ["t"]


def test_a_topic_that_nobody_names_any_more_is_forgotten() -> None:
    metadata = make_metadata(topic_idle_ms=1_000)
    metadata.add_topic("idle", START_MS)
    metadata.add_topic("used", START_MS)
    learn(metadata, START_MS, topic("idle"), topic("used"))
    metadata.add_topic("used", START_MS + 900)
    metadata.request_update()
    assert asked_topics(ask(metadata, START_MS + 1_001)) == ["used"]


def test_a_set_of_topics_does_not_idle() -> None:
    metadata = make_metadata(topic_idle_ms=1_000)
    metadata.set_topics(["t"])
    assert asked_topics(ask(metadata, START_MS + 10**6)) == ["t"]


# Starting over, and giving up.


def test_a_cluster_may_ask_to_start_over(metadata: Metadata) -> None:
    learn(metadata, START_MS, topic())
    metadata.request_update()
    heard: list[Cluster] = []
    metadata.add_listener(heard.append)
    answer = MetadataResponse(error_code=REBOOTSTRAP_REQUIRED)
    ask(metadata, START_MS + 100).on_response(answer, START_MS + 100)
    assert metadata.cluster.nodes == {}
    assert metadata.cluster.version == 2
    assert heard == [metadata.cluster]
    assert metadata.next_poll_ms() == START_MS + 200


@pytest.mark.parametrize("code", [LEADER_NOT_AVAILABLE, UNSUPPORTED_VERSION])
def test_another_error_of_the_whole_answer_is_a_failure_but_never_fatal(
    metadata: Metadata, code: int
) -> None:
    ask(metadata, START_MS).on_response(MetadataResponse(error_code=code), START_MS)
    assert isinstance(metadata.last_error, BrokerError)
    assert metadata.last_error.code == code
    assert metadata.fatal_error is None
    assert metadata.next_poll_ms() == START_MS + 100


def test_after_failing_for_too_long_it_starts_over_from_the_bootstrap_addresses() -> None:
    metadata = make_metadata(rebootstrap_trigger_ms=5_000)
    learn(metadata, START_MS)
    metadata.request_update()
    ask(metadata, START_MS + 100).on_failure(LOST, START_MS + 200)
    ask(metadata, START_MS + 5_199).on_failure(LOST, START_MS + 5_199)
    assert metadata.cluster.nodes
    ask(metadata, START_MS + 20_000).on_failure(LOST, START_MS + 20_000)
    assert not metadata.cluster.nodes
    # Without a picture there is nothing to drop; with one again, the time counts from then.
    version = metadata.cluster.version
    ask(metadata, START_MS + 40_000).on_response(told(), START_MS + 40_000)
    assert metadata.cluster.version == version + 1
    metadata.request_update()
    ask(metadata, START_MS + 50_000).on_failure(LOST, START_MS + 50_000)
    ask(metadata, START_MS + 54_000)
    assert metadata.cluster.nodes


def test_without_the_trigger_it_keeps_its_picture(metadata: Metadata) -> None:
    learn(metadata, START_MS)
    metadata.request_update()
    ask(metadata, START_MS + 100).on_failure(LOST, START_MS + 100)
    ask(metadata, START_MS + 10**9)
    assert metadata.cluster.nodes


def test_what_is_fatal_is_told_to_listeners_and_the_asking_goes_on(metadata: Metadata) -> None:
    heard: list[KafkaError | None] = []
    metadata.add_listener(lambda _: heard.append(metadata.fatal_error))
    error = UnsupportedVersionError("too old")
    request = ask(metadata, START_MS)
    metadata.on_verdict(error)
    assert heard == [error]
    assert metadata.fatal_since(0) is error
    assert metadata.fatal_since(metadata.fatal_count) is None
    request.on_failure(LOST, START_MS)
    assert metadata.fatal_error is error
    ask(metadata, START_MS + 100).on_response(told(topic()), START_MS + 100)
    assert metadata.fatal_error is None, "a good response ends it"


def test_what_is_fatal_is_raised_once(metadata: Metadata) -> None:
    error = UnsupportedVersionError("too old")
    metadata.on_verdict(error)
    assert metadata.take_fatal_error() is error
    assert metadata.take_fatal_error() is None


# Building it.


@pytest.mark.parametrize(("strategy", "starts_over"), [("rebootstrap", True), ("none", False)])
def test_the_configuration_says_whether_it_starts_over(strategy: str, starts_over: bool) -> None:
    config = ProducerConfig.from_settings(
        bootstrap_servers="a:1,b:2",
        metadata_recovery_strategy=strategy,
        metadata_recovery_rebootstrap_trigger_ms=10,
        retry_backoff_ms=1,
        metadata_max_age_ms=50,
    )
    metadata = Metadata.from_config(config, allow_auto_topic_creation=False)
    assert metadata.bootstrap == (Node(-1, "a", 1), Node(-2, "b", 2))
    learn(metadata, START_MS)
    assert metadata.next_poll_ms() == START_MS + 50
    ask(metadata, START_MS + 50).on_failure(LOST, START_MS + 50)
    request = ask(metadata, START_MS + 1_000)
    assert isinstance(request.message, MetadataRequest)
    assert request.message.allow_auto_topic_creation is False
    assert (not metadata.cluster.nodes) == starts_over


def test_every_state_can_be_left() -> None:
    assert all(NEXT[state] for state in MetadataState)


def test_the_pace_is_bounded_by_the_back_off_whatever_asks() -> None:
    # Everything that managers may ask of it, at random; new topics apart, which are urgent.
    random = Random(3)
    metadata = make_metadata()
    metadata.set_topics(["t"])
    asked_ms = []
    pending: Request | None = None
    for now_ms in range(START_MS, START_MS + 20_000):
        if random.random() < 0.5:
            metadata.request_update()
        if pending is not None and random.random() < 0.2:
            if random.random() < 0.5:
                pending.on_response(told(topic()), now_ms)
            else:
                pending.on_failure(LOST, now_ms)
            pending = None
        request = poll(metadata, now_ms)
        if request is not None:
            asked_ms.append(now_ms)
            pending = request
    assert len(asked_ms) > 20
    assert all(later - earlier >= 100 for earlier, later in pairwise(asked_ms))
