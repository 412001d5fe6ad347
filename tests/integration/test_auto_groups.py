"""Groups with ``group_protocol=auto`` on real brokers: which protocol they get, and when.

Goal: what the fake brokers of the simulation do is what Kafka does. Method: members read what is
written before and after something changes at the brokers.
"""

from __future__ import annotations

import logging
import time
import uuid
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Consumer, NewTopic, Producer
from pykclient.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.integration.exchange import RealExchange
from tests.soak import NEWEST_AND_OLDEST, NEWEST_FIRST, OWN_BROKERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Literal

    from pykclient.testing import KafkaCluster
    from pykclient.testing.cluster.properties import PropertyValue
    from pykclient.testing.fixtures import KafkaClusterFactory

    Protocol = Literal["classic", "consumer", "auto"]

pytestmark = pytest.mark.kafka

TIMEOUT_S = 30.0
PARTITION_COUNT = 2
SESSION_MS = 1_500
SESSION_MS_LONG = 60_000
WITH_KIP848 = NEWEST_FIRST[:-1]
UPGRADE, SAFE_DOWNGRADE = 1, 2
QUICK: dict[str, PropertyValue] = {
    "group.min.session.timeout.ms": 1_000,
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.heartbeat.interval.ms": 200,
    "group.consumer.heartbeat.interval.ms": 200,
}


@pytest.fixture(scope="module")
def quick_cluster(kafka_cluster_factory: KafkaClusterFactory) -> Iterator[KafkaCluster]:
    """Provide a broker whose sessions are short."""
    with kafka_cluster_factory(config=QUICK) as cluster:
        yield cluster


class Work:
    """A topic, a group of the same name, and what its members have read."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.name = f"auto-{uuid.uuid4().hex[:8]}"
        self.read: list[bytes] = []
        self._written: list[bytes] = []
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic(self.name, PARTITION_COUNT, 1)])

    def member(self, protocol: Protocol = "auto", **settings: object) -> Consumer:
        classic = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 200}
        consumer = Consumer(
            {**({} if protocol == "consumer" else classic), **settings},
            bootstrap_servers=self.servers,
            group_id=self.name,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            metadata_max_age_ms=1_000,
        )
        consumer.subscribe([self.name])
        return consumer

    def write(self, count: int = 10) -> None:
        with Producer(bootstrap_servers=self.servers) as producer:
            for _ in range(count):
                value = b"%d" % len(self._written)
                producer.send(self.name, value, partition=len(self._written) % PARTITION_COUNT)
                self._written.append(value)

    def poll_until(self, condition: Callable[[], bool], *consumers: Consumer) -> None:
        """Poll all consumers in turn until the condition holds."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while not condition():
            for consumer in consumers:
                self.read += [record.value or b"" for record in consumer.poll(0.05)]
            assert time.monotonic() < deadline_s, [each.group_history()[-3:] for each in consumers]

    def read_all(self, *consumers: Consumer) -> None:
        self.poll_until(lambda: set(self.read) >= set(self._written), *consumers)

    def check_read_once(self) -> None:
        assert sorted(self.read) == sorted(self._written)


def protocols(consumer: Consumer) -> list[str]:
    """Return the protocols of its rebalances, without repetitions."""
    return list(dict.fromkeys(each.protocol for each in consumer.group_history() if each.protocol))


@pytest.mark.parametrize("each_kafka_cluster", NEWEST_AND_OLDEST, indirect=True)
def test_the_protocol_is_the_newest_that_the_brokers_have(
    each_kafka_cluster: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    is_new = not each_kafka_cluster.version.startswith("3.")
    expected = "consumer" if is_new else "classic"
    work = Work(each_kafka_cluster.bootstrap_servers)
    work.write()
    with work.member(session_timeout_ms=6_000, group_remote_assignor="range") as consumer:
        assert ", no protocol: open>" in repr(consumer)
        work.read_all(consumer)
        assert protocols(consumer) == [expected]
        assert f", {expected} protocol: open>" in repr(consumer)
        with Admin(bootstrap_servers=work.servers) as admin:
            (group,) = admin.describe_groups([work.name]).values()
        assert group.assignor == "range"
    unused = "session_timeout_ms, heartbeat_interval_ms" if is_new else "group_remote_assignor"
    assert f"uses the {expected} protocol" in caplog.text
    assert f"not used with it: {unused}\n" in caplog.text
    work.check_read_once()


@OWN_BROKERS
def test_a_running_classic_group_becomes_one_of_kip848_and_is_read_once(
    quick_cluster: KafkaCluster,
) -> None:
    work = Work(quick_cluster.bootstrap_servers)
    work.write()
    with work.member() as newer:
        with work.member("classic") as classic:
            work.read_all(classic)
            work.poll_until(
                lambda: len(newer.assignment()) == len(classic.assignment()) == 1, newer, classic
            )
            work.write()
            work.read_all(newer, classic)
        assert protocols(newer) == ["consumer"]
        work.poll_until(lambda: len(newer.assignment()) == PARTITION_COUNT, newer)
        work.write()
        work.read_all(newer)
    work.check_read_once()


@OWN_BROKERS
def test_a_feature_that_is_switched_off_and_on_costs_no_record(
    kafka_cluster_factory: KafkaClusterFactory, caplog: pytest.LogCaptureFixture
) -> None:
    with kafka_cluster_factory(config=QUICK) as cluster:
        work = Work(cluster.bootstrap_servers)
        exchange = RealExchange(cluster.bootstrap_servers)
        work.write()
        with work.member() as consumer:
            work.read_all(consumer)
            assert protocols(consumer) == ["consumer"]
            switch_group_version(exchange, 0)
            work.poll_until(lambda: protocols(consumer)[-1:] == ["classic"], consumer)
            work.write()
            work.read_all(consumer)
            warnings = [each.getMessage() for each in caplog.records if each.levelno > logging.INFO]
            assert [text for text in warnings if "continues with the classic protocol" in text]
            assert not [text for text in warnings if "lost" in text], "it has committed"
            work.check_read_once()
            switch_group_version(exchange, 1)
            work.write()
            work.read_all(consumer)
            assert protocols(consumer) == ["consumer", "classic"], "a live member does not move"
            consumer.commit()
            consumer.unsubscribe()
            consumer.subscribe([work.name])
            work.poll_until(lambda: consumer.group_history()[-1].protocol == "consumer", consumer)
            work.write()
            work.read_all(consumer)
        work.check_read_once()


@OWN_BROKERS
def test_brokers_that_convert_no_group_get_a_classic_member(
    kafka_cluster_factory: KafkaClusterFactory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    config: dict[str, PropertyValue] = {**QUICK, "group.consumer.migration.policy": "disabled"}
    with kafka_cluster_factory(config=config) as cluster:
        work = Work(cluster.bootstrap_servers)
        with work.member("classic") as classic, work.member() as newer:
            work.poll_until(lambda: len(classic.assignment()) == PARTITION_COUNT, classic)
            work.write()
            work.poll_until(lambda: len(newer.assignment()) == 1, classic, newer)
            work.read_all(classic, newer)
            assert protocols(newer) == ["classic"]
        text = "the group has classic members, and its coordinator does not convert it"
        assert f"uses the classic protocol: {text} (GROUP_ID_NOT_FOUND: " in caplog.text
        assert "to convert it, set group.consumer.migration.policy" in caplog.text
        work.check_read_once()


@pytest.mark.parametrize("any_kafka_cluster", WITH_KIP848, indirect=True)
def test_a_static_member_comes_back_under_the_other_protocol_at_once(
    any_kafka_cluster: KafkaCluster,
) -> None:
    """Long before its session would end, which is when the test would."""
    work = Work(any_kafka_cluster.bootstrap_servers)
    each: tuple[Protocol, ...] = ("classic", "auto", "classic")
    for protocol in each:
        work.write()
        settings = {"session_timeout_ms": SESSION_MS_LONG} if protocol == "classic" else {}
        with work.member(protocol, group_instance_id="i", **settings) as consumer:
            work.read_all(consumer)
            assert protocols(consumer) == ["consumer" if protocol == "auto" else "classic"]
    work.check_read_once()


def switch_group_version(exchange: RealExchange, level: int) -> None:
    """Switch the feature, as kafka-features.sh does."""
    kind = UPGRADE if level else SAFE_DOWNGRADE
    update = FeatureUpdateKey("group.version", level, upgrade_type=kind)
    request = UpdateFeaturesRequest(feature_updates=[update])
    response = exchange.send(request, UpdateFeaturesResponse)
    assert response.error_code == 0, response.error_message
