"""When metadata is asked for, and what an answer does to the picture of the cluster."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.errors import (
    BrokerError,
    DecodeError,
    DisconnectedError,
    InvalidTopicError,
    KafkaError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from pykclient.network.backoff import Backoff
from pykclient.network.manager import NEVER_MS, Request
from pykclient.network.metadata import NEXT, Metadata, MetadataState
from pykclient.producer.config import ProducerConfig
from pykclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pykclient.types import Node

if TYPE_CHECKING:
    from pykclient.network.cluster import Cluster

BOOTSTRAP = (Node(-1, "boot-a", 9092), Node(-2, "boot-b", 9092))
START_MS = 1_000_000
MAX_AGE_MS = 300_000
TOPIC_ID, OTHER_ID = bytes(15) + b"1", bytes(15) + b"2"
UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, INVALID_TOPIC = 3, 5, 17
UNSUPPORTED_VERSION, REBOOTSTRAP_REQUIRED = 35, 129
LOST = DisconnectedError("the broker went away")


def make(
    *, topic_idle_ms: int | None = None, rebootstrap_trigger_ms: int | None = None
) -> Metadata:
    return Metadata(
        bootstrap=BOOTSTRAP,
        refresh_backoff=Backoff(100, 1_000, jitter=0),
        max_age_ms=MAX_AGE_MS,
        allow_auto_topic_creation=True,
        topic_idle_ms=topic_idle_ms,
        rebootstrap_trigger_ms=rebootstrap_trigger_ms,
    )


@pytest.fixture
def metadata() -> Metadata:
    return make()


def poll(metadata: Metadata, now_ms: int) -> Request | None:
    """Ask it, as the engine does, and check that it tells the same by `next_poll_ms`."""
    is_due = metadata.next_poll_ms() <= now_ms
    result = metadata.poll(now_ms)
    assert len(result.requests) == is_due
    return result.requests[0] if result.requests else None


def ask(metadata: Metadata, now_ms: int) -> Request:
    request = poll(metadata, now_ms)
    assert request is not None
    return request


def asked_topics(request: Request) -> list[str | None] | None:
    assert isinstance(request.message, MetadataRequest)
    topics = request.message.topics
    return None if topics is None else [topic.name for topic in topics]


def brokers(*ids: int) -> list[MetadataResponseBroker]:
    return [MetadataResponseBroker(node_id=n, host=f"broker-{n}", port=9092) for n in ids]


def topic(
    name: str | None = "t",
    *,
    leaders: tuple[int, ...] = (1,),
    epoch: int = 0,
    topic_id: bytes = TOPIC_ID,
    error_code: int = 0,
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=name,
        topic_id=topic_id,
        error_code=error_code,
        partitions=[
            MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch)
            for index, leader in enumerate(leaders)
        ],
    )


def told(*topics: MetadataResponseTopic) -> MetadataResponse:
    return MetadataResponse(
        cluster_id="c", controller_id=1, brokers=brokers(1, 2), topics=list(topics)
    )


def learn(metadata: Metadata, now_ms: int, *topics: MetadataResponseTopic) -> None:
    ask(metadata, now_ms).on_response(told(*topics), now_ms)


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


def test_a_good_answer_holds_until_it_is_too_old(metadata: Metadata) -> None:
    learn(metadata, START_MS)
    assert metadata.next_poll_ms() == START_MS + MAX_AGE_MS
    assert poll(metadata, START_MS + MAX_AGE_MS - 1) is None
    ask(metadata, START_MS + MAX_AGE_MS)


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
    metadata = make(topic_idle_ms=1_000)
    metadata.add_topic("idle", START_MS)
    metadata.add_topic("used", START_MS)
    learn(metadata, START_MS, topic("idle"), topic("used"))
    metadata.add_topic("used", START_MS + 900)
    metadata.request_update()
    assert asked_topics(ask(metadata, START_MS + 1_001)) == ["used"]


def test_a_set_of_topics_does_not_idle() -> None:
    metadata = make(topic_idle_ms=1_000)
    metadata.set_topics(["t"])
    assert asked_topics(ask(metadata, START_MS + 10**6)) == ["t"]


# What an answer does.


def test_an_answer_becomes_the_picture(metadata: Metadata) -> None:
    learn(metadata, START_MS, topic("t", leaders=(1, 2), epoch=4))
    cluster = metadata.cluster
    assert cluster.version == 1
    assert (cluster.cluster_id, cluster.controller_id) == ("c", 1)
    assert list(cluster.nodes) == [1, 2]
    assert [p.leader_id for p in cluster.partitions_for("t") or ()] == [1, 2]


def test_a_picture_handed_out_stays_as_it_was(metadata: Metadata) -> None:
    learn(metadata, START_MS, topic())
    before = metadata.cluster
    metadata.request_update()
    learn(metadata, START_MS + 100, topic(leaders=(2,), epoch=1))
    assert before.partitions_for("t") != metadata.cluster.partitions_for("t")
    assert (before.version, metadata.cluster.version) == (1, 2)


def test_an_older_leader_epoch_does_not_take_us_back(metadata: Metadata) -> None:
    learn(metadata, START_MS, topic(leaders=(2, 2), epoch=5))
    metadata.request_update()
    learn(metadata, START_MS + 100, topic(leaders=(1, 1), epoch=4))
    assert [p.leader_id for p in metadata.cluster.partitions_for("t") or ()] == [2, 2]


@pytest.mark.parametrize("epoch", [5, 6])
def test_the_same_or_a_newer_leader_epoch_is_taken(metadata: Metadata, epoch: int) -> None:
    learn(metadata, START_MS, topic(leaders=(2,), epoch=5))
    metadata.request_update()
    learn(metadata, START_MS + 100, topic(leaders=(1,), epoch=epoch))
    assert [p.leader_id for p in metadata.cluster.partitions_for("t") or ()] == [1]


def test_a_broker_that_tells_no_epoch_is_believed(metadata: Metadata) -> None:
    learn(metadata, START_MS, topic(leaders=(2,), epoch=5))
    metadata.request_update()
    learn(metadata, START_MS + 100, topic(leaders=(1,), epoch=-1))
    assert [p.leader_id for p in metadata.cluster.partitions_for("t") or ()] == [1]


def test_a_topic_made_anew_begins_its_epochs_again(metadata: Metadata) -> None:
    learn(metadata, START_MS, topic(leaders=(2,), epoch=5))
    metadata.request_update()
    learn(metadata, START_MS + 100, topic(leaders=(1,), epoch=0, topic_id=OTHER_ID))
    assert [p.leader_id for p in metadata.cluster.partitions_for("t") or ()] == [1]


@pytest.mark.parametrize("count", [1, 3])
def test_the_number_of_partitions_is_the_answers(metadata: Metadata, count: int) -> None:
    learn(metadata, START_MS, topic(leaders=(2, 2), epoch=5))
    metadata.request_update()
    learn(metadata, START_MS + 100, topic(leaders=(1,) * count, epoch=4))
    infos = metadata.cluster.partitions_for("t") or ()
    assert [p.leader_id for p in infos] == [2, 2, 1][:count]


def test_a_partition_without_a_leader_is_asked_for_again(metadata: Metadata) -> None:
    learn(metadata, START_MS, topic(leaders=(1, -1)))
    assert metadata.next_poll_ms() == START_MS + 100
    learn(metadata, START_MS + 100, topic(leaders=(1, -1)))
    assert metadata.next_poll_ms() == START_MS + 300


@pytest.mark.parametrize("code", [UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE])
def test_a_topic_error_that_may_pass_is_told_and_asked_about_again(
    metadata: Metadata, code: int
) -> None:
    learn(metadata, START_MS, topic(error_code=code))
    assert metadata.cluster.topic_errors["t"].code == code
    assert "'t'" in str(metadata.cluster.topic_errors["t"])
    assert metadata.next_poll_ms() == START_MS + 100


def test_a_topic_error_that_stays_is_told_and_left_alone(metadata: Metadata) -> None:
    learn(metadata, START_MS, topic(error_code=INVALID_TOPIC))
    assert isinstance(metadata.cluster.topic_errors["t"], InvalidTopicError)
    assert metadata.next_poll_ms() == START_MS + MAX_AGE_MS


def test_a_topic_error_goes_when_the_topic_comes(metadata: Metadata) -> None:
    learn(metadata, START_MS, topic(error_code=UNKNOWN_TOPIC))
    assert isinstance(metadata.cluster.topic_errors["t"], UnknownTopicOrPartitionError)
    learn(metadata, START_MS + 100, topic())
    assert metadata.cluster.topic_errors == {}
    assert metadata.cluster.partitions_for("t")


def test_a_controller_that_is_not_known_is_none(metadata: Metadata) -> None:
    answer = told()
    answer.controller_id = -1
    ask(metadata, START_MS).on_response(answer, START_MS)
    assert metadata.cluster.controller_id is None


def test_listeners_hear_each_new_picture(metadata: Metadata) -> None:
    heard: list[Cluster] = []
    metadata.add_listener(heard.append)
    learn(metadata, START_MS, topic())
    assert heard == [metadata.cluster]
    metadata.request_update()
    ask(metadata, START_MS + 100).on_failure(LOST, START_MS + 100)
    assert len(heard) == 1
    learn(metadata, START_MS + 300)
    assert heard[1:] == [metadata.cluster]


# Nodes.


def test_nodes_are_found_by_id_and_bootstrap_addresses_by_negative_id(metadata: Metadata) -> None:
    assert metadata.node(1) is None
    learn(metadata, START_MS)
    assert metadata.node(1) == Node(1, "broker-1", 9092)
    assert [metadata.node(node_id) for node_id in (-1, -2)] == list(BOOTSTRAP)
    assert metadata.node(-3) is None
    assert metadata.node(0) is None


# Answers that cannot be.


@pytest.mark.parametrize(
    "broker",
    [
        MetadataResponseBroker(node_id=-1, host="broker", port=9092),
        MetadataResponseBroker(node_id=1, host="", port=9092),
        MetadataResponseBroker(node_id=1, host="a" * 254, port=9092),
        MetadataResponseBroker(node_id=1, host="a b", port=9092),
        MetadataResponseBroker(node_id=1, host="a\x00b", port=9092),
        MetadataResponseBroker(node_id=1, host="a\nERROR forged", port=9092),
        MetadataResponseBroker(node_id=1, host="broker", port=0),
        MetadataResponseBroker(node_id=1, host="broker", port=-1),
        MetadataResponseBroker(node_id=1, host="broker", port=65_536),
    ],
    ids=lambda broker: f"{broker.node_id}@{broker.host[:5]!r}:{broker.port}",
)
def test_a_broker_that_cannot_be_connected_to_is_refused(
    metadata: Metadata, broker: MetadataResponseBroker
) -> None:
    before = metadata.cluster
    ask(metadata, START_MS).on_response(MetadataResponse(brokers=[broker]), START_MS)
    assert metadata.cluster is before
    assert isinstance(metadata.last_error, DecodeError)
    assert f"broker {broker.node_id} is at host" in str(metadata.last_error)
    assert "advertised.listeners" in str(metadata.last_error)
    assert "\n" not in str(metadata.last_error)
    assert metadata.next_poll_ms() == START_MS + 100


@pytest.mark.parametrize("bad", [topic(name=None), topic(leaders=())])
def test_a_topic_that_cannot_be_leaves_the_picture_as_it_was(
    metadata: Metadata, bad: MetadataResponseTopic
) -> None:
    learn(metadata, START_MS, topic("t"))
    before = metadata.cluster
    bad.partitions = [MetadataResponsePartition(partition_index=7)]
    metadata.request_update()
    learn(metadata, START_MS + 100, topic("t", leaders=(2,), epoch=1), bad)
    assert metadata.cluster is before
    assert isinstance(metadata.last_error, DecodeError)


def test_names_told_twice_count_once(metadata: Metadata) -> None:
    answer = told(topic("t", leaders=(1,)), topic("t", leaders=(2,)))
    answer.brokers += brokers(1)
    ask(metadata, START_MS).on_response(answer, START_MS)
    assert list(metadata.cluster.nodes) == [1, 2]
    assert list(metadata.cluster.topics) == ["t"]


INT32 = st.integers(-(2**31), 2**31 - 1)
HOSTILE = st.builds(
    MetadataResponse,
    error_code=st.sampled_from([0, 0, 0, 35, REBOOTSTRAP_REQUIRED, -1, 9_999]),
    controller_id=INT32,
    brokers=st.lists(
        st.builds(MetadataResponseBroker, node_id=INT32, host=st.text(max_size=5), port=INT32)
        | st.builds(
            MetadataResponseBroker, node_id=st.integers(0, 3), host=st.just("h"), port=st.just(1)
        ),
        max_size=3,
    ),
    topics=st.lists(
        st.builds(
            MetadataResponseTopic,
            name=st.none() | st.text(max_size=3),
            error_code=st.sampled_from([0, 0, 3, 17, -1, 9_999]),
            topic_id=st.binary(min_size=16, max_size=16),
            partitions=st.lists(
                st.builds(
                    MetadataResponsePartition,
                    partition_index=INT32 | st.integers(0, 2),
                    leader_id=INT32,
                    leader_epoch=INT32,
                ),
                max_size=3,
            ),
        ),
        max_size=3,
    ),
)


@given(st.lists(HOSTILE, min_size=1, max_size=8))
def test_whatever_brokers_answer_the_picture_stays_sound_and_the_pace_bounded(
    answers: list[MetadataResponse],
) -> None:
    metadata = make()
    now_ms = START_MS
    for answer in answers:
        ask(metadata, now_ms).on_response(answer, now_ms)
        assert now_ms + 100 <= metadata.next_poll_ms() <= now_ms + MAX_AGE_MS
        assert metadata.fatal_error is None
        for info in metadata.cluster.topics.values():
            assert [p.partition for p in info.partitions] == list(range(len(info.partitions)))
        for node in metadata.cluster.nodes.values():
            assert node.id >= 0
            assert node.host
            assert 0 < node.port < 65_536
        now_ms = metadata.next_poll_ms()


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
    metadata = make(rebootstrap_trigger_ms=5_000)
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


def test_what_is_fatal_is_told_to_listeners_and_ends_the_asking(metadata: Metadata) -> None:
    heard: list[KafkaError | None] = []
    metadata.add_listener(lambda _: heard.append(metadata.fatal_error))
    error = UnsupportedVersionError("too old")
    ask(metadata, START_MS).on_failure(error, START_MS)
    assert metadata.fatal_error is error
    assert heard == [error]
    metadata.request_update()
    metadata.add_topic("t", START_MS)
    assert poll(metadata, START_MS + 10**9) is None


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


def test_only_the_failed_state_cannot_be_left() -> None:
    assert {state for state, after in NEXT.items() if not after} == {MetadataState.FAILED}


def test_the_pace_is_bounded_by_the_back_off_whatever_asks() -> None:
    # Everything that managers may ask of it, at random; new topics apart, which are urgent.
    random = Random(3)
    metadata = make()
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
