"""The brokers together: replicas and acknowledgements, delayed fetches, sessions, faults."""

from __future__ import annotations

import pytest

from pykclient.errors import UsageError
from pykclient.errors.broker import (
    FencedLeaderEpochError,
    FetchSessionIdNotFoundError,
    InvalidConfigError,
    InvalidFetchSessionEpochError,
    InvalidTopicError,
    KafkaStorageError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    UnknownLeaderEpochError,
)
from pykclient.protocol.api_keys import ApiKey, request_type
from pykclient.protocol.message import decode_response, encode_request
from pykclient.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pykclient.protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    ForgottenTopic,
)
from pykclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from pykclient.testing import FakeCluster, faults
from pykclient.testing.fake import handlers
from pykclient.testing.fake.call import CallState
from pykclient.testing.fake.faults import Faults
from pykclient.testing.fake.replication import LAG_MS_MAX
from pykclient.types import TopicPartition
from tests.testing.fake.requests import (
    batch_of,
    fetch,
    fetched,
    fetched_bytes,
    produce,
    produced,
    response_of,
    response_to,
)

T0 = TopicPartition("t", 0)
NAMED, UNNAMED = MetadataRequest(topics=[]), MetadataRequest(topics=None)


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(3)
    cluster.create_topic("t", 1, config={"min.insync.replicas": "2"})
    return cluster


# Acknowledgements.


def test_acks_all_waits_for_the_replicas_and_moves_the_high_watermark() -> None:
    cluster = FakeCluster(3, replication_delay_ms=40)
    cluster.create_topic("t")
    call = produce(cluster, 0, batch_of(b"v"))
    reader = fetch(cluster, 0, 0)
    assert not call.is_ended
    assert cluster.next_deadline_ms() is not None
    cluster.advance(39)
    assert not call.is_ended
    assert not reader.is_ended
    cluster.advance(40)
    assert produced(call).base_offset == 0
    assert fetched_bytes(reader) > 0


def test_acks_one_gets_a_response_at_once_and_acks_zero_none() -> None:
    cluster = FakeCluster(3, replication_delay_ms=40)
    cluster.create_topic("t")
    assert produced(produce(cluster, 0, batch_of(b"v"), acks=1)).base_offset == 0
    assert produce(cluster, 0, batch_of(b"v"), acks=0).state is CallState.SILENT
    assert produce(cluster, 1, batch_of(b"v"), acks=0).state is CallState.CLOSED
    assert cluster.partition(T0).log.log_end_offset == 2


def test_a_stalled_replica_holds_acks_all_until_its_time_out(cluster: FakeCluster) -> None:
    cluster.stall_replicas(2)
    call = produce(cluster, 0, batch_of(b"v"), timeout_ms=700)
    cluster.advance(699)
    assert not call.is_ended
    cluster.advance(700)
    assert produced(call).error_code == RequestTimedOutError.code


def test_a_replica_that_lags_leaves_the_isr_and_comes_back(cluster: FakeCluster) -> None:
    cluster.stall_replicas(2)
    call = produce(cluster, 0, batch_of(b"v"), timeout_ms=2 * LAG_MS_MAX)
    cluster.advance(LAG_MS_MAX)
    assert produced(call).error_code == 0
    assert sorted(cluster.partition(T0).isr) == [0, 1]
    cluster.resume_replicas(2)
    assert sorted(cluster.partition(T0).isr) == [0, 1, 2]


def test_too_few_replicas_refuse_before_and_after_the_append(cluster: FakeCluster) -> None:
    for broker_id in (1, 2):
        cluster.stall_replicas(broker_id)
    call = produce(cluster, 0, batch_of(b"v"))
    cluster.shrink_isr(T0, 1)
    cluster.shrink_isr(T0, 2)
    assert produced(call).error_code == NotEnoughReplicasAfterAppendError.code
    late = produce(cluster, 0, batch_of(b"v"))
    assert produced(late).error_code == NotEnoughReplicasError.code


def test_a_leader_that_moves_fails_what_waits_and_loses_what_was_not_copied(
    cluster: FakeCluster,
) -> None:
    produce(cluster, 0, batch_of(b"copied"))
    cluster.stall_replicas(1)
    call = produce(cluster, 0, batch_of(b"only at the leader"))
    cluster.move_leader(T0, 1)
    assert produced(call).error_code == NotLeaderOrFollowerError.code
    partition = cluster.partition(T0)
    assert (partition.leader_id, partition.leader_epoch) == (1, 1)
    assert partition.log.log_end_offset == 1
    assert produced(produce(cluster, 0, batch_of(b"v"))).error_code == NotLeaderOrFollowerError.code


# Brokers.


def test_a_stopped_broker_hands_over_and_comes_back_as_a_follower(cluster: FakeCluster) -> None:
    cluster.stop_broker(0)
    partition = cluster.partition(T0)
    assert partition.leader_id == 1
    assert partition.isr == [1, 2]
    assert produce(cluster, 0, batch_of(b"v")).state is CallState.CLOSED
    produce(cluster, 1, batch_of(b"v"))
    cluster.start_broker(0)
    assert (partition.leader_id, sorted(partition.isr)) == (1, [0, 1, 2])
    assert partition.replica_ends[0] == 1


@pytest.mark.parametrize(("factor", "replicas"), [(2, {0, 2}), (3, {0, 1, 2})])
def test_a_new_topic_is_in_sync_on_brokers_that_run_alone(
    cluster: FakeCluster, factor: int, replicas: set[int]
) -> None:
    cluster.stop_broker(1)
    made = cluster.create_topic("new", 3, replication_factor=factor).partitions
    assert [set(each.replicas) for each in made] == [replicas] * 3
    assert [set(each.isr) for each in made] == [{0, 2}] * 3
    assert {each.leader_id for each in made} == {0, 2}


def test_the_last_replica_alone_can_lead_again(cluster: FakeCluster) -> None:
    for broker_id in (0, 1, 2):
        cluster.stop_broker(broker_id)
    partition = cluster.partition(T0)
    assert (partition.leader_id, partition.isr) == (-1, [2])
    cluster.start_broker(0)
    assert partition.leader_id == -1
    cluster.start_broker(2)
    assert partition.leader_id == 2


def test_what_cannot_be_is_a_usage_error(cluster: FakeCluster) -> None:
    cluster.stop_broker(2)
    for mistake in (
        lambda: cluster.move_leader(T0, 2),
        lambda: cluster.shrink_isr(T0, 0),
        lambda: cluster.stop_broker(2),
        lambda: cluster.start_broker(0),
        lambda: cluster.create_topic("t"),
        lambda: cluster.create_topic("two", 1, replication_factor=4),
        lambda: cluster.delete_topic("none"),
        lambda: cluster.partition(TopicPartition("t", 1)),
        lambda: cluster.stop_broker(3),
        lambda: cluster.start_broker(-1),
        lambda: cluster.stall_replicas(3),
        lambda: cluster.limit_versions({}, broker_id=3),
        lambda: cluster.move_coordinator(1, "a transactional id", 2),
        lambda: FakeCluster(2, racks=["only one"]),
    ):
        with pytest.raises(UsageError):
            mistake()


# Fetching.


def test_a_fetch_waits_for_bytes_or_its_time(cluster: FakeCluster) -> None:
    size_bytes = len(batch_of(b"v"))
    call = fetch(cluster, 0, 0, min_bytes=2 * size_bytes)
    produce(cluster, 0, batch_of(b"v"), now_ms=10)
    assert not call.is_ended
    produce(cluster, 0, batch_of(b"v"), now_ms=20)
    assert fetched_bytes(call) == 2 * size_bytes
    late = fetch(cluster, 0, 2, max_wait_ms=500, now_ms=20)
    cluster.advance(519)
    assert not late.is_ended
    cluster.advance(520)
    assert fetched_bytes(late) == 0
    assert cluster.purgatory.waiting_count() == 0


def test_a_fetch_gets_an_error_at_once(cluster: FakeCluster) -> None:
    cluster.move_leader(T0, 0)
    for call, error in (
        (fetch(cluster, 0, 5), OffsetOutOfRangeError),
        (fetch(cluster, 0, 0, leader_epoch=0), FencedLeaderEpochError),
        (fetch(cluster, 0, 0, leader_epoch=2), UnknownLeaderEpochError),
    ):
        assert fetched(call).error_code == error.code


def test_a_session_responds_with_what_is_new_only(cluster: FakeCluster) -> None:
    produce(cluster, 0, batch_of(b"v"))
    first = response_of(fetch(cluster, 0, 1, max_wait_ms=0, session_epoch=0), FetchResponse)
    assert first.session_id > 0
    assert len(first.responses) == 1
    session = first.session_id

    def later(epoch: int) -> FetchResponse:
        call = fetch(
            cluster, 0, 1, max_wait_ms=0, session_id=session, session_epoch=epoch, is_named=False
        )
        return response_of(call, FetchResponse)

    assert later(1).responses == []
    produce(cluster, 0, batch_of(b"w"))
    assert len(later(2).responses) == 1
    assert later(2).error_code == InvalidFetchSessionEpochError.code
    cluster.brokers[0].fetch_sessions.clear()
    assert later(3).error_code == FetchSessionIdNotFoundError.code


def test_what_a_session_forgets_while_a_fetch_of_it_waits_may_have_records(
    cluster: FakeCluster,
) -> None:
    first = response_of(fetch(cluster, 0, 0, max_wait_ms=0, session_epoch=0), FetchResponse)
    session = first.session_id
    waiting = fetch(cluster, 0, 0, session_id=session, session_epoch=1, is_named=False)
    forget = FetchRequest(
        session_id=session,
        session_epoch=2,
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=[0])],
    )
    cluster.handle_request(0, forget, 0, version=12)
    assert produced(produce(cluster, 0, batch_of(b"v"))).error_code == 0
    assert fetched_bytes(waiting) > 0


def test_a_fetch_response_is_no_larger_than_that_of_brokers(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    size_bytes = len(batch_of(b"v"))
    monkeypatch.setattr(handlers.fetch, "RESPONSE_BYTES_MAX", 2 * size_bytes)
    for _ in range(3):
        produce(cluster, 0, batch_of(b"v"))
    assert fetched_bytes(fetch(cluster, 0, 0)) == 2 * size_bytes


def test_a_reader_in_another_rack_is_sent_to_a_follower_that_serves_it() -> None:
    cluster = FakeCluster(3, racks=("a", "b", "c"))
    cluster.create_topic("t")
    produce(cluster, 0, batch_of(b"v"))
    responded = fetch(cluster, 0, 0, rack_id="b")
    assert fetched(responded).preferred_read_replica == 1
    assert fetched_bytes(responded) == 0
    assert fetched_bytes(fetch(cluster, 1, 0, rack_id="b")) > 0


# Metadata.


def test_a_missing_topic_is_created_where_the_request_allows_it() -> None:
    cluster = FakeCluster(1, default_partition_count=4)

    def request_metadata(*, may_create: bool) -> MetadataResponse:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=may_create
        )
        return response_to(cluster, request, MetadataResponse)

    assert request_metadata(may_create=False).topics[0].error_code
    assert not cluster.topics
    assert request_metadata(may_create=True).topics[0].error_code
    assert len(request_metadata(may_create=True).topics[0].partitions) == 4


@pytest.mark.parametrize(
    "name", ["min.insync.replicas", "segment.bytes", "max.message.bytes", "retention.ms"]
)
def test_a_setting_that_must_be_a_number_and_is_none_is_refused(name: str) -> None:
    cluster = FakeCluster(1)
    config = CreatableTopicConfig(name=name, value="many")
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=[config])
    response = response_to(cluster, CreateTopicsRequest(topics=[topic]), CreateTopicsResponse)
    assert response.topics[0].error_code == InvalidConfigError.code
    with pytest.raises(UsageError, match="invalid settings for topic 't'"):
        cluster.create_topic("t", config={name: "many"})
    assert not cluster.topics


def test_a_setting_that_no_topic_has_is_refused() -> None:
    cluster = FakeCluster(1)
    configs = [CreatableTopicConfig(name=name, value="5") for name in ("retention.mss", "flush.ms")]
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=configs)
    response = response_to(cluster, CreateTopicsRequest(topics=[topic]), CreateTopicsResponse)
    [refused] = response.topics
    assert refused.error_code == InvalidConfigError.code
    assert refused.error_message == "Unknown topic config name: retention.mss"
    assert not cluster.topics


# Faults.


def test_faults_are_used_as_often_as_they_are_meant(cluster: FakeCluster) -> None:
    handle = cluster.faults.add(
        faults.fail_with(KafkaStorageError), ApiKey.PRODUCE, broker_id=0, times=2
    )
    codes = [produced(produce(cluster, 0, batch_of(b"v"))).error_code for _ in range(3)]
    assert codes == [KafkaStorageError.code, KafkaStorageError.code, 0]
    assert handle.used_count == 2
    lasting = cluster.faults.add(faults.drop(), ApiKey.PRODUCE, times=None)
    for _ in range(3):
        assert produce(cluster, 0, batch_of(b"v")).state is CallState.SILENT
    lasting.remove()
    assert produced(produce(cluster, 0, batch_of(b"v"))).base_offset == 1


def test_a_request_whose_response_is_lost_was_carried_out_and_a_dropped_one_was_not(
    cluster: FakeCluster,
) -> None:
    log = cluster.partition(T0).log
    for fault, state, end_offset in (
        (faults.drop(), CallState.SILENT, 0),
        (faults.disconnect(), CallState.CLOSED, 0),
        (faults.lose_response(), CallState.SILENT, 1),
        (faults.lose_response(closes=True), CallState.CLOSED, 2),
    ):
        cluster.faults.add(fault, ApiKey.PRODUCE)
        assert produce(cluster, 0, batch_of(b"v")).state is state
        assert log.log_end_offset == end_offset


def test_a_response_can_be_delayed_or_replaced(cluster: FakeCluster) -> None:
    cluster.faults.add(faults.delay_response(300))
    call = produce(cluster, 0, batch_of(b"v"), now_ms=100)
    cluster.advance(399)
    assert not call.is_ended
    cluster.advance(400)
    assert produced(call).base_offset == 0
    other = MetadataResponse(cluster_id="other")
    cluster.faults.add(faults.respond_with(other), ApiKey.METADATA)
    assert cluster.handle_request(0, MetadataRequest(), 400).require_response() is other


def test_a_fault_is_for_its_api_its_broker_and_the_requests_it_looks_for() -> None:
    waiting = Faults()
    fault = faults.drop()
    handle = waiting.add(
        fault, ApiKey.METADATA, broker_id=1, when=lambda request: request is NAMED, times=2
    )
    assert waiting.take(1, ApiKey.PRODUCE, NAMED) is None
    assert waiting.take(0, ApiKey.METADATA, NAMED) is None
    assert waiting.take(1, ApiKey.METADATA, UNNAMED) is None
    assert handle.used_count == 0
    taken = [waiting.take(1, ApiKey.METADATA, NAMED) for _ in range(3)]
    assert taken == [fault, fault, None]
    assert handle.used_count == 2


def test_the_oldest_that_fits_comes_first_and_what_was_taken_back_never() -> None:
    waiting = Faults()
    first, second, third = (faults.delay_response(delay_ms) for delay_ms in (1, 2, 3))
    waiting.add(first)
    taken_back = waiting.add(second, times=None)
    waiting.add(third)
    assert waiting.take(0, ApiKey.METADATA, NAMED) == first
    assert waiting.take(0, ApiKey.METADATA, NAMED) == second
    taken_back.remove()
    taken_back.remove()
    assert waiting.take(0, ApiKey.METADATA, NAMED) == third
    assert waiting.take(0, ApiKey.METADATA, NAMED) is None
    waiting.add(first, times=None)
    waiting.clear()
    assert waiting.take(0, ApiKey.METADATA, NAMED) is None


# Topic names.


def created(cluster: FakeCluster, *names: str) -> list[tuple[int, str | None]]:
    """Create topics and return each one's error code and message."""
    request = CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in names])
    response = response_to(cluster, request, CreateTopicsResponse)
    return [(topic.error_code, topic.error_message) for topic in response.topics]


def test_names_that_differ_in_dots_and_underscores_alone_collide() -> None:
    """Expect the responses of Kafka 4.3.1 to the same requests."""
    cluster = FakeCluster()
    assert created(cluster, "a.b_c") == [(0, "")]
    reason = "Topic 'a_b.c' collides with existing topic: a.b_c"
    assert created(cluster, "a_b.c") == [(InvalidTopicError.code, reason)]
    assert created(cluster, "a.b_c")[0][0] == TopicAlreadyExistsError.code
    assert created(cluster, "x.y", "x_y", "x-y") == [(0, "")] * 3, "in one request"
    assert created(cluster, "x.y")[0][0] == TopicAlreadyExistsError.code
    response_to(cluster, MetadataRequest([MetadataRequestTopic(name="a_b_c")]), MetadataResponse)
    assert sorted(cluster.topics) == ["a.b_c", "x-y", "x.y", "x_y"], "no automatic creation either"


# Bytes after a request.


LIBRDKAFKA_ALL_TOPICS = bytes.fromhex(
    "0003000d 00000003 0007 72646b61666b61 00"  # Metadata 13, "rdkafka", no tags
    "00 00 00 00"  # all topics, no creation, no operations, no tags
    "01 00 00"  # three surplus bytes
)
"""The Metadata request of librdkafka 2.16's `list_topics`."""


def test_the_three_bytes_too_many_of_librdkafka_are_passed_over(cluster: FakeCluster) -> None:
    call = cluster.handle(0, LIBRDKAFKA_ALL_TOPICS, 0)
    response = decode_response(MetadataResponse, 13, bytes(call.frame)[4:])
    assert [topic.name for topic in response.topics] == ["t"]


@pytest.mark.parametrize("key", sorted(handlers.HANDLERS))
def test_bytes_after_a_request_change_no_response(key: ApiKey) -> None:
    """Kafka reads the fields of a request and ignores what follows."""
    kind = request_type(key)
    for version in (kind.min_version, kind.max_version):
        frame = bytes(encode_request(kind(), version, 1, "test")[4:])
        plain, longer = FakeCluster(), FakeCluster()
        expected = plain.handle(0, frame, 0)
        call = longer.handle(0, frame + b"\x01\x00\x00", 0)
        assert call.state is expected.state
        assert len(call.frame) == len(expected.frame)
