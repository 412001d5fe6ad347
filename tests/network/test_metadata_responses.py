"""What an answer does to the picture of the cluster, be it sound or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.errors import (
    DecodeError,
    InvalidTopicError,
    UnknownTopicOrPartitionError,
)
from pykclient.network.cluster.cluster import NO_TOPIC_ID
from pykclient.network.cluster.metadata import LAG_MS_MAX
from pykclient.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pykclient.types import Node
from tests.network.answering import answer_checked
from tests.network.metadata_talk import (
    BOOTSTRAP,
    INVALID_TOPIC,
    LEADER_NOT_AVAILABLE,
    LOST,
    MAX_AGE_MS,
    OTHER_ID,
    REBOOTSTRAP_REQUIRED,
    START_MS,
    UNKNOWN_TOPIC,
    ask,
    brokers,
    learn,
    make_metadata,
    told,
    topic,
)

if TYPE_CHECKING:
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.network.cluster.metadata import Metadata


@pytest.fixture
def metadata() -> Metadata:
    return make_metadata()


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


def leader_ids(metadata: Metadata) -> list[int | None]:
    return [p.leader_id for p in metadata.cluster.partitions_for("t") or ()]


def test_a_topic_without_an_id_that_was_made_anew_is_taken_once_no_broker_lags_any_more(
    metadata: Metadata,
) -> None:
    # Kafka 2.4 to 2.7: only that all answers have older epochs, and go on so, tells of it.
    learn(metadata, START_MS, topic(leaders=(2, 2), epoch=5, topic_id=NO_TOPIC_ID))
    anew = topic(leaders=(1, 1), epoch=0, topic_id=NO_TOPIC_ID)
    for after_ms, leaders in ((5_000, [2, 2]), (5_000 + LAG_MS_MAX - 1, [2, 2])):
        metadata.request_update()
        learn(metadata, START_MS + after_ms, anew)
        assert leader_ids(metadata) == leaders
    metadata.request_update()
    learn(metadata, START_MS + 6_000 + LAG_MS_MAX, anew)
    assert leader_ids(metadata) == [1, 1]


def test_one_broker_that_lags_beside_others_makes_no_topic_new(metadata: Metadata) -> None:
    now = topic(leaders=(2,), epoch=5, topic_id=NO_TOPIC_ID)
    lagging = topic(leaders=(1,), epoch=4, topic_id=NO_TOPIC_ID)
    learn(metadata, START_MS, now)
    for turn in range(1, 10):
        metadata.request_update()
        learn(metadata, START_MS + turn * LAG_MS_MAX, lagging if turn % 2 else now)
        assert leader_ids(metadata) == [2]


@pytest.mark.parametrize(("version", "epoch"), [(8, None), (9, 5)])
def test_leader_epochs_of_brokers_before_2_4_do_not_count(
    metadata: Metadata, version: int, epoch: int | None
) -> None:
    request = ask(metadata, START_MS)
    assert request.build is not None
    assert request.build(version) is request.message
    request.on_response(told(topic(epoch=5)), START_MS)
    [partition] = metadata.cluster.partitions_for("t") or ()
    assert partition.leader_epoch == epoch


def test_a_leader_that_is_no_broker_is_asked_about_less_and_less(metadata: Metadata) -> None:
    delays_ms = []
    now_ms = START_MS
    for _ in range(6):
        learn(metadata, now_ms, topic(leaders=(77,), epoch=5))
        delays_ms.append(metadata.next_poll_ms() - now_ms)
        now_ms = metadata.next_poll_ms()
    assert delays_ms == [100, 200, 400, 800, 1_000, 1_000]


def test_who_asks_for_what_brokers_do_not_have_is_slowed_down_and_news_end_that(
    metadata: Metadata,
) -> None:
    delays_ms = []
    now_ms = START_MS
    for turn in range(7):
        learn(metadata, now_ms, topic(leaders=(1,), epoch=int(turn == 5)))
        metadata.request_update()
        delays_ms.append(metadata.next_poll_ms() - now_ms)
        now_ms = metadata.next_poll_ms()
    assert delays_ms == [100, 200, 400, 800, 1_000, 100, 200]
    # Nor does an answer of long ago slow anybody down.
    learn(metadata, now_ms + 60_000, topic(leaders=(1,), epoch=1))
    metadata.request_update()
    assert metadata.next_poll_ms() == now_ms + 60_100


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
    metadata = make_metadata()
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


@pytest.mark.promise(
    "a response that contradicts its request is retried on a new connection, and fails no batch"
)
def test_an_answer_that_leaves_out_a_topic_contradicts_its_request(metadata: Metadata) -> None:
    metadata.set_topics(["a", "b"])
    request = ask(metadata, START_MS)
    error = answer_checked(request, told(topic("a")), START_MS)
    assert "says nothing about topic 'b'" in str(error)
    assert metadata.next_poll_ms() < START_MS + 1_000
    later = ask(metadata, metadata.next_poll_ms())
    assert answer_checked(later, told(topic("a"), topic("b", error_code=3)), START_MS) is None
    assert set(metadata.cluster.topics) == {"a"}
