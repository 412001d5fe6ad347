"""The fake cleaner leaves the same records of a log as Kafka's.

Goal: a consumer finds in a compacted fake topic what it would find in a real one. Method: each
script writes the same batches to Kafka and to the fake broker, then lets both clean, and what is
left has to be the same, batch by batch. Nothing is cleaned while a script writes: the shortest lag
of compaction is a day then. A batch with a later time begins another segment.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pykclient.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from pykclient.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pykclient.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pykclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pykclient.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from pykclient.protocol.messages.offset_records import OffsetCommitValue
from pykclient.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from pykclient.protocol.messages.transaction_records import TransactionLogValue
from pykclient.protocol.reader import Reader
from pykclient.records.batch import RecordBatch, iterate_batches
from pykclient.records.builder import RecordBatchBuilder
from pykclient.records.compression import Codec
from pykclient.records.control import ControlType, control_type
from pykclient.testing import FakeCluster, GroupSettings, TransactionSettings
from pykclient.testing.cluster.jars import KAFKA_VERSIONS
from pykclient.testing.cluster.properties import INTERNAL_PARTITION_COUNT
from pykclient.testing.fake.groups.registry import place
from tests.integration.exchange import FakeExchange, RealExchange
from tests.integration.group_members import wait_until
from tests.integration.test_fake_transactions_against_kafka import NEW_OFFSETS, TransactionalClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pykclient.testing.fixtures import KafkaClusterFactory
    from tests.integration.test_fake_transactions_against_kafka import Producer

    Script = Callable[["Writer"], Iterator[None]]

pytestmark = pytest.mark.kafka

READ_COMMITTED = 1
OWN_TOPICS = "__consumer_offsets", "__transaction_state"
OFTEN_CLEANED = {"segment.ms": "1", "min.cleanable.dirty.ratio": "0.01"}
DAY_MS = 24 * 3600 * 1000
SEGMENT_MS = 1_000
BROKER_SETTINGS = {"log.cleaner.backoff.ms": 50}
TOPIC = 2
"""Resource type of a topic in IncrementalAlterConfigs."""
NO_PRODUCER = -1, -1

Rows = dict[str, str | None]


class Writer(TransactionalClient):
    """A log that a script writes and reads; cleaning runs where the script yields."""

    def begin_log(self, start_ms: int, config: Mapping[str, str]) -> None:
        """Make the topic compacted; `start_ms` is the time of the first record."""
        self.prepare()
        self._time_ms = start_ms
        self._sequences: dict[Producer, int] = {}
        self.configure(
            {
                "cleanup.policy": "compact",
                "segment.ms": str(SEGMENT_MS),
                "min.cleanable.dirty.ratio": "0.01",
                "min.compaction.lag.ms": str(DAY_MS),
                **config,
            }
        )

    def configure(self, config: Mapping[str, str], topic: str | None = None) -> None:
        """Change settings of the topic, or of another."""
        changes = [AlterableConfig(name, 0, value) for name, value in config.items()]
        request = IncrementalAlterConfigsRequest(
            [AlterConfigsResource(TOPIC, topic or self.topic, changes)]
        )
        response = self._exchange.send(request, IncrementalAlterConfigsResponse)
        assert [each.error_code for each in response.responses] == [0]

    def roll(self) -> None:
        """Start a new segment with the next batch."""
        self._time_ms += 10 * SEGMENT_MS

    def idempotent(self) -> Producer:
        """Return a producer without a transactional id."""
        response = self._exchange.send(InitProducerIdRequest(None), InitProducerIdResponse)
        return self._producer(response.producer_id, response.producer_epoch)

    def put(
        self,
        rows: Rows,
        producer: Producer = NO_PRODUCER,
        *,
        codec: Codec = Codec.NONE,
        is_transactional: bool = True,
    ) -> tuple[str, int]:
        """Write one batch; of a producer, in its transaction unless it has none."""
        builder: RecordBatchBuilder[None] = RecordBatchBuilder(
            batch_size_bytes=100_000, codec=codec
        )
        for key, value in rows.items():
            self._time_ms += 1
            data = None if value is None else value.encode()
            headers = [("h", b"1"), ("n", None)] if value == "headers" else None
            builder.try_append(self._time_ms, key.encode() if key else None, data, headers)
        has_producer = producer != NO_PRODUCER
        sequence = self._sequences.get(producer, 0)
        records = builder.close(
            producer_id=self._id(producer[0]),
            producer_epoch=producer[1],
            base_sequence=sequence if has_producer else -1,
            is_transactional=has_producer and is_transactional,
        )
        self._sequences[producer] = sequence + len(rows)
        partition = PartitionProduceData(0, bytes(records))
        request = ProduceRequest(
            transactional_id=self.name if has_producer and is_transactional else None,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=self.topic, partition_data=[partition])],
        )
        response = self._exchange.send(request, ProduceResponse, 12)
        ((found,),) = ([*topic.partition_responses] for topic in response.responses)
        return str(found.error_code), found.base_offset

    def finish(self, producer: Producer, *, is_commit: bool = True) -> Producer:
        """End a transaction; the producer as it goes on."""
        error, following = self.end(producer, is_commit=is_commit, version=5)
        assert error == "NONE"
        return following

    def batches(self) -> list[tuple[object, ...]]:
        """All batches of the log; the times of markers are the broker's, and left out."""
        found: list[tuple[object, ...]] = []
        offset = 0
        while True:
            batches = self._batches(offset)
            if not batches:
                return found
            for batch in batches:
                rows = list(batch.records()) if batch.record_count else []
                found.append(
                    (
                        batch.base_offset,
                        batch.last_offset,
                        batch.attributes,
                        self._producer(batch.producer_id, batch.producer_epoch),
                        batch.base_sequence,
                        [(row[0], *(row[2:] if batch.is_control else row[1:])) for row in rows],
                        0 if batch.is_control else batch.max_timestamp_ms,
                    )
                )
            offset = batches[-1].last_offset + 1

    def commit(self, offset: int, partition: int = 0) -> None:
        """OffsetCommit of one partition, by a client that is no member."""
        each = OffsetCommitRequestPartition(partition, offset)
        request = OffsetCommitRequest(
            self.group, topics=[OffsetCommitRequestTopic(self.topic, partitions=[each])]
        )
        response = self._exchange.send(request, OffsetCommitResponse, 9)
        assert [p.error_code for topic in response.topics for p in topic.partitions] == [0]

    def delete_offset(self) -> None:
        """OffsetDelete of partition 0."""
        topic = OffsetDeleteRequestTopic(self.topic, [OffsetDeleteRequestPartition(0)])
        request = OffsetDeleteRequest(self.group, [topic])
        response = self._exchange.send(request, OffsetDeleteResponse)
        errors = [p.error_code for topic in response.topics for p in topic.partitions]
        assert (response.error_code, errors) == (0, [0])

    def offset_batches(self) -> list[tuple[object, ...]]:
        """Return the group's offsets and transaction markers in Kafka's own topic."""
        found: list[tuple[object, ...]] = []
        for batch in self._own_batches(OWN_TOPICS[0], self.group):
            if batch.is_control:
                if batch.producer_id in self._ids:
                    found.append((control_type(batch),))
                continue
            rows = batch.records() if batch.record_count else ()
            values = [row[3] for row in rows if self.group.encode() in (row[2] or b"")]
            if values:
                offsets = (None if value is None else _offset_of(value) for value in values)
                found.append((batch.is_transactional, *offsets))
        return found

    def own_records(self) -> list[tuple[str, int, int]]:
        """Return the records of the group and the transactional id in Kafka's own topics."""
        found: list[tuple[str, int, int]] = []
        for topic, name in zip(OWN_TOPICS, (self.group, self.name), strict=True):
            rows = [row for batch in self._own_batches(topic, name) for row in batch.records()]
            found += [
                _own_record(topic, key, value)
                for _, _, key, value, _ in rows
                if key is not None and value is not None and name.encode() in key
            ]
        return found

    def _own_batches(self, topic: str, name: str) -> Iterator[RecordBatch]:
        """All batches of the partition of Kafka's own topic that has a group or an id."""
        offset, partition = 0, place(name, INTERNAL_PARTITION_COUNT)
        while batches := self._batches(offset, topic, partition):
            offset = batches[-1].last_offset + 1
            yield from batches

    def aborted(self) -> list[int]:
        """Return the first offsets of aborted transactions that a reader from the start gets."""
        found = self._fetch(0, READ_COMMITTED)
        return sorted(each.first_offset for each in found.aborted_transactions or ())

    def _batches(
        self, offset: int, topic: str | None = None, partition: int = 0
    ) -> list[RecordBatch]:
        data = self._fetch(offset, topic=topic, number=partition)
        records = memoryview(bytes(data.records or b""))
        return list(iterate_batches(records, topic="t", partition=0, start_offset=offset))

    def _fetch(
        self,
        offset: int,
        isolation_level: int = 0,
        *,
        topic: str | None = None,
        number: int = 0,
    ) -> PartitionData:
        partition = FetchPartition(number, fetch_offset=offset, partition_max_bytes=10**6)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=10**6,
            isolation_level=isolation_level,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic or self.topic, partitions=[partition])],
        )
        response = self._exchange.send(request, FetchResponse, 12)
        ((found,),) = (topic.partitions for topic in response.responses)
        return found


def _offset_of(value: bytes) -> int:
    """Return the offset that a record of a group has."""
    return OffsetCommitValue.read(Reader(value[2:]), int.from_bytes(value[:2], "big")).offset


def _own_record(topic: str, key: bytes, value: bytes) -> tuple[str, int, int]:
    """Return the topic, the versions of the key and the value together, and what counts up."""
    version = int.from_bytes(value[:2], "big")
    versions = int.from_bytes(key[:2], "big") * 10 + version
    if topic == OWN_TOPICS[0]:
        return topic, versions, _offset_of(value)
    return topic, versions, TransactionLogValue.read(Reader(value[2:]), version).producer_epoch


@pytest.fixture(scope="module")
def kafka(kafka_cluster_factory: KafkaClusterFactory) -> Iterator[RealExchange]:
    with kafka_cluster_factory(version=KAFKA_VERSIONS[0], config=BROKER_SETTINGS) as cluster:
        yield RealExchange(cluster.bootstrap_servers)


def the_newest_of_each_key_stays(log: Writer) -> Iterator[None]:
    log.put({"a": "1", "b": "1", "c": "1"})
    log.put({"a": "2"})
    log.put({"d": "headers", "b": "2"}, codec=Codec.GZIP)
    log.put({"a": "3", "e": "1"}, codec=Codec.ZSTD)
    log.roll()
    log.put({"b": "3", "f": "1"})
    log.put({"a": "4"})
    log.roll()
    log.put({"c": "2", "e": "2"})
    yield
    log.put({"f": "2"})
    log.roll()
    log.put({"c": "3"})
    yield


def records_without_a_value_go_in_two_passes(log: Writer) -> Iterator[None]:
    log.configure({"delete.retention.ms": "0"})
    log.put({"a": "1", "b": "1"})
    log.put({"a": None})
    log.roll()
    log.put({"c": "1", "b": None})
    log.roll()
    log.put({"d": "1"})
    yield
    log.roll()
    log.put({"e": "1"})
    yield
    log.roll()
    log.put({"f": "1"})
    yield


def records_without_a_value_stay_for_a_day(log: Writer) -> Iterator[None]:
    log.put({"a": "1", "b": "1"})
    log.put({"a": None, "c": "1"})
    for key in ("d", "e", "f"):
        log.roll()
        log.put({key: "1"})
        yield


def what_was_aborted_goes(log: Writer) -> Iterator[None]:
    log.configure({"delete.retention.ms": "0"})
    producer = log.begin()
    log.put({"a": "1"})
    log.put({"a": "aborted", "b": "aborted"}, producer)
    producer = log.finish(producer, is_commit=False)
    log.put({"c": "1", "d": "1"}, producer)
    log.put({"c": "2"}, producer)
    producer = log.finish(producer)
    log.put({"e": "aborted"}, producer)
    producer = log.finish(producer, is_commit=False)
    log.roll()
    log.put({"c": "3"})
    for key in ("x", "y", "z", "c"):
        yield
        log.roll()
        log.put({key: "1"})


def what_is_open_stays(log: Writer) -> Iterator[None]:
    producer = log.begin()
    log.put({"a": "1", "b": "1"})
    log.roll()
    log.put({"a": "2"})
    log.roll()
    log.put({"b": "2"})
    log.put({"a": "3"}, producer)
    log.roll()
    log.put({"a": "4", "b": "4"})
    log.roll()
    log.put({"c": "1"})
    yield
    producer = log.finish(producer)
    log.put({"a": "5"}, producer)
    log.finish(producer, is_commit=False)
    log.roll()
    log.put({"d": "1"})
    yield


def the_last_batches_of_producers_stay(log: Writer) -> Iterator[None]:
    """Compaction keeps the header of a producer's last batch, which has its sequence number."""
    producer = log.begin()
    log.put({"a": "1"}, producer)
    log.put({"b": "1"}, producer)
    log.put({"a": "2"})
    log.put({"b": "2"})
    log.roll()
    log.put({"c": "1"})
    yield
    log.finish(producer)
    log.roll()
    log.put({"c": "2"})
    yield
    log.roll()
    log.put({"c": "3"})
    yield
    other = log.idempotent()
    log.put({"a": "5"}, other, is_transactional=False)
    log.put({"b": "5"}, other, is_transactional=False, codec=Codec.GZIP)
    log.put({"a": "6", "b": "6"})
    log.roll()
    log.put({"c": "4"})
    yield


SCRIPTS: list[Script] = [
    the_newest_of_each_key_stays,
    records_without_a_value_go_in_two_passes,
    records_without_a_value_stay_for_a_day,
    what_was_aborted_goes,
    what_is_open_stays,
    the_last_batches_of_producers_stay,
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_fake_log_is_compacted_as_kafkas_is(script: Script, kafka: RealExchange) -> None:
    start_ms = int(time.time() * 1000)
    cluster = FakeCluster(1, epoch_ms=start_ms)
    fake = Writer(FakeExchange(cluster))
    real = Writer(kafka)
    for each in (fake, real):
        each.begin_log(start_ms, {})
    for number, _ in enumerate(zip(script(fake), script(real), strict=True)):
        assert fake.batches() == real.batches(), f"as written, pass {number}"
        for each in (fake, real):
            each.configure({"min.compaction.lag.ms": "0"})
        before = real.batches()
        cluster.advance(cluster.now_ms + 1)
        cluster.clean_logs()
        expected = fake.batches()
        wait_for(real, expected, before)
        assert real.batches() == expected, f"cleaned, pass {number}"
        assert real.aborted() == fake.aborted()
        for each in (fake, real):
            each.configure({"min.compaction.lag.ms": str(DAY_MS)})


def wait_for(log: Writer, expected: object, before: object) -> None:
    """Wait until the log has been cleaned: it is as expected, or at least another one."""
    deadline_s = time.monotonic() + 5
    while time.monotonic() < deadline_s:
        found = log.batches()
        if found == expected or found != before:
            break
        time.sleep(0.05)


def test_a_record_without_a_key_is_refused(kafka: RealExchange) -> None:
    outcomes = []
    for exchange in (FakeExchange(FakeCluster(1)), kafka):
        log = Writer(exchange)
        log.begin_log(int(time.time() * 1000), {})
        outcomes.append((log.put({"": "1"}), log.put({"a": "1", "": "2"}), log.batches()))
    assert outcomes[0] == outcomes[1]


def let_time_pass(cluster: FakeCluster) -> None:
    """Start a new segment with the next record, on both brokers."""
    cluster.advance(cluster.now_ms + 5)
    begun_s = time.monotonic()
    wait_until(lambda: time.monotonic() > begun_s + 0.005, "time passes")


def await_equal(read: Callable[[], object], expected: object) -> None:
    """Wait until a real broker has cleaned this much, or for ten seconds."""
    deadline_s = time.monotonic() + 10
    while (found := read()) != expected and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert found == expected


def test_kafkas_own_topics_are_compacted_as_kafkas_are(kafka: RealExchange) -> None:
    """Compaction keeps the last two records of each group's offset and transactional id's epoch.

    The last one is in the segment that is written to, where nothing is compared.
    """
    count = INTERNAL_PARTITION_COUNT
    cluster = FakeCluster(
        1,
        group_settings=GroupSettings(offsets_topic_num_partitions=count),
        transaction_settings=TransactionSettings(transaction_state_log_num_partitions=count),
    )
    fake, real = Writer(FakeExchange(cluster)), Writer(kafka)
    for each in (fake, real):
        each.prepare()
        for topic in OWN_TOPICS:
            each.configure(OFTEN_CLEANED, topic)
    for number in range(5):
        for each in (fake, real):
            each.commit(number)
            assert each.begin() == (0, number)
        let_time_pass(cluster)
    cluster.clean_logs()
    expected = fake.own_records()
    assert [value[-1] for value in expected] == [3, 4, 3, 4]
    await_equal(real.own_records, expected)


def test_offsets_of_transactions_and_deletions_are_compacted_as_kafkas_are(
    kafka: RealExchange,
) -> None:
    """Markers stay for `delete.retention.ms`, and so do tombstones."""
    count = INTERNAL_PARTITION_COUNT
    cluster = FakeCluster(1, group_settings=GroupSettings(offsets_topic_num_partitions=count))
    fake, real = Writer(FakeExchange(cluster)), Writer(kafka)
    for each in (fake, real):
        each.prepare()
        each.configure(OFTEN_CLEANED, OWN_TOPICS[0])
    for _ in zip(offsets_that_go(fake), offsets_that_go(real), strict=True):
        let_time_pass(cluster)
    assert len(fake.offset_batches()) == 11
    cluster.clean_logs()
    expected = fake.offset_batches()
    markers = [ControlType.COMMIT, ControlType.ABORT] * 2
    assert expected == [*((marker,) for marker in markers), (False, None), (False, 5)]
    await_equal(real.offset_batches, expected)


def offsets_that_go(writer: Writer) -> Iterator[None]:
    """Commit and abort offsets in transactions; commit one without, and delete it.

    The last commit, of another partition, has all that in segments that may be cleaned.
    """
    producer = writer.begin()
    for number in range(4):
        assert writer.commit_offset(producer, number, version=NEW_OFFSETS) == ["NONE"]
        yield
        producer = writer.finish(producer, is_commit=number % 2 == 0)
        yield
    writer.commit(4)
    yield
    writer.delete_offset()
    yield
    writer.commit(5, partition=1)
