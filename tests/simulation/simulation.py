"""A real producer and consumer on a fake cluster, with failures chosen by a seed.

Between events the seed moves leaders, stops and starts brokers, stalls replicas, cuts connections,
and makes brokers drop, refuse, delay, or execute requests without a response. After each step the
log is compared with deliveries and read records: see `check_step`. In the end everything is healed,
and all records must arrive.

Owner: the test that created it.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from pykclient.errors import BufferExhaustedError, KafkaTimeoutError
from pykclient.errors.broker import (
    FencedLeaderEpochError,
    FetchSessionIdNotFoundError,
    InvalidFetchSessionEpochError,
    KafkaStorageError,
    LeaderNotAvailableError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.clock import ManualClock
from pykclient.testing.fake.cluster import FakeCluster
from pykclient.types import TopicPartition
from tests.simulation.simulated_clients import SimulatedConsumer, SimulatedProducer
from tests.simulation.simulated_world import SimulatedWorld

if TYPE_CHECKING:
    from pykclient.accel import Delivery
    from pykclient.consumer.record import ConsumerRecord
    from pykclient.producer.record import RecordMetadata
    from pykclient.testing.fake.topics import Partition
    from tests.simulation.simulated_world import ApiFaults

TOPIC = "t"
PARTITIONS = [TopicPartition(TOPIC, number) for number in range(2)]
BROKER_COUNT = 3
STEP_COUNT = 300
HEAL_STEP_COUNT_MAX = 20_000

API_FAULTS = {
    ApiKey.PRODUCE: (NotLeaderOrFollowerError, NotEnoughReplicasError, KafkaStorageError),
    ApiKey.FETCH: (
        NotLeaderOrFollowerError,
        UnknownTopicOrPartitionError,
        KafkaStorageError,
        FetchSessionIdNotFoundError,
        InvalidFetchSessionEpochError,
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (NotLeaderOrFollowerError, FencedLeaderEpochError),
    ApiKey.METADATA: (LeaderNotAvailableError, UnknownTopicOrPartitionError),
    ApiKey.LIST_OFFSETS: (NotLeaderOrFollowerError, UnknownTopicOrPartitionError),
}


class Sent(NamedTuple):
    """A record and its delivery."""

    partition: TopicPartition
    value: bytes
    delivery: Delivery[RecordMetadata]


class PartitionCheck:
    """Checks new records after each step, and all of them after a change of leader."""

    def __init__(self, partition: Partition) -> None:
        self.values: list[bytes | None] = []
        """Values in the log, by offset."""
        self._partition = partition
        self._unchecked: list[Sent] = []
        self._places: dict[bytes, int] = {}
        """Position of each value among all sent records, of any partition."""
        self._begin_again()

    def _begin_again(self) -> None:
        self._leader_epoch = self._partition.leader_epoch
        self._last_place = -1
        self._sent_count = self._read_count = 0
        self._unchecked.clear()
        self.values.clear()

    def check(self, sent: list[Sent], read: list[ConsumerRecord]) -> None:
        """Check that the log, deliveries and read records agree."""
        if self._leader_epoch != self._partition.leader_epoch:
            self._begin_again()
        for place in range(len(self._places), len(sent)):
            self._places[sent[place].value] = place
        self._take_new_batches()
        name = self._partition.name
        self._unchecked += [each for each in sent[self._sent_count :] if each.partition == name]
        self._sent_count = len(sent)
        waiting = []
        for each in self._unchecked:
            if not each.delivery.done():
                waiting.append(each)
            elif each.delivery.exception() is None:
                self._check_delivery(each)
        self._unchecked = waiting
        self._check_read(read)

    def _take_new_batches(self) -> None:
        places = self._places
        for batch in self._partition.log.batches(len(self.values)):
            columns = batch.records()
            assert columns.offsets[0] == len(self.values)
            for value in columns.values:
                assert value is not None
                assert places[value] != self._last_place, f"doubled {value!r}"
                assert places[value] > self._last_place, f"reordered {value!r}"
                self._last_place = places[value]
                self.values.append(value)

    def _check_delivery(self, sent: Sent) -> None:
        offset = sent.delivery.result().offset
        assert offset is not None
        assert offset < len(self.values), f"lost {sent.value!r}"
        assert self.values[offset] == sent.value, f"lost {sent.value!r}"

    def _check_read(self, read: list[ConsumerRecord]) -> None:
        for offset in range(self._read_count, len(read)):
            assert read[offset].offset == offset, "skipped"
            assert read[offset].value == self.values[offset], "read what is not there"
        self._read_count = len(read)


class Simulation(SimulatedWorld):
    """A run."""

    api_faults: ClassVar[ApiFaults] = API_FAULTS

    def __init__(self, seed: int, **producer_settings: object) -> None:
        random, clock = Random(seed), ManualClock(1_000)
        cluster = FakeCluster(
            BROKER_COUNT,
            min_insync_replicas=2,
            replication_delay_ms=random.choice((0, 1, 10)),
            now_ms=clock.now_ms,
        )
        super().__init__(random, clock, cluster)
        segment_bytes = random.choice((500, 5_000, 1_000_000))
        config = {"segment.bytes": str(segment_bytes)}
        self.cluster.create_topic(TOPIC, len(PARTITIONS), config=config)
        self.producer = SimulatedProducer(
            self.network,
            seed,
            bootstrap_servers=self.bootstrap,
            linger_ms=random.choice((0, 5)),
            batch_size=random.choice((150, 1_000, 16_384)),
            request_timeout_ms=2_000,
            delivery_timeout_ms=60_000,
            **producer_settings,
        )
        self.consumer = SimulatedConsumer(
            self.network,
            seed,
            PARTITIONS,
            bootstrap_servers=self.bootstrap,
            auto_offset_reset="earliest",
            request_timeout_ms=2_000,
            fetch_max_wait_ms=random.choice((10, 200)),
            max_partition_fetch_bytes=random.choice((400, 1_000_000)),
        )
        self.sent: list[Sent] = []
        self._turns = (self.producer.turn, self.consumer.turn)
        self._checks = {name: PartitionCheck(self.cluster.partition(name)) for name in PARTITIONS}

    def run(self) -> None:
        """Break things, heal them, and wait until everything has arrived."""
        for _ in range(STEP_COUNT):
            self._send_some()
            self._break_something()
            self._step(self._turns)
            self.check_step()
        self._heal()
        for _ in range(HEAL_STEP_COUNT_MAX):
            self._step(self._turns)
            if self._is_done():
                break
        self.check_end()

    # Steps.

    def _send_some(self) -> None:
        for _ in range(self.random.randrange(3)):
            partition = self.random.choice(PARTITIONS)
            value = b"%d-%d" % (partition.partition, len(self.sent))
            value += bytes(self.random.choice((0, 10, 100)))
            try:
                delivery = self.producer.send(TOPIC, value, partition=partition.partition)
            except (KafkaTimeoutError, BufferExhaustedError):
                return
            self.sent.append(Sent(partition, value, delivery))

    def _break_something(self) -> None:
        self._break_one(
            (0.04, self._move_leader),
            (0.06, self._stop_or_start),
            (0.08, self._stall_or_resume),
            (0.11, self._cut),
            (0.20, self._add_fault),
        )

    def _move_leader(self) -> None:
        name = self.random.choice(PARTITIONS)
        partition = self.cluster.partition(name)
        candidates = [each for each in partition.isr if each in self.cluster.alive]
        if candidates:
            self.met["leader move"] += 1
            self.cluster.move_leader(name, self.random.choice(candidates))

    def _is_done(self) -> bool:
        return all(sent.delivery.done() for sent in self.sent) and all(
            self._read_end(name) == self.cluster.partition(name).log.high_watermark
            for name in PARTITIONS
        )

    def _read_end(self, name: TopicPartition) -> int:
        records = self.consumer.read[name]
        return records[-1].offset + 1 if records else 0

    # Invariants.

    def check_step(self) -> None:
        """Check that acknowledged records are in the log, and that the log is read in order."""
        for name in PARTITIONS:
            self._checks[name].check(self.sent, self.consumer.read[name])

    def check_end(self) -> None:
        """Check that every delivery has ended, and that the whole log was read."""
        self.check_step()
        assert all(sent.delivery.done() for sent in self.sent), "a delivery without an end"
        assert not self.consumer.errors
        for name in PARTITIONS:
            read = [record.value for record in self.consumer.read[name]]
            assert read == self._checks[name].values, "not all was read"
