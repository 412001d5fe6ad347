"""Changes that valid and invalid responses make to the snapshot of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.errors import (
    DecodeError,
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
from tests.network.metadata_exchange import (
    INVALID_TOPIC,
    LEADER_NOT_AVAILABLE,
    LOST,
    MAX_AGE_MS,
    OTHER_ID,
    REBOOTSTRAP_REQUIRED,
    START_MS,
    TOPIC_ID,
    UNKNOWN_TOPIC,
    brokers,
    due_request,
    make_metadata,
    metadata_response,
    respond_with,
    topic,
)
from tests.network.responding import respond_checked
from tests.network.scripted_network import BOOTSTRAP

if TYPE_CHECKING:
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.network.cluster.metadata import Metadata


# Valid responses.


def test_a_response_becomes_the_snapshot(metadata: Metadata) -> None:
    respond_with(metadata, START_MS, topic("t", leaders=(1, 2), epoch=4))
    cluster = metadata.cluster
    assert cluster.version == 1
    assert (cluster.cluster_id, cluster.controller_id) == ("c", 1)
    assert list(cluster.nodes) == [1, 2]
    assert [p.leader_id for p in cluster.partitions_for("t") or ()] == [1, 2]


def leader_ids(metadata: Metadata) -> list[int | None]:
    return [p.leader_id for p in metadata.cluster.partitions_for("t") or ()]


@pytest.mark.parametrize(
    ("epoch", "topic_id", "leader"),
    [(4, TOPIC_ID, 2), (5, TOPIC_ID, 1), (6, TOPIC_ID, 1), (-1, TOPIC_ID, 1), (0, OTHER_ID, 1)],
    ids=["older", "same", "newer", "without an epoch", "of a topic made anew"],
)
def test_an_older_leader_epoch_is_not_taken_unless_the_topic_was_made_anew(
    metadata: Metadata, epoch: int, topic_id: bytes, leader: int
) -> None:
    respond_with(metadata, START_MS, topic(leaders=(2, 2), epoch=5))
    before = metadata.cluster
    metadata.request_update()
    respond_with(metadata, START_MS + 100, topic(leaders=(1, 1), epoch=epoch, topic_id=topic_id))
    assert leader_ids(metadata) == [leader, leader]
    assert metadata.cluster.version == before.version + 1
    assert [p.leader_id for p in before.partitions_for("t") or ()] == [2, 2]


def test_a_topic_without_an_id_that_was_made_anew_is_taken_once_no_broker_lags_any_more(
    metadata: Metadata,
) -> None:
    # Kafka 2.4 to 2.7: the only sign is that all further responses have older epochs.
    respond_with(metadata, START_MS, topic(leaders=(2, 2), epoch=5, topic_id=NO_TOPIC_ID))
    anew = topic(leaders=(1, 1), epoch=0, topic_id=NO_TOPIC_ID)
    for after_ms, leaders in ((5_000, [2, 2]), (5_000 + LAG_MS_MAX - 1, [2, 2])):
        metadata.request_update()
        respond_with(metadata, START_MS + after_ms, anew)
        assert leader_ids(metadata) == leaders
    metadata.request_update()
    respond_with(metadata, START_MS + 6_000 + LAG_MS_MAX, anew)
    assert leader_ids(metadata) == [1, 1]


def test_one_broker_that_lags_beside_others_makes_no_topic_new(metadata: Metadata) -> None:
    now = topic(leaders=(2,), epoch=5, topic_id=NO_TOPIC_ID)
    lagging = topic(leaders=(1,), epoch=4, topic_id=NO_TOPIC_ID)
    respond_with(metadata, START_MS, now)
    for turn in range(1, 10):
        metadata.request_update()
        respond_with(metadata, START_MS + turn * LAG_MS_MAX, lagging if turn % 2 else now)
        assert leader_ids(metadata) == [2]


@pytest.mark.parametrize(("version", "epoch"), [(8, None), (9, 5)])
def test_leader_epochs_of_brokers_before_2_4_do_not_count(
    metadata: Metadata, version: int, epoch: int | None
) -> None:
    request = due_request(metadata, START_MS)
    assert request.build is not None
    assert request.build(version) is request.message
    request.on_response(metadata_response(topic(epoch=5)), START_MS)
    [partition] = metadata.cluster.partitions_for("t") or ()
    assert partition.leader_epoch == epoch


def test_a_leader_that_is_no_broker_is_looked_up_less_and_less(metadata: Metadata) -> None:
    delays_ms = []
    now_ms = START_MS
    for _ in range(6):
        respond_with(metadata, now_ms, topic(leaders=(77,), epoch=5))
        delays_ms.append(metadata.next_poll_ms() - now_ms)
        now_ms = metadata.next_poll_ms()
    assert delays_ms == [100, 200, 400, 800, 1_000, 1_000]


def test_requests_for_what_brokers_do_not_have_slow_down_and_news_end_that(
    metadata: Metadata,
) -> None:
    delays_ms = []
    now_ms = START_MS
    for turn in range(7):
        respond_with(metadata, now_ms, topic(leaders=(1,), epoch=int(turn == 5)))
        metadata.request_update()
        delays_ms.append(metadata.next_poll_ms() - now_ms)
        now_ms = metadata.next_poll_ms()
    assert delays_ms == [100, 200, 400, 800, 1_000, 100, 200]
    # An old response does not delay a request either.
    respond_with(metadata, now_ms + 60_000, topic(leaders=(1,), epoch=1))
    metadata.request_update()
    assert metadata.next_poll_ms() == now_ms + 60_100


@pytest.mark.parametrize("count", [1, 3])
def test_the_number_of_partitions_is_that_of_the_response(metadata: Metadata, count: int) -> None:
    respond_with(metadata, START_MS, topic(leaders=(2, 2), epoch=5))
    metadata.request_update()
    respond_with(metadata, START_MS + 100, topic(leaders=(1,) * count, epoch=4))
    infos = metadata.cluster.partitions_for("t") or ()
    assert [p.leader_id for p in infos] == [2, 2, 1][:count]


def test_a_partition_without_a_leader_is_requested_again(metadata: Metadata) -> None:
    respond_with(metadata, START_MS, topic(leaders=(1, -1)))
    assert metadata.next_poll_ms() == START_MS + 100
    respond_with(metadata, START_MS + 100, topic(leaders=(1, -1)))
    assert metadata.next_poll_ms() == START_MS + 300


@pytest.mark.parametrize(
    ("code", "due_ms"),
    [(UNKNOWN_TOPIC, 100), (LEADER_NOT_AVAILABLE, 100), (INVALID_TOPIC, MAX_AGE_MS)],
)
def test_a_topic_error_is_kept_and_leads_to_another_request_if_it_may_pass(
    metadata: Metadata, code: int, due_ms: int
) -> None:
    respond_with(metadata, START_MS, topic(error_code=code))
    assert metadata.cluster.topic_errors["t"].code == code
    assert "'t'" in str(metadata.cluster.topic_errors["t"])
    assert metadata.next_poll_ms() == START_MS + due_ms


def test_a_topic_error_goes_when_the_topic_comes(metadata: Metadata) -> None:
    respond_with(metadata, START_MS, topic(error_code=UNKNOWN_TOPIC))
    assert isinstance(metadata.cluster.topic_errors["t"], UnknownTopicOrPartitionError)
    respond_with(metadata, START_MS + 100, topic())
    assert metadata.cluster.topic_errors == {}
    assert metadata.cluster.partitions_for("t")


def test_a_controller_that_is_not_known_is_none(metadata: Metadata) -> None:
    response = metadata_response()
    response.controller_id = -1
    due_request(metadata, START_MS).on_response(response, START_MS)
    assert metadata.cluster.controller_id is None


def test_listeners_get_each_new_snapshot(metadata: Metadata) -> None:
    received: list[Cluster] = []
    metadata.add_listener(received.append)
    respond_with(metadata, START_MS, topic())
    assert received == [metadata.cluster]
    metadata.request_update()
    due_request(metadata, START_MS + 100).on_failure(LOST, START_MS + 100)
    assert len(received) == 1
    respond_with(metadata, START_MS + 300)
    assert received[1:] == [metadata.cluster]


# Nodes.


def test_nodes_are_found_by_id_and_bootstrap_addresses_by_negative_id(metadata: Metadata) -> None:
    assert metadata.node(1) is None
    respond_with(metadata, START_MS)
    assert metadata.node(1) == Node(1, "broker-1", 9092)
    assert [metadata.node(node_id) for node_id in (-1, -2, -3)] == list(BOOTSTRAP)
    assert metadata.node(-4) is None
    assert metadata.node(0) is None


# Invalid responses.


def test_a_broker_that_cannot_be_connected_to_is_refused(metadata: Metadata) -> None:
    before = metadata.cluster
    broker = MetadataResponseBroker(node_id=1, host="a\nERROR forged", port=9092)
    due_request(metadata, START_MS).on_response(MetadataResponse(brokers=[broker]), START_MS)
    assert metadata.cluster is before
    assert isinstance(metadata.last_error, DecodeError)
    assert "broker 1 is at host" in str(metadata.last_error)
    assert "\n" not in str(metadata.last_error)
    assert metadata.next_poll_ms() == START_MS + 100


@pytest.mark.parametrize("bad", [topic(name=None), topic(leaders=())])
def test_a_topic_that_cannot_be_leaves_the_snapshot_as_it_was(
    metadata: Metadata, bad: MetadataResponseTopic
) -> None:
    respond_with(metadata, START_MS, topic("t"))
    before = metadata.cluster
    bad.partitions = [MetadataResponsePartition(partition_index=7)]
    metadata.request_update()
    respond_with(metadata, START_MS + 100, topic("t", leaders=(2,), epoch=1), bad)
    assert metadata.cluster is before
    assert isinstance(metadata.last_error, DecodeError)


def test_names_listed_twice_count_once(metadata: Metadata) -> None:
    response = metadata_response(topic("t", leaders=(1,)), topic("t", leaders=(2,)))
    response.brokers += brokers(1)
    due_request(metadata, START_MS).on_response(response, START_MS)
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
def test_whatever_brokers_send_the_snapshot_stays_sound_and_the_pace_bounded(
    responses: list[MetadataResponse],
) -> None:
    metadata = make_metadata()
    now_ms = START_MS
    for response in responses:
        due_request(metadata, now_ms).on_response(response, now_ms)
        assert now_ms + 100 <= metadata.next_poll_ms() <= now_ms + MAX_AGE_MS
        assert metadata.fatal_error is None
        for info in metadata.cluster.topics.values():
            assert [p.partition for p in info.partitions] == list(range(len(info.partitions)))
        for node in metadata.cluster.nodes.values():
            assert node.id >= 0
            assert node.host
            assert 0 < node.port < 65_536
        now_ms = metadata.next_poll_ms()


def test_a_response_that_leaves_out_a_topic_contradicts_its_request(metadata: Metadata) -> None:
    metadata.set_topics(["a", "b"])
    request = due_request(metadata, START_MS)
    error = respond_checked(request, metadata_response(topic("a")), START_MS)
    assert "lacks topic 'b'" in str(error)
    assert metadata.next_poll_ms() < START_MS + 1_000
    later = due_request(metadata, metadata.next_poll_ms())
    assert (
        respond_checked(later, metadata_response(topic("a"), topic("b", error_code=3)), START_MS)
        is None
    )
    assert set(metadata.cluster.topics) == {"a"}
