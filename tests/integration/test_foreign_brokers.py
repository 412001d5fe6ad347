"""Services other than Kafka: every client works with brokers that imitate them."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from pykclient import (
    Admin,
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    Consumer,
    NewTopic,
    Producer,
    TopicPartition,
)
from pykclient.errors import KafkaError, UnsupportedVersionError, UsageError
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing import FakeKafka
from pykclient.testing.fake.profiles import PROFILES

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_S = 10.0
VALUES = [b"%d" % number for number in range(20)]
SERVICES = sorted(PROFILES)


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest) -> Iterator[FakeKafka]:
    """Provide a cluster that imitates each service."""
    with FakeKafka(profile=request.param) as kafka:
        yield kafka


def written(servers: str, **settings: Any) -> str:
    """Create a topic of two partitions with all values, acknowledged in order."""
    topic = f"t-{uuid.uuid4().hex}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])
        assert topic in admin.list_topics()
        assert len(admin.describe_topics([topic])[topic].partitions) == 2
    with Producer(settings, bootstrap_servers=servers) as producer:
        deliveries = [producer.send(topic, value, partition=0) for value in VALUES]
        offsets = [delivery.result(timeout=TIMEOUT_S).offset for delivery in deliveries]
    if settings.get("acks") != "0":
        assert offsets == [*range(len(VALUES))]
    return topic


def read(consumer: Consumer[Any, Any], count: int = len(VALUES)) -> list[object]:
    values: list[object] = []
    while len(values) < count:
        records = consumer.poll(timeout=TIMEOUT_S)
        assert records, "nothing came"
        values += [record.value for record in records]
    return values


@pytest.mark.parametrize("timeout_s", [0.0, 0.05, 0.2])
def test_short_polls_wait_for_a_service_that_hangs_up_on_a_version(
    service: FakeKafka, timeout_s: float
) -> None:
    """The next attempt starts with an older version: the service does not count as unreachable."""
    topic = written(service.bootstrap_servers)
    with Consumer(
        bootstrap_servers=service.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        values: list[object] = []
        deadline_s = time.monotonic() + TIMEOUT_S
        while len(values) < len(VALUES):
            assert time.monotonic() < deadline_s, "nothing came"
            values += [record.value for record in consumer.poll(timeout_s)]
    assert values == VALUES


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_producer_consumer_and_admin_work(service: FakeKafka, codec: str) -> None:
    servers = service.bootstrap_servers
    topic = written(servers, compression_type=codec)
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        assert read(consumer) == VALUES
        assert consumer.end_offsets([partition]) == {partition: len(VALUES)}
        consumer.seek(partition, 10)
        assert read(consumer, 10) == VALUES[10:]
    with Admin(bootstrap_servers=servers) as admin:
        admin.delete_topics([topic])
        assert topic not in admin.list_topics()


def test_a_group_reads_commits_and_is_described(service: FakeKafka) -> None:
    servers = service.bootstrap_servers
    topic = written(servers)
    for expected in (VALUES[:10], VALUES[10:]):
        with Consumer(
            bootstrap_servers=servers,
            group_id=topic,
            auto_offset_reset="earliest",
            max_poll_records=10,
            enable_auto_commit=False,
        ) as consumer:
            consumer.subscribe([topic])
            assert read(consumer, 10) == expected
            consumer.commit()
            with Admin(bootstrap_servers=servers) as admin:
                assert topic in admin.list_groups()
                description = admin.describe_groups([topic])[topic]
                assert len(description.members) == 1


def test_acks_0_works_where_responses_come_all_the_same(service: FakeKafka) -> None:
    servers = service.bootstrap_servers
    topic = written(servers, acks="0", enable_idempotence=False, linger_ms=0)
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert read(consumer) == VALUES


def test_what_a_service_lacks_is_refused_by_name() -> None:
    change = AlterConfigOp("retention.ms", "1")
    topic = ConfigResource(ConfigResourceType.TOPIC, "t")
    with (
        FakeKafka(profile="warpstream") as kafka,
        Admin(bootstrap_servers=kafka.bootstrap_servers) as admin,
        pytest.raises(UnsupportedVersionError, match="INCREMENTAL_ALTER_CONFIGS"),
    ):
        admin.incremental_alter_configs({topic: [change]})


def test_zstd_is_refused_by_name_where_produce_is_too_old() -> None:
    with FakeKafka() as kafka:
        servers = kafka.bootstrap_servers
        with kafka.control() as cluster:
            cluster.limit_versions({ApiKey.PRODUCE: (3, 6)})
        with (
            Producer(bootstrap_servers=servers, compression_type="zstd") as producer,
            pytest.raises(KafkaError, match="zstd need version 7") as raised,
        ):
            producer.send("t", b"v").result(timeout=TIMEOUT_S)
        assert isinstance(raised.value, UnsupportedVersionError)


def test_a_profile_has_its_source_and_an_unknown_one_is_refused() -> None:
    assert all(profile.source for profile in PROFILES.values())
    with pytest.raises(UsageError, match="event-hubs"):
        FakeKafka(profile="event_hubs")
