"""The fake transaction coordinator responds as Kafka's own does.

Goal: what a producer gets from a fake broker holds for a real one. Method: each script of requests
goes to Kafka and to the fake broker, and each step must have the same result. Both protocols
are spoken: that of KIP-98, and that of KIP-890 with its epoch for each transaction.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from pykclient.errors import CoordinatorLoadInProgressError, error_for_code
from pykclient.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from pykclient.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from pykclient.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pykclient.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from pykclient.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from pykclient.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from pykclient.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from pykclient.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pykclient.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pykclient.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from pykclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from pykclient.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from pykclient.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from pykclient.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pykclient.records.batch import iterate_batches
from pykclient.testing import FakeCluster, GroupSettings, TransactionSettings
from pykclient.testing.cluster.jars import KAFKA_VERSIONS
from tests.integration.exchange import TIMEOUT_S, FakeExchange, RealExchange
from tests.integration.group_members import wait_until
from tests.testing.fake.requests import batch_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.testing.fixtures import KafkaClusterFactory
    from tests.integration.exchange import Exchange

    Script = Callable[["TransactionalClient"], Iterator[object]]

pytestmark = pytest.mark.kafka

OLD_BROKER_SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}
TIME_OUT_MS = 2_000
"""Timeout of transactions that must exceed it; earlier steps take less, even on a slow machine."""
UNKNOWN_ID = 2**60
"""A producer id that no broker has assigned: they assign small ones."""
PARTITION_COUNT = 2
READ_COMMITTED = 1
OLD_PRODUCE, NEW_PRODUCE = 9, 12
OLD_END, NEW_END = 4, 5
OLD_OFFSETS, NEW_OFFSETS, OFFSETS_BY_ID = 3, 5, 6
OLD_ADD = 3
BROKER_SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
    "group.consumer.assignment.interval.ms": 0,
}

Producer = tuple[int, int]
"""A producer id and an epoch."""


class TransactionalClient:
    """Sends one request at a time, for any producer; ids in results count from 0."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        name = uuid.uuid4().hex
        self.name, self.topic, self.group = f"id-{name}", f"t-{name}", f"g-{name}"
        self.topic_id = bytes(16)
        self._ids: list[int] = []

    def prepare(self) -> None:
        """Create the topic, and wait until the broker has it and coordinates both ids."""
        created = self._exchange.send(
            CreateTopicsRequest(
                topics=[CreatableTopic(self.topic, PARTITION_COUNT, 1)],
                timeout_ms=int(TIMEOUT_S * 1000),
            ),
            CreateTopicsResponse,
        )
        self.topic_id = created.topics[0].topic_id

        def is_led() -> bool:
            return all(self._read(number).error_code == 0 for number in range(PARTITION_COUNT))

        def is_coordinated() -> bool:
            return all(
                each.error_code == 0
                for kind, key in ((0, self.group), (1, self.name))
                for each in self._exchange.send(
                    FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]),
                    FindCoordinatorResponse,
                ).coordinators
            )

        wait_until(is_led, "the partitions have a leader")
        wait_until(is_coordinated, "the coordinators are known")
        wait_until(
            lambda: self.described()[0] == "TRANSACTIONAL_ID_NOT_FOUND",
            "the coordinator has loaded",
        )
        wait_until(lambda: self.offsets() != [], "the group's coordinator has loaded")

    def init(
        self,
        name: str | None = None,
        *,
        was: Producer = (-1, -1),
        timeout_ms: int = 60_000,
        version: int | None = None,
        **two_phase: bool,
    ) -> tuple[str, Producer]:
        """Send InitProducerId; `was` is the old producer, `two_phase` has fields of version 6."""
        request = InitProducerIdRequest(
            self.name if name is None else name, timeout_ms, self._id(was[0]), was[1], **two_phase
        )
        responses: list[InitProducerIdResponse] = []

        def has_ids() -> bool:
            # A broker that has just started may still wait for a block of producer ids.
            responses[:] = [self._exchange.send(request, InitProducerIdResponse, version)]
            return responses[0].error_code != CoordinatorLoadInProgressError.code

        wait_until(has_ids, "the broker has producer ids")
        (response,) = responses
        return _error(response.error_code), self._producer(
            response.producer_id, response.producer_epoch
        )

    def begin(self, **more: object) -> Producer:
        """Return a new producer, when the transaction of the previous one has ended."""
        found: list[Producer] = []

        def has_begun() -> bool:
            error, producer = self.init(**more)  # type: ignore[arg-type]
            found[:] = [producer]
            return error == "NONE"

        wait_until(has_begun, "the producer has an id")
        return found[0]

    def add(
        self, producer: Producer, *partitions: int, topic: str | None = None, version: int = OLD_ADD
    ) -> list[tuple[int, str]]:
        """AddPartitionsToTxn, of the producer's own versions."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self._id(producer[0]),
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(topic or self.topic, list(partitions))],
        )
        response = self._exchange.send(request, AddPartitionsToTxnResponse, version)
        return sorted(
            (each.partition_index, _error(each.partition_error_code))
            for found in response.results_by_topic_v3_and_below
            for each in found.results_by_partition
        )

    def verify(
        self, producer: Producer, *partitions: int, is_only: bool = True, version: int = 4
    ) -> list[tuple[int, str]]:
        """AddPartitionsToTxn as brokers send it."""
        topics = [AddPartitionsToTxnTopic(self.topic, list(partitions))]
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    self.name, self._id(producer[0]), producer[1], is_only, topics
                )
            ]
        )
        response = self._exchange.send(request, AddPartitionsToTxnResponse, version)
        return sorted(
            (each.partition_index, _error(each.partition_error_code))
            for result in response.results_by_transaction
            for found in result.topic_results
            for each in found.results_by_partition
        )

    def add_offsets(self, producer: Producer, version: int = 3) -> str:
        """AddOffsetsToTxn."""
        request = AddOffsetsToTxnRequest(self.name, self._id(producer[0]), producer[1], self.group)
        return _error(self._exchange.send(request, AddOffsetsToTxnResponse, version).error_code)

    def produce(
        self,
        producer: Producer,
        sequence: int,
        *values: bytes,
        partition: int = 0,
        version: int = OLD_PRODUCE,
        is_transactional: bool = True,
        has_name: bool = True,
    ) -> tuple[str, int]:
        """Produce one batch."""
        data = batch_of(
            *values,
            producer_id=self._id(producer[0]),
            producer_epoch=producer[1],
            base_sequence=sequence,
            timestamp_ms=int(time.time() * 1000),  # an old one would have the segment rolled
            is_transactional=is_transactional,
        )
        request = ProduceRequest(
            transactional_id=self.name if has_name else None,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[
                TopicProduceData(
                    name=self.topic, partition_data=[PartitionProduceData(partition, data)]
                )
            ],
        )
        response = self._exchange.send(request, ProduceResponse, version)
        ((found,),) = ([*topic.partition_responses] for topic in response.responses)
        return _error(found.error_code), found.base_offset

    def commit_offset(
        self,
        producer: Producer,
        offset: int,
        *,
        partition: int = 0,
        generation: int = -1,
        member_id: str = "",
        metadata: str = "",
        group: str | None = None,
        version: int = OLD_OFFSETS,
        topic_id: bytes = bytes(16),
    ) -> list[str]:
        """TxnOffsetCommit of one partition."""
        each = TxnOffsetCommitRequestPartition(partition, offset, -1, metadata)
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.group if group is None else group,
            producer_id=self._id(producer[0]),
            producer_epoch=producer[1],
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[TxnOffsetCommitRequestTopic(self.topic, topic_id, [each])],
        )
        response = self._exchange.send(request, TxnOffsetCommitResponse, version)
        return [_error(p.error_code) for topic in response.topics for p in topic.partitions]

    def join(self, member_id: str, epoch: int) -> int:
        """Join the group as a KIP-848 member; return the epoch in which it has its partitions."""
        found: list[int] = []

        def has_partitions() -> bool:
            request = ConsumerGroupHeartbeatRequest(
                group_id=self.group,
                member_id=member_id,
                member_epoch=epoch,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=[self.topic],
                topic_partitions=[],
            )
            response = self._exchange.send(request, ConsumerGroupHeartbeatResponse)
            assert response.error_code == 0, response
            found[:] = [response.member_epoch]
            assigned = response.assignment
            return assigned is not None and bool(assigned.topic_partitions)

        wait_until(has_partitions, "the member has partitions")
        return found[0]

    def end(
        self,
        producer: Producer,
        *,
        is_commit: bool = True,
        version: int = OLD_END,
        name: str | None = None,
    ) -> tuple[str, Producer]:
        """EndTxn; it returns when the markers are written."""
        request = EndTxnRequest(
            self.name if name is None else name, self._id(producer[0]), producer[1], is_commit
        )
        response = self._exchange.send(request, EndTxnResponse, version)
        self.settle()
        return _error(response.error_code), self._producer(
            response.producer_id, response.producer_epoch
        )

    def settle(self) -> None:
        """Wait until no end is prepared."""
        wait_until(
            lambda: not str(self.described()[1]).startswith("Prepare"),
            "the transaction is complete",
        )

    def described(self, name: str | None = None) -> tuple[object, ...]:
        """DescribeTransactions."""
        request = DescribeTransactionsRequest([self.name if name is None else name])
        (found,) = self._exchange.send(request, DescribeTransactionsResponse).transaction_states
        return (
            _error(found.error_code),
            found.transaction_state,
            found.transaction_timeout_ms,
            found.transaction_start_time_ms > 0,
            None if found.error_code else self._producer(found.producer_id, found.producer_epoch),
            sorted(
                (topic.topic.split("-")[0], number if topic.topic == self.topic else None)
                for topic in found.topics
                for number in topic.partitions
            ),
        )

    def listed(self, **filters: object) -> tuple[object, ...]:
        """ListTransactions: this client's own."""
        response = self._exchange.send(
            ListTransactionsRequest(**filters),  # type: ignore[arg-type]
            ListTransactionsResponse,
        )
        return (
            _error(response.error_code),
            sorted(response.unknown_state_filters),
            [
                (self._producer(each.producer_id, 0)[0], each.transaction_state)
                for each in response.transaction_states
                if each.transactional_id == self.name
            ],
        )

    def producers(self, partition: int = 0) -> list[tuple[object, ...]]:
        """DescribeProducers."""
        request = DescribeProducersRequest([TopicRequest(self.topic, [partition])])
        response = self._exchange.send(request, DescribeProducersResponse)
        ((found,),) = (topic.partitions for topic in response.topics)
        return [
            (
                self._producer(each.producer_id, each.producer_epoch),
                each.last_sequence,
                each.coordinator_epoch,
                each.current_txn_start_offset,
            )
            for each in found.active_producers
        ]

    def mark(
        self, producer: Producer, partition: int, *, is_commit: bool, coordinator_epoch: int = 0
    ) -> list[str]:
        """WriteTxnMarkers, as an administrator sends it."""
        request = WriteTxnMarkersRequest(
            [
                WritableTxnMarker(
                    self._id(producer[0]),
                    producer[1],
                    is_commit,
                    [WritableTxnMarkerTopic(self.topic, [partition])],
                    coordinator_epoch,
                )
            ]
        )
        response = self._exchange.send(request, WriteTxnMarkersResponse, 1)
        return [
            _error(p.error_code) for m in response.markers for t in m.topics for p in t.partitions
        ]

    def _read(self, partition: int) -> PartitionData:
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=10**6,
            isolation_level=READ_COMMITTED,
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic=self.topic,
                    partitions=[FetchPartition(partition, partition_max_bytes=10**6)],
                )
            ],
        )
        response = self._exchange.send(request, FetchResponse, 12)
        ((found,),) = (topic.partitions for topic in response.responses)
        return found

    def read(self, partition: int = 0) -> tuple[object, ...]:
        """Fetch: return the end, the stable end, aborted transactions and batches."""
        found = self._read(partition)
        data = memoryview(bytes(found.records or b""))
        return (
            found.high_watermark,
            found.last_stable_offset,
            sorted(
                (self._producer(each.producer_id, 0)[0], each.first_offset)
                for each in found.aborted_transactions or ()
            ),
            [
                (
                    batch.base_offset,
                    batch.attributes,
                    self._producer(batch.producer_id, batch.producer_epoch),
                    batch.base_sequence,
                    list(batch.records().keys) if batch.is_control else batch.record_count,
                    list(batch.records().values),
                )
                for batch in iterate_batches(data, topic=self.topic, partition=partition)
            ],
        )

    def offsets(self, *, is_stable: bool = True) -> list[tuple[str, int]]:
        """OffsetFetch of partition 0."""
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=self.group, topics=[OffsetFetchRequestTopics(self.topic, b"", [0])]
                )
            ],
            require_stable=is_stable,
        )
        response = self._exchange.send(request, OffsetFetchResponse, 9)
        return [
            (_error(p.error_code), p.committed_offset)
            for group in response.groups
            for topic in group.topics
            for p in topic.partitions
        ]

    def features(self) -> list[tuple[object, ...]]:
        """Return the feature of transactions in the broker's ApiVersions."""
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        response = self._exchange.send(request, ApiVersionsResponse, 4)
        name = "transaction.version"
        return [
            *(
                (each.min_version, each.max_version)
                for each in response.supported_features
                if each.name == name
            ),
            *(
                (each.min_version_level, each.max_version_level)
                for each in response.finalized_features
                if each.name == name
            ),
        ]

    def _producer(self, producer_id: int, epoch: int) -> Producer:
        if producer_id < 0:
            return producer_id, epoch
        if producer_id not in self._ids:
            self._ids.append(producer_id)
        return self._ids.index(producer_id), epoch

    def _id(self, number: int) -> int:
        """Return a producer id by number; an unknown one belongs to no producer."""
        return self._ids[number] if 0 <= number < len(self._ids) else number


def _error(code: int) -> str:
    return error_for_code(code).name if code else "NONE"


@pytest.fixture(scope="module")
def kafka(kafka_cluster_factory: KafkaClusterFactory) -> Iterator[RealExchange]:
    with kafka_cluster_factory(version=KAFKA_VERSIONS[0], config=BROKER_SETTINGS) as cluster:
        yield RealExchange(cluster.bootstrap_servers)


@pytest.fixture
def fake() -> FakeExchange:
    settings = GroupSettings(group_consumer_assignment_interval_ms=0)
    return FakeExchange(FakeCluster(1, group_settings=settings))


def the_protocol_of_kip_98(client: TransactionalClient) -> Iterator[object]:
    yield client.described()
    first = client.begin()
    yield client.described()
    yield client.produce(first, 0, b"too early")
    yield client.add(first, 0)
    yield client.described()
    yield client.add(first, 0)
    yield client.produce(first, 0, b"a", b"b")
    yield client.produce(first, 2, b"not added", partition=1)
    yield client.produce(first, 2, b"c", is_transactional=False)
    yield client.produce(first, 5, b"later")
    yield client.produce(first, 2, b"c")
    yield client.produce(first, 2, b"c")
    yield client.read()
    yield client.producers()
    yield client.end(first)
    yield client.described()
    yield client.end(first)
    yield client.end(first, is_commit=False)
    yield client.read()
    yield client.producers()
    yield client.produce(first, 3, b"too late")
    yield client.add(first, 0, 1)
    yield client.produce(first, 3, b"d")
    yield client.produce(first, 0, b"e", partition=1)
    yield client.end(first, is_commit=False)
    yield client.described()
    yield client.end(first)
    yield client.read(), client.read(1)
    yield client.producers(), client.producers(1)


def the_protocol_of_kip_890(client: TransactionalClient) -> Iterator[object]:
    first = client.begin()
    yield client.produce(first, 3, b"not zero", version=NEW_PRODUCE)
    yield client.produce(first, 0, b"a", version=NEW_PRODUCE)
    yield client.described()
    yield client.read()
    error, second = client.end(first, version=NEW_END)
    yield error, second
    yield client.described()
    yield client.producers()
    yield client.end(first, version=NEW_END)
    yield client.end(first, is_commit=False, version=NEW_END)
    yield client.produce(first, 1, b"late", version=NEW_PRODUCE)
    yield client.produce(second, 1, b"not zero", version=NEW_PRODUCE)
    yield client.described()
    yield client.produce(second, 0, b"b", b"c", version=NEW_PRODUCE)
    yield client.produce(second, 2, b"d", version=NEW_PRODUCE)
    yield client.produce(second, 0, b"e", version=NEW_PRODUCE, partition=1)
    error, third = client.end(second, is_commit=False, version=NEW_END)
    yield error, third
    yield client.end(second, is_commit=False, version=NEW_END)
    yield client.end(second, version=NEW_END)
    yield client.end(first, version=NEW_END)
    yield client.described()
    yield client.read(), client.read(1)
    yield client.producers(), client.producers(1)


def ends_of_what_was_never_begun(client: TransactionalClient) -> Iterator[object]:
    yield client.end((5, 0))
    yield client.end((5, 0), version=NEW_END)
    yield client.end((5, 0), name="")
    first = client.begin()
    yield client.end(first)
    yield client.end(first, is_commit=False)
    yield client.end(first, version=NEW_END)
    error, second = client.end(first, is_commit=False, version=NEW_END)
    yield error, second
    yield client.described()
    yield client.end(first, is_commit=False, version=NEW_END)
    error, third = client.end(second, is_commit=False, version=NEW_END)
    yield error, third
    yield client.end(third, version=NEW_END)
    yield client.produce(third, 0, b"a", version=NEW_PRODUCE)
    error, fourth = client.end(third, version=NEW_END)
    yield error, fourth
    yield client.end(fourth, version=NEW_END)
    yield client.end(fourth, is_commit=False, version=NEW_END)
    yield client.described()


def producers_that_are_fenced(client: TransactionalClient) -> Iterator[object]:
    first = client.begin()
    yield client.add(first, 0)
    yield client.produce(first, 0, b"a")
    yield client.init()[0]
    client.settle()
    yield client.described()
    yield client.producers()
    second = client.begin()
    yield second
    yield client.produce(first, 1, b"late")
    yield client.add(first, 0), client.add(first, 0, version=1)
    yield client.add_offsets(first), client.add_offsets(first, version=1)
    yield client.end(first), client.end(first, version=1), client.end(first, version=NEW_END)
    yield client.commit_offset(first, 1), client.commit_offset(first, 1, version=NEW_OFFSETS)
    yield client.produce(first, 0, b"late", partition=1, version=NEW_PRODUCE)
    yield client.init(was=first), client.init(was=first, version=3)
    yield client.add((second[0], 99), 0), client.add((12345, 0), 0)
    yield client.read()


def producers_that_go_on_after_an_error(client: TransactionalClient) -> Iterator[object]:
    first = client.begin()
    error, second = client.init(was=first)
    yield error, second
    yield client.init(was=first)
    yield client.init(was=(second[0], 7))
    error, third = client.init(was=second)
    yield error, third
    yield client.init(was=first)
    yield client.init(was=(98765, 0))
    yield client.init(was=(third[0], -1)), client.init(was=(-1, 1))
    yield client.produce(third, 0, b"a", version=NEW_PRODUCE)
    yield client.init(was=third)[0]
    client.settle()
    yield client.described()
    yield client.init(was=third)
    yield client.described()
    yield client.read()


def what_no_producer_gets(client: TransactionalClient) -> Iterator[object]:
    yield client.init("")
    yield client.init(timeout_ms=0), client.init(timeout_ms=-1)
    yield client.init(timeout_ms=900_001), client.init(timeout_ms=900_000)[0]
    yield client.add((UNKNOWN_ID, 0), 0), client.add_offsets((UNKNOWN_ID, 0))
    first = client.begin()
    yield client.add(first, 0, 9), client.add(first, 0, topic="none-such")
    yield client.described()
    yield client.described(""), client.described("none-such")
    yield client.produce(first, 0, b"a", has_name=False)
    yield client.produce(first, 0, b"a", has_name=False, is_transactional=False)
    yield client.commit_offset(first, 1, version=4), client.commit_offset(first, 1, version=0)
    for version in (10, 11, 12):
        yield client.produce((first[0], 7), 0, b"a", version=version)
        yield client.produce((UNKNOWN_ID, 0), 0, b"a", version=version, partition=1)
    for version in (10, 11):
        yield client.produce(first, 0, b"a", version=version, partition=1)


def offsets_of_the_older_protocol(client: TransactionalClient) -> Iterator[object]:
    first = client.begin()
    yield client.offsets()
    yield client.commit_offset(first, 5)
    yield client.add_offsets(first)
    yield client.described()
    yield client.offsets()
    yield client.commit_offset(first, 5)
    yield client.commit_offset(first, 5, partition=9)
    yield client.commit_offset(first, 5, metadata="m" * 5_000)
    yield client.commit_offset(first, 5, generation=1)
    yield client.commit_offset(first, 5, generation=1, member_id="m")
    yield client.commit_offset(first, 5, member_id="m")
    yield client.commit_offset(first, 5, group="")
    yield client.offsets(), client.offsets(is_stable=False)
    yield client.commit_offset(first, 6)
    yield client.end(first)
    yield client.offsets()
    yield client.add_offsets(first)
    yield client.commit_offset(first, 7)
    yield client.offsets(), client.offsets(is_stable=False)
    yield client.end(first, is_commit=False)
    yield client.offsets()


def offsets_of_kip_890(client: TransactionalClient) -> Iterator[object]:
    first = client.begin()
    yield client.commit_offset(first, 5, version=NEW_OFFSETS)
    yield client.described()
    yield client.offsets(), client.offsets(is_stable=False)
    yield client.produce(first, 0, b"a", version=NEW_PRODUCE)
    error, second = client.end(first, version=NEW_END)
    yield error, second
    yield client.offsets()
    yield client.commit_offset(first, 6, version=NEW_OFFSETS)
    yield client.commit_offset((second[0], 9), 6, version=NEW_OFFSETS)
    yield client.commit_offset((UNKNOWN_ID, 0), 6, version=NEW_OFFSETS)
    yield client.commit_offset(second, 6, version=NEW_OFFSETS)
    yield client.end(second, is_commit=False, version=NEW_END)
    yield client.offsets()


def offsets_by_topic_id(client: TransactionalClient) -> Iterator[object]:
    """KIP-1319: a topic is known by its id alone, and errors name what is wrong with the member."""
    first = client.begin()

    def commit(offset: int, **member: Any) -> list[str]:
        topic_id = member.pop("topic_id", client.topic_id)
        return client.commit_offset(
            first, offset, version=OFFSETS_BY_ID, topic_id=topic_id, **member
        )

    yield commit(4, generation=1, member_id="m")  # there is no group yet
    yield commit(5)
    yield commit(6, topic_id=bytes(16)), commit(6, topic_id=b"unknown".ljust(16, b"!"))
    yield commit(6, partition=PARTITION_COUNT)
    yield client.end(first, version=NEW_END)[0]
    yield client.offsets()
    epoch = client.join("m", 0)
    first = client.begin()
    for generation, member_id in ((epoch, "m"), (epoch + 1, "m"), (epoch, "n"), (-1, "")):
        yield commit(7, generation=generation, member_id=member_id)
    yield client.end(first, version=NEW_END)[0]
    yield client.offsets()


def offsets_of_members(client: TransactionalClient) -> Iterator[object]:
    """KIP-447: a request that names a member must come from it, in its generation or epoch."""
    client.join("m", 0)
    first = client.begin()
    yield client.add_offsets(first)
    for generation, member_id in ((-1, ""), (1, "m"), (0, "m"), (-1, "m"), (1, ""), (1, "n")):
        yield client.commit_offset(first, 5, generation=generation, member_id=member_id)
    epoch = client.join("m", 0)
    for generation in (epoch, epoch - 1, epoch + 1):
        yield client.commit_offset(
            first, 6, generation=generation, member_id="m", version=NEW_OFFSETS
        )
    yield client.end(first)
    yield client.offsets(), client.offsets(is_stable=False)


def a_time_out(client: TransactionalClient) -> Iterator[object]:
    first = client.begin(timeout_ms=TIME_OUT_MS)
    yield client.produce(first, 0, b"a", version=NEW_PRODUCE)
    yield client.commit_offset(first, 5, version=NEW_OFFSETS)
    wait_until_over(client)
    yield client.described()
    yield client.offsets(), client.read(), client.producers()
    yield client.produce(first, 1, b"late", version=NEW_PRODUCE)
    yield client.produce(first, 1, b"late", version=OLD_PRODUCE)
    yield client.commit_offset(first, 6, version=NEW_OFFSETS)
    yield client.end(first, version=OLD_END)
    yield client.end(first, version=NEW_END)
    error, second = client.end(first, is_commit=False, version=NEW_END)
    yield error, second
    yield client.produce(second, 0, b"b", version=NEW_PRODUCE)
    yield client.end(second, version=NEW_END)


def wait_until_over(client: TransactionalClient) -> None:
    """Wait until the transaction has timed out."""
    exchange = client._exchange
    if isinstance(exchange, FakeExchange):
        exchange.cluster.advance(exchange.cluster.now_ms + 2 * TIME_OUT_MS)
    wait_until(lambda: client.described()[1] == "CompleteAbort", "the transaction is aborted")


def requests_among_brokers(client: TransactionalClient) -> Iterator[object]:
    first = client.begin()
    yield client.verify(first, 0)
    yield client.verify(first, 0, is_only=False)
    yield client.verify(first, 0, 1)
    yield (
        client.verify((first[0], 9), 0),
        client.verify((UNKNOWN_ID, 0), 0),
        client.verify(first, 7),
    )
    yield client.verify(first, 1, is_only=False, version=5)
    yield client.described()
    yield client.end(first)
    yield client.verify(first, 0)


def lists(client: TransactionalClient) -> Iterator[object]:
    yield client.listed()
    first = client.begin()
    yield client.listed()
    yield client.add(first, 0)
    yield client.listed(state_filters=["Ongoing"]), client.listed(state_filters=["Empty"])
    yield client.listed(state_filters=["Ongoing", "Odd"]), client.listed(state_filters=["Odd"])
    yield client.listed(duration_filter=100_000), client.listed(producer_id_filters=[12345678])
    yield (
        client.listed(transactional_id_pattern="id-.*"),
        client.listed(transactional_id_pattern="id"),
    )
    yield client.listed(transactional_id_pattern="("), client.listed(transactional_id_pattern="")
    yield client.end(first)
    yield client.listed(state_filters=["CompleteCommit"])


def markers_by_an_administrator(client: TransactionalClient) -> Iterator[object]:
    first = client.begin()
    yield client.add(first, 0)
    yield client.produce(first, 0, b"a")
    yield client.mark((first[0], 7), 9, is_commit=False)
    yield client.mark(first, 0, is_commit=False)
    yield client.read(), client.producers()
    yield client.mark(first, 0, is_commit=False, coordinator_epoch=3)
    yield client.mark(first, 0, is_commit=False, coordinator_epoch=2)
    yield client.mark((first[0], 5), 0, is_commit=True, coordinator_epoch=3)
    yield client.mark(first, 0, is_commit=False, coordinator_epoch=3)
    yield client.producers()


def a_fencing_of_before_kip_890(client: TransactionalClient) -> Iterator[object]:
    first = client.begin(timeout_ms=TIME_OUT_MS)
    yield client.add(first, 0)
    yield client.produce(first, 0, b"a")
    wait_until_over(client)
    yield client.described(), client.producers(), client.read()
    yield client.produce(first, 1, b"late")
    yield client.add(first, 0), client.end(first), client.end(first, is_commit=False)
    yield client.init(was=first)[0]
    second = client.begin()
    yield second
    yield client.add(second, 0)
    yield client.produce(second, 0, b"b")
    yield client.init()[0]
    client.settle()
    yield client.described(), client.producers()
    yield client.begin()


SCRIPTS: list[Script] = [
    the_protocol_of_kip_98,
    the_protocol_of_kip_890,
    ends_of_what_was_never_begun,
    producers_that_are_fenced,
    producers_that_go_on_after_an_error,
    what_no_producer_gets,
    offsets_of_the_older_protocol,
    offsets_of_kip_890,
    offsets_by_topic_id,
    offsets_of_members,
    a_time_out,
    requests_among_brokers,
    lists,
    markers_by_an_administrator,
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_fake_coordinator_responds_as_kafkas_does(
    script: Script, kafka: RealExchange, fake: FakeExchange
) -> None:
    outcomes = []
    for exchange in (fake, kafka):
        client = TransactionalClient(exchange)
        client.prepare()
        outcomes.append(list(script(client)))
    assert outcomes[0] == outcomes[1]


@pytest.mark.soak
@pytest.mark.parametrize(
    "script",
    [the_protocol_of_kip_98, offsets_of_the_older_protocol, a_fencing_of_before_kip_890],
    ids=lambda script: script.__name__,
)
def test_the_older_protocol_is_that_of_older_brokers(
    script: Script, kafka_cluster_factory: KafkaClusterFactory
) -> None:
    settings = TransactionSettings(transaction_version=1)
    fake = FakeExchange(FakeCluster(1, transaction_settings=settings))
    outcomes = []
    with kafka_cluster_factory(version=KAFKA_VERSIONS[-1], config=OLD_BROKER_SETTINGS) as cluster:
        for exchange in (fake, RealExchange(cluster.bootstrap_servers)):
            client = TransactionalClient(exchange)
            client.prepare()
            outcomes.append(list(script(client)))
    assert outcomes[0] == outcomes[1]


def test_the_feature_of_transactions_is_named_as_kafka_names_it(
    kafka: RealExchange, fake: FakeExchange
) -> None:
    assert TransactionalClient(fake).features() == TransactionalClient(kafka).features()
