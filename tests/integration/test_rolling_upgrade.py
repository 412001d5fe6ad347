"""A cluster that is upgraded server by server while clients use it: nothing is lost or doubled.

Method: a producer writes numbers, copiers copy them in transactions, and groups read them, while
each server restarts with the newer version and leaders and coordinators move between the versions.
Then the features are upgraded, and new members get the newer protocol.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

import pytest

from pykclient import Admin, Consumer, ExactlyOnce, NewTopic, Producer, TopicPartition
from pykclient.errors import UnsupportedVersionError
from pykclient.protocol.message import Message
from pykclient.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from pykclient.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pykclient.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from pykclient.testing.cluster.probe import exchange, fetch_metadata
from pykclient.testing.port import Address
from tests.integration.group_members import GroupMember, wait_until
from tests.soak import BETWEEN, NEWEST, OLDEST, OWN_BROKERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Literal

    from pykclient.protocol.message import Request
    from pykclient.testing import KafkaCluster
    from pykclient.testing.cluster.properties import PropertyValue
    from pykclient.testing.fixtures import KafkaClusterFactory

    Protocol = Literal["classic", "consumer", "auto"]

pytestmark = [pytest.mark.kafka, pytest.mark.slow, OWN_BROKERS]

TOPIC = "in"
PARTITION_COUNT = 4
BROKERS = (1, 2)
CONFIG: dict[str, PropertyValue] = {
    # A broker that restarts is admitted when its former session has ended.
    "broker.session.timeout.ms": 2_000,
    "broker.heartbeat.interval.ms": 400,
}
TIMEOUT_S = 60.0
ROUND_SIZE = 20
COPIER_COUNT = len(BROKERS)
ROUND_PAUSE_S = 0.02
END = b"end"
GROUP, TRANSACTION = 0, 1
UPGRADE = 1
M = TypeVar("M", bound=Message)


class Servers:
    """The cluster as its administrator sees it."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        host, port = cluster.bootstrap_servers.split(",")[0].split(":")
        self._address = Address(host, int(port))

    def coordinators(self, key_type: int, names: list[str]) -> dict[str, int]:
        """Return the coordinators of groups or transactional ids, once the brokers know them."""
        found: dict[str, int] = {}

        def is_known() -> bool:
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=names)
            response = self._send(request, FindCoordinatorResponse)
            found.update((each.key, each.node_id) for each in response.coordinators)
            return all(each.error_code == 0 for each in response.coordinators)

        wait_until(is_known, "coordinators are known")
        return found

    def swap_leaders(self) -> None:
        """Swap the leaders of the two brokers, whatever their versions."""
        before = [replicas for _, replicas, _ in self._partitions()]
        topics = fetch_metadata(self._address, self._topics(), timeout=TIMEOUT_S).topics
        reversed_replicas = [
            ReassignableTopic(
                topic.name or "",
                [
                    ReassignablePartition(each.partition_index, each.replica_nodes[::-1])
                    for each in topic.partitions
                ],
            )
            for topic in topics
        ]
        request = AlterPartitionReassignmentsRequest(topics=reversed_replicas)
        assert self._send(request, AlterPartitionReassignmentsResponse).error_code == 0
        wait_until(
            lambda: all(
                now == then[::-1]
                for (_, now, _), then in zip(self._partitions(), before, strict=True)
            ),
            "the replicas are reversed",
        )
        self.elect_preferred_leaders()

    def elect_preferred_leaders(self) -> None:
        """Elect the preferred leaders once all replicas are in sync."""
        self.wait_for_replicas()
        self._send(ElectLeadersRequest(topic_partitions=None), ElectLeadersResponse)
        wait_until(
            lambda: all(leader == replicas[0] for leader, replicas, _ in self._partitions()),
            lambda: f"preferred leaders: {list(self._partitions())}",
        )

    def wait_for_replicas(self) -> None:
        """Wait until each broker has all partitions."""
        wait_until(
            lambda: all(len(in_sync) == len(BROKERS) for _, _, in_sync in self._partitions()),
            "all replicas are in sync",
        )

    def upgrade_features(self) -> None:
        """Raise each feature to the newest level of the servers."""
        response = self._send(ApiVersionsRequest("test", "1"), ApiVersionsResponse)
        levels = {each.name: each.max_version_level for each in response.finalized_features}
        updates = [
            FeatureUpdateKey(each.name, each.max_version, upgrade_type=UPGRADE)
            for each in response.supported_features
            # A quorum with fixed voters keeps this one.
            if each.name != "kraft.version" and levels.get(each.name, 0) < each.max_version
        ]
        request = UpdateFeaturesRequest(feature_updates=updates)
        updated = self._send(request, UpdateFeaturesResponse)
        assert updated.error_code == 0, updated.error_message

    def _topics(self) -> list[str]:
        topics = ["__consumer_offsets", "__transaction_state", TOPIC]
        return topics + [out_topic(number) for number in range(COPIER_COUNT)]

    def _partitions(self) -> Iterator[tuple[int, list[int], list[int]]]:
        topics = fetch_metadata(self._address, self._topics(), timeout=TIMEOUT_S).topics
        for topic in topics:
            for each in sorted(topic.partitions, key=lambda each: each.partition_index):
                yield each.leader_id, each.replica_nodes, each.isr_nodes

    def _send(self, request: Request, kind: type[M]) -> M:
        return exchange(self._address, request, kind, timeout=TIMEOUT_S)


class Place(NamedTuple):
    """A record's partition and offset, and its value."""

    partition: int
    offset: int
    value: bytes


class Reader(GroupMember):
    """A group's only member; `places` has what it read, in order."""

    def __init__(self, servers: str, group_id: str, protocol: Protocol) -> None:
        self.protocol: Protocol = protocol
        self.places: list[Place] = []
        self.protocols: set[str] = set()
        super().__init__(servers, TOPIC, group_id)

    def read(self) -> None:
        with Consumer(
            bootstrap_servers=self.servers,
            group_id=self.group_id,
            group_protocol=self.protocol,
            auto_offset_reset="earliest",
            metadata_max_age_ms=1_000,
        ) as consumer:
            consumer.subscribe([self.topic])
            while not self._is_closing.is_set():
                for record in consumer.poll(0.1):
                    assert record.value is not None
                    self.places.append(Place(record.partition, record.offset, record.value))
                    self.values.append(record.value)
                self.protocols = {each.protocol for each in consumer.group_history()} - {""}


class Writer(GroupMember):
    """The idempotent producer; `places` has what was acknowledged, where and in which order."""

    def __init__(self, servers: str) -> None:
        self.places: list[Place] = []
        super().__init__(servers)

    def read(self) -> None:
        number = 0
        with Producer(bootstrap_servers=self.servers, linger_ms=1) as producer:
            while not self._is_closing.wait(ROUND_PAUSE_S):
                values = [b"%d" % each for each in range(number, number + ROUND_SIZE)]
                number += ROUND_SIZE
                self._send(producer, values)
            self._send(producer, [END] * PARTITION_COUNT)

    def _send(self, producer: Producer, values: list[bytes]) -> None:
        sent = [
            (value, producer.send(TOPIC, value, partition=index % PARTITION_COUNT))
            for index, value in enumerate(values)
        ]
        for value, delivery in sent:
            metadata = delivery.result(TIMEOUT_S)
            assert metadata.offset is not None
            self.places.append(Place(metadata.partition, metadata.offset, value))
            self.values.append(value)


class Copier(GroupMember):
    """Copies the topic in transactions; `values` has what it copied, more than once if aborted."""

    def __init__(self, servers: str, number: int, group_id: str, transactional_id: str) -> None:
        self.number = number
        self.transactional_id = transactional_id
        super().__init__(servers, TOPIC, group_id)

    def read(self) -> None:
        ended: set[int] = set()
        with (
            Consumer(
                bootstrap_servers=self.servers,
                group_id=self.group_id,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
            ) as consumer,
            Producer(
                bootstrap_servers=self.servers, transactional_id=self.transactional_id
            ) as producer,
        ):
            consumer.subscribe([TOPIC])
            for batch in ExactlyOnce(consumer, producer):
                with batch as records:
                    for record in records:
                        assert record.value is not None
                        producer.send(
                            out_topic(self.number), record.value, partition=record.partition
                        )
                        self.values.append(record.value)
                        if record.value == END:
                            ended.add(record.partition)
                if len(ended) == PARTITION_COUNT:
                    return


def out_topic(number: int) -> str:
    return f"out-{number}"


def values_of(servers: str, topic: str) -> dict[int, list[bytes]]:
    """Return the committed values of each partition, up to the last one."""
    partitions = [TopicPartition(topic, each) for each in range(PARTITION_COUNT)]
    found: dict[int, list[bytes]] = {each: [] for each in range(PARTITION_COUNT)}
    with Consumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(each) < end for each, end in ends.items()):
            for record in consumer.poll(1.0):
                assert record.value is not None
                found[record.partition].append(record.value)
    return found


def in_order(places: list[Place]) -> dict[int, list[bytes]]:
    """Return the values of each partition; check that offsets have no gap and no double."""
    found: dict[int, list[bytes]] = {each: [] for each in range(PARTITION_COUNT)}
    for place in places:
        values = found[place.partition]
        assert place.offset == len(values), f"{place} after {values[-3:]}"
        values.append(place.value)
    return found


def take(coordinators: dict[str, int], broker: int) -> str:
    """Remove and return a name whose coordinator is this broker."""
    name = next(name for name, found in coordinators.items() if found == broker)
    del coordinators[name]
    return name


class Clients:
    """A writer, and copiers and groups that follow it; a context manager.

    Each broker coordinates a group of each kind, and the group of a copier whose transactions the
    other broker coordinates.
    """

    def __init__(self, brokers: Servers) -> None:
        self._servers = servers = brokers.cluster.bootstrap_servers
        names = [f"name-{number}" for number in range(40)]
        groups = brokers.coordinators(GROUP, names)
        transactions = brokers.coordinators(TRANSACTION, names)
        brokers.elect_preferred_leaders()
        protocols: tuple[Protocol, ...] = ("classic", "auto")
        self.readers = [
            Reader(servers, take(groups, broker), protocol)
            for protocol in protocols
            for broker in BROKERS
        ]
        self.copiers = [
            Copier(servers, number, take(groups, broker), take(transactions, other))
            for number, (broker, other) in enumerate(zip(BROKERS, BROKERS[::-1], strict=True))
        ]
        self.writer = Writer(servers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as members:
            for member in [*self.copiers, *self.readers, self.writer]:
                members.callback(member.close)

    def protocols(self) -> list[set[str]]:
        """Return the protocols that each group without a fixed one has used."""
        return [each.protocols for each in self.readers if each.protocol == "auto"]

    def add_reader(self, protocol: Protocol) -> None:
        """Add a group that reads from the start."""
        self.readers.append(Reader(self._servers, f"newer-{protocol}", protocol))

    def wait_for_progress(self) -> None:
        """Wait until everything goes on, in the present state of the servers."""
        count = len(self.writer.values) + ROUND_SIZE
        everything = [self.writer, *self.copiers, *self.readers]
        wait_until(
            lambda: min(len(each.values) for each in everything) >= count,
            lambda: f"{count} records at {[len(each.values) for each in everything]}",
            *everything,
        )

    def check(self) -> None:
        """End the writer; check that all others have its records once and in order."""
        self.writer.close()
        written = in_order(self.writer.places)
        total = len(self.writer.values)
        wait_until(
            lambda: all(len(each.values) >= total for each in self.readers),
            "all is read",
            *self.readers,
        )
        for reader in self.readers:
            assert in_order(reader.places) == written
        for copier in self.copiers:
            copier.close()
            assert values_of(self._servers, out_topic(copier.number)) == written


def check_unsupported(servers: str) -> None:
    """Check that KIP-848 is refused by name while a broker does not have it."""
    with Consumer(bootstrap_servers=servers, group_id="u", group_protocol="consumer") as consumer:
        consumer.subscribe([TOPIC])
        with pytest.raises(UnsupportedVersionError):
            consumer.poll(TIMEOUT_S)


@pytest.mark.promise("`group_protocol=auto` loses no record while a cluster is upgraded")
@pytest.mark.parametrize(
    ("old", "protocol"),
    [(OLDEST, "classic"), *(pytest.param(v, "consumer", marks=pytest.mark.soak) for v in BETWEEN)],
)
def test_an_upgrade_of_all_servers_loses_doubles_and_reorders_nothing(
    kafka_cluster_factory: KafkaClusterFactory, old: str, protocol: Protocol
) -> None:
    first, second = BROKERS
    with kafka_cluster_factory(len(BROKERS), old, CONFIG) as cluster:
        servers = cluster.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            topics = [TOPIC, *map(out_topic, range(COPIER_COUNT))]
            admin.create_topics([NewTopic(topic, PARTITION_COUNT, 2) for topic in topics])
        brokers = Servers(cluster)
        with Clients(brokers) as clients:
            clients.wait_for_progress()
            cluster.upgrade(first, NEWEST)
            brokers.elect_preferred_leaders()
            clients.wait_for_progress()
            brokers.swap_leaders()
            clients.wait_for_progress()
            if protocol == "classic":
                check_unsupported(servers)
            cluster.upgrade(second, NEWEST)
            brokers.elect_preferred_leaders()
            cluster.upgrade("controller", NEWEST)
            brokers.upgrade_features()
            clients.wait_for_progress()
            assert clients.protocols() == [{protocol}] * len(BROKERS)
            clients.add_reader("auto")
            clients.add_reader("consumer")
            clients.check()
            assert {"consumer"} in clients.protocols()
