"""Transactions of a fake cluster under failures: timeouts, brokers, markers, epochs.

`tests/integration/test_fake_transactions_against_kafka.py` compares ordinary responses with
Kafka's.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from pykclient.errors import ConfigError, UsageError
from pykclient.errors.broker import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    ProducerFencedError,
)
from pykclient.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from pykclient.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from pykclient.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from pykclient.protocol.messages.describe_transactions import DescribeTransactionsRequest
from pykclient.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from pykclient.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pykclient.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pykclient.protocol.messages.list_transactions import ListTransactionsRequest
from pykclient.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from pykclient.protocol.messages.transaction_records import (
    TransactionLogKey,
    TransactionLogValue,
)
from pykclient.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from pykclient.protocol.reader import Reader
from pykclient.testing import FakeCluster, TransactionSettings, faults
from pykclient.testing.fake.data_directory import DataDirectory
from pykclient.testing.fake.groups.offsets import CommittedOffset
from pykclient.testing.fake.transactions.metadata import (
    EPOCH_MAX,
    ProducerIdentity,
    TransactionState,
)
from pykclient.types import TopicPartition
from tests.testing.fake.requests import batch_of, coordinator_id, response_to

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pykclient.protocol.message import Request

NAME = "payments"
TIMEOUT_MS = 1_000
PARTITION = TopicPartition("t", 0)
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def cluster() -> FakeCluster:
    return with_topic(FakeCluster(3))


def with_topic(cluster: FakeCluster) -> FakeCluster:
    cluster.create_topic("t", 2)
    return cluster


def begin(cluster: FakeCluster, *, is_two_phase: bool = False) -> ProducerIdentity | int:
    """Send InitProducerId and return the producer, or the error code."""
    request = InitProducerIdRequest(NAME, TIMEOUT_MS, enable2_pc=is_two_phase)
    response = response_to(
        cluster,
        request,
        InitProducerIdResponse,
        broker_id=coordinator_id(cluster, NAME, 1),
        version=InitProducerIdRequest.unstable_version if is_two_phase else None,
    )
    if response.error_code:
        return response.error_code
    return ProducerIdentity(response.producer_id, response.producer_epoch)


def producer(cluster: FakeCluster) -> ProducerIdentity:
    begun = begin(cluster)
    assert isinstance(begun, ProducerIdentity)
    return begun


def write(
    cluster: FakeCluster,
    identity: ProducerIdentity,
    sequence: int = 0,
    *,
    partition: int = 0,
    version: int = 12,
) -> int:
    """Produce a record and return the error code."""
    data = batch_of(
        b"v",
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    request = ProduceRequest(
        NAME,
        -1,
        1_000,
        [TopicProduceData(name="t", partition_data=[PartitionProduceData(partition, data)])],
    )
    leader_id = cluster.partition(TopicPartition("t", partition)).leader_id
    response = response_to(cluster, request, ProduceResponse, broker_id=leader_id, version=version)
    return response.responses[0].partition_responses[0].error_code


def end(
    cluster: FakeCluster, identity: ProducerIdentity, *, is_commit: bool = True, version: int = 5
) -> ProducerIdentity | int:
    """Send EndTxn and return the producer's next identity, or the error code."""
    request = EndTxnRequest(NAME, *identity, is_commit)
    response = response_to(
        cluster,
        request,
        EndTxnResponse,
        broker_id=coordinator_id(cluster, NAME, 1),
        version=version,
    )
    if response.error_code:
        return response.error_code
    return ProducerIdentity(response.producer_id, response.producer_epoch)


def state(cluster: FakeCluster) -> TransactionState:
    found = cluster.transactions.find(NAME)
    assert found is not None
    return found.state


def ends(cluster: FakeCluster, partition: int = 0) -> tuple[int, int]:
    """Return the high watermark and the last stable offset."""
    log = cluster.partition(TopicPartition("t", partition)).log
    return log.high_watermark, log.last_stable_offset


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_whose_time_is_over_is_aborted_in_another_epoch(version: int) -> None:
    settings = TransactionSettings(transaction_version=version)
    cluster = with_topic(FakeCluster(1, transaction_settings=settings))
    identity = producer(cluster)
    assert write(cluster, identity) == 0
    cluster.advance(cluster.now_ms + TIMEOUT_MS - 1)
    assert state(cluster) is TransactionState.ONGOING
    cluster.advance(cluster.now_ms + 1)
    assert state(cluster) is TransactionState.COMPLETE_ABORT
    assert ends(cluster) == (2, 2)
    assert write(cluster, identity, 1) == InvalidProducerEpochError.code
    assert end(cluster, identity, version=4) == ProducerFencedError.code
    # With KIP-890 an abort by the same producer counts as a retry.
    expected = identity._replace(epoch=1) if version == 2 else ProducerFencedError.code
    assert end(cluster, identity, is_commit=False) == expected


def test_time_begins_with_the_first_partition_and_stops_with_the_end(cluster: FakeCluster) -> None:
    first = producer(cluster)
    cluster.advance(10 * TIMEOUT_MS)
    write(cluster, first)
    cluster.advance(cluster.now_ms + TIMEOUT_MS // 2)
    write(cluster, first, 0, partition=1)
    second = end(cluster, first)
    assert second == first._replace(epoch=1)
    cluster.advance(cluster.now_ms + 10 * TIMEOUT_MS)
    assert state(cluster) is TransactionState.COMPLETE_COMMIT


def test_what_takes_part_in_a_two_phase_commit_has_no_time_out(tmp_path: Path) -> None:
    settings = TransactionSettings(
        unstable_api_versions_enable=True, transaction_two_phase_commit_enable=True
    )
    with restarted(tmp_path, settings) as cluster:
        with_topic(cluster)
        prepared = begin(cluster, is_two_phase=True)
        assert isinstance(prepared, ProducerIdentity)
        write(cluster, prepared)
        cluster.advance(DAY_MS)
        assert state(cluster) is TransactionState.ONGOING
    with restarted(tmp_path, settings) as cluster:
        cluster.advance(DAY_MS)
        assert state(cluster) is TransactionState.ONGOING
        assert end(cluster, prepared) == prepared._replace(epoch=1)
        assert ends(cluster) == (2, 2)
        timed = producer(cluster)
        write(cluster, timed)
        cluster.advance(cluster.now_ms + TIMEOUT_MS)
        assert state(cluster) is TransactionState.COMPLETE_ABORT


def test_markers_that_are_stalled_hold_up_readers_and_the_next_transaction(
    cluster: FakeCluster,
) -> None:
    first = producer(cluster)
    write(cluster, first)
    cluster.stall_markers()
    second = end(cluster, first)
    assert isinstance(second, ProducerIdentity)
    assert (state(cluster), ends(cluster)) == (TransactionState.PREPARE_COMMIT, (1, 0))
    assert write(cluster, second) == ConcurrentTransactionsError.code
    assert write(cluster, second, partition=1, version=11) == NotEnoughReplicasError.code
    assert end(cluster, first) == ConcurrentTransactionsError.code
    assert end(cluster, second) == ProducerFencedError.code
    assert begin(cluster) == ConcurrentTransactionsError.code
    cluster.resume_markers()
    assert (state(cluster), ends(cluster)) == (TransactionState.COMPLETE_COMMIT, (2, 2))
    assert end(cluster, first) == second
    assert write(cluster, second) == 0


def test_markers_may_be_late() -> None:
    settings = TransactionSettings(marker_delay_ms=9)
    cluster = with_topic(FakeCluster(1, transaction_settings=settings))
    first = producer(cluster)
    write(cluster, first)
    end(cluster, first)
    cluster.advance(cluster.now_ms + 8)
    assert state(cluster) is TransactionState.PREPARE_COMMIT
    cluster.advance(cluster.now_ms + 1)
    assert state(cluster) is TransactionState.COMPLETE_COMMIT


def test_a_marker_waits_for_a_leader_and_not_for_a_topic_that_is_gone() -> None:
    cluster = FakeCluster(2)
    cluster.create_topic("t", assignments=[[0], [1]])
    cluster.create_topic("gone", 1)
    first = producer(cluster)
    write(cluster, first)
    write(cluster, first, partition=1)
    coordinator = cluster.transactions.partition(NAME).leader_id
    other = 1 - coordinator
    cluster.stop_broker(other)
    second = end(cluster, first, is_commit=False)
    assert isinstance(second, ProducerIdentity)
    assert state(cluster) is TransactionState.PREPARE_ABORT
    cluster.start_broker(other)
    assert state(cluster) is TransactionState.COMPLETE_ABORT
    assert ends(cluster, 0) == ends(cluster, 1) == (2, 2)
    cluster.stall_markers()
    write(cluster, second)
    end(cluster, second)
    cluster.delete_topic("t")
    cluster.resume_markers()
    assert state(cluster) is TransactionState.COMPLETE_COMMIT


def test_the_next_coordinator_goes_on(cluster: FakeCluster) -> None:
    first = producer(cluster)
    write(cluster, first)
    old = coordinator_id(cluster, NAME, 1)
    cluster.move_coordinator(1, NAME, (old + 1) % 3)
    request = EndTxnRequest(NAME, *first, True)
    assert (
        response_to(cluster, request, EndTxnResponse, broker_id=old).error_code
        == NotCoordinatorError.code
    )
    cluster.stop_broker(coordinator_id(cluster, NAME, 1))
    second = end(cluster, first)
    assert second == first._replace(epoch=1)
    assert state(cluster) is TransactionState.COMPLETE_COMMIT


def test_without_a_coordinator_nothing_ends_and_nothing_begins() -> None:
    cluster = FakeCluster(2)
    cluster.create_topic("t", assignments=[[0], [1]])
    cluster.create_topic("__transaction_state", assignments=[[1]] * 50)
    first = producer(cluster)
    write(cluster, first)
    cluster.stop_broker(1)
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=[NAME])
    (found,) = response_to(cluster, request, FindCoordinatorResponse).coordinators
    assert found.error_code == CoordinatorNotAvailableError.code
    assert write(cluster, first._replace(epoch=1)) == NotEnoughReplicasError.code
    cluster.advance(cluster.now_ms + 2 * TIMEOUT_MS)
    assert state(cluster) is TransactionState.ONGOING
    cluster.start_broker(1)
    cluster.advance(cluster.now_ms)
    assert state(cluster) is TransactionState.COMPLETE_ABORT


def test_transactions_go_on_after_a_restart(tmp_path: Path) -> None:
    """An open transaction can be committed, with its offsets; a prepared one is complete."""
    with restarted(tmp_path) as cluster:
        with_topic(cluster)
        first = producer(cluster)
        write(cluster, first)
        hold_offset(cluster, first)
        other = cluster.transactions.initialize("other", None, 1_000, 0)
        assert isinstance(other, ProducerIdentity)
        partitions = [TopicPartition("t", 1)]
        cluster.transactions.add("other", other, partitions, version=2, now_ms=0)
        cluster.stall_markers()
        cluster.transactions.end("other", other, 2, 0, is_commit=True)
    with restarted(tmp_path) as cluster:
        found = cluster.transactions.find("other")
        assert found is not None
        assert found.state is TransactionState.COMPLETE_COMMIT
        assert (state(cluster), ends(cluster)) == (TransactionState.ONGOING, (1, 0))
        assert cluster.group("g").offsets == {}
        assert write(cluster, first, 1) == 0
        second = end(cluster, first)
        assert second == first._replace(epoch=1)
        assert cluster.group("g").offsets[PARTITION].offset == 5
        assert ends(cluster) == (3, 3)
        write(cluster, second)
    with restarted(tmp_path) as cluster:
        cluster.advance(TIMEOUT_MS)
        assert state(cluster) is TransactionState.COMPLETE_ABORT, "its timeout continues"
        assert cluster.group("g").offsets[PARTITION].offset == 5
        assert not cluster.groups.offsets("g").is_unstable(PARTITION)


@pytest.mark.parametrize("is_last", [True, False])
def test_a_plain_commit_and_one_of_a_transaction_keep_their_order_in_a_restart(
    tmp_path: Path, *, is_last: bool
) -> None:
    plain = CommittedOffset(3)
    with restarted(tmp_path) as cluster:
        with_topic(cluster)
        first = producer(cluster)
        if not is_last:
            cluster.groups.commit("g", PARTITION, plain, 0)
        hold_offset(cluster, first)
        if is_last:
            cluster.groups.commit("g", PARTITION, plain, 0)
    with restarted(tmp_path) as cluster:
        assert cluster.group("g").offsets[PARTITION] == plain
        assert cluster.groups.offsets("g").is_unstable(PARTITION)
        second = end(cluster, first)
        assert isinstance(second, ProducerIdentity)
        expected = 3 if is_last else 5
        assert cluster.group("g").offsets[PARTITION].offset == expected
        hold_offset(cluster, second)
        cluster.groups.remove_offset("g", PARTITION, 0)
    with restarted(tmp_path) as cluster:
        end(cluster, second)
        assert cluster.groups.offsets("g").all() == {}


@contextlib.contextmanager
def restarted(folder: Path, settings: TransactionSettings | None = None) -> Iterator[FakeCluster]:
    """Run a broker on the data in a folder."""
    directory = DataDirectory(folder)
    try:
        cluster = FakeCluster(1, storage=directory, transaction_settings=settings)
        directory.restore(cluster)
        yield cluster
    finally:
        directory.close()


def hold_offset(cluster: FakeCluster, identity: ProducerIdentity) -> None:
    """Send TxnOffsetCommit with offset 5 in group ``g``."""
    offset = TxnOffsetCommitRequestPartition(0, 5)
    topic = TxnOffsetCommitRequestTopic(topic_id=cluster.topics["t"].topic_id, partitions=[offset])
    request = TxnOffsetCommitRequest(NAME, "g", *identity, topics=[topic])
    response = response_to(
        cluster, request, TxnOffsetCommitResponse, broker_id=coordinator_id(cluster, "g")
    )
    assert response.topics[0].partitions[0].error_code == 0


def test_the_last_epoch_of_an_id_is_followed_by_another_id(cluster: FakeCluster) -> None:
    identity = producer(cluster)
    found = cluster.transactions.find(NAME)
    assert found is not None
    found.producer = last = identity._replace(epoch=EPOCH_MAX)
    assert write(cluster, last) == 0
    following = end(cluster, last)
    assert isinstance(following, ProducerIdentity)
    assert following.producer_id != last.producer_id
    assert following.epoch == 0
    assert end(cluster, last) == following, "the response was lost"
    assert write(cluster, following) == 0
    found.producer = last = following._replace(epoch=EPOCH_MAX)
    assert begin(cluster) == ConcurrentTransactionsError.code
    rotated = begin(cluster)
    assert isinstance(rotated, ProducerIdentity)
    assert rotated.producer_id not in (last.producer_id, identity.producer_id)
    assert rotated.epoch == 1, "fencing has begun the other id, and this begins its next epoch"


def test_a_transactional_id_that_is_not_used_expires() -> None:
    settings = TransactionSettings(transactional_id_expiration_ms=DAY_MS)
    cluster = with_topic(FakeCluster(1, transaction_settings=settings))
    identity = producer(cluster)
    cluster.advance(DAY_MS - 1)
    assert cluster.transactions.find(NAME) is not None
    cluster.advance(DAY_MS + 600_000)
    assert cluster.transactions.find(NAME) is None
    assert end(cluster, identity) == InvalidProducerIdMappingError.code
    assert producer(cluster).producer_id != identity.producer_id
    keys = [record[0] for record in state_records(cluster)]
    values = [record[1] for record in state_records(cluster)]
    assert set(keys) == {NAME}
    assert [value is None for value in values] == [False, True, False]


@pytest.mark.parametrize(
    "request_",
    [
        InitProducerIdRequest(NAME, TIMEOUT_MS),
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=NAME,
            v3_and_below_topics=[AddPartitionsToTxnTopic("t", [0])],
        ),
        AddOffsetsToTxnRequest(NAME, 1, 0, "g"),
        TxnOffsetCommitRequest(
            NAME,
            "g",
            topics=[
                TxnOffsetCommitRequestTopic("t", partitions=[TxnOffsetCommitRequestPartition(0, 5)])
            ],
        ),
        EndTxnRequest(NAME, 1, 0, True),
        ListTransactionsRequest(),
        DescribeTransactionsRequest([NAME]),
        DescribeProducersRequest([TopicRequest("t", [0])]),
    ],
    ids=lambda request: type(request).__name__,
)
def test_a_coordinator_that_is_loading_refuses_and_does_nothing(
    cluster: FakeCluster, request_: Request
) -> None:
    error = CoordinatorLoadInProgressError
    cluster.faults.add(faults.fail_with(error), request_.api_key, times=None)
    for version in range(request_.min_version, min(request_.max_version, 3) + 1):
        call = cluster.handle_request(0, request_, cluster.now_ms, version=version)
        assert codes_of(call.require_response()) == {error.code}
    assert cluster.transactions.find(NAME) is None


def codes_of(structure: object) -> set[int]:
    """Return all nonzero error codes in a response, at any depth."""
    if isinstance(structure, list):
        return {code for each in structure for code in codes_of(each)}
    found: set[int] = set()
    for name in getattr(type(structure), "__slots__", ()):
        value = getattr(structure, name)
        found |= {value} if name.endswith("error_code") and value else codes_of(value)
    return found


@pytest.mark.parametrize("version", [0, 2])
def test_every_change_is_written_to_the_transaction_state(version: int) -> None:
    settings = TransactionSettings(transaction_version=version)
    cluster = with_topic(FakeCluster(1, transaction_settings=settings))
    first = producer(cluster)
    write(cluster, first)
    end(cluster, first)
    written = [value for _, value in state_records(cluster)]
    assert [
        (value.transaction_status, value.producer_epoch, value.client_transaction_version)
        for value in written
        if value is not None
    ] == [(0, 0, 0), (1, 0, version), (2, 1, version), (4, 1, version)]
    partitions = [value.transaction_partitions for value in written if value is not None]
    assert partitions[0] is None
    assert [[(each.topic, each.partition_ids) for each in one or ()] for one in partitions] == [
        *([], [("t", [0])], [("t", [0])], []),
    ]


def state_records(cluster: FakeCluster) -> list[tuple[str, TransactionLogValue | None]]:
    """Return the log's records of the transactional id."""
    found = []
    for batch in cluster.transactions.partition(NAME).log.batches():
        columns = batch.records()
        for key, value in zip(columns.keys, columns.values, strict=True):
            assert key is not None
            reader = Reader(key[2:])
            name = TransactionLogKey.read(reader, 0).transactional_id
            version = int.from_bytes((value or b"")[:2], "big")
            found.append(
                (
                    name,
                    None if value is None else TransactionLogValue.read(Reader(value[2:]), version),
                )
            )
    return found


@pytest.mark.parametrize(
    "arguments",
    [{"transaction_version": 3}, {"marker_delay_ms": -1}, {"transaction_max_timeout_ms": 0}],
)
def test_settings_that_cannot_be_are_refused(arguments: dict[str, int]) -> None:
    with pytest.raises((UsageError, ConfigError)):
        TransactionSettings(**arguments)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        FakeCluster(1, transaction_settings=arguments)  # type: ignore[arg-type]
