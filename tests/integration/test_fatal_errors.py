"""`fatal` is true: after a fatal error the client stops, after other errors it continues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from pykclient import Admin, Consumer, NewTopic, Producer
from pykclient.errors import (
    ClosedError,
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake import faults

if TYPE_CHECKING:
    from pykclient.testing import FakeKafka

TOPIC = "t"
TIMEOUT_S = 20.0


@pytest.mark.parametrize("api", [ApiKey.INIT_PRODUCER_ID, ApiKey.PRODUCE])
def test_what_ends_a_producer_is_fatal_in_every_call(fake_kafka: FakeKafka, api: ApiKey) -> None:
    with fake_kafka.control() as cluster:
        cluster.faults.add(faults.fail_with(ClusterAuthorizationFailedError), api)
    producer = Producer(bootstrap_servers=fake_kafka.bootstrap_servers)
    with pytest.raises(ClusterAuthorizationFailedError) as caught:
        producer.send(TOPIC, b"v").result(TIMEOUT_S)
    assert caught.value.fatal
    for _ in range(2):
        with pytest.raises(KafkaError) as again:
            producer.send(TOPIC, b"v")
        assert again.value.fatal
    producer.close()
    with pytest.raises(ClosedError) as closed:
        producer.send(TOPIC, b"v")
    assert closed.value.fatal


def test_a_producer_that_goes_on_has_raised_nothing_fatal(fake_kafka: FakeKafka) -> None:
    with fake_kafka.control() as cluster:
        cluster.faults.add(faults.fail_with(ClusterAuthorizationFailedError), ApiKey.PRODUCE)
    with Producer(
        bootstrap_servers=fake_kafka.bootstrap_servers, enable_idempotence=False
    ) as producer:
        with pytest.raises(ClusterAuthorizationFailedError) as caught:
            producer.send(TOPIC, b"v").result(TIMEOUT_S)
        assert not caught.value.fatal
        producer.send(TOPIC, b"v").result(TIMEOUT_S)


@pytest.mark.parametrize(
    ("protocol", "api"),
    [("classic", ApiKey.JOIN_GROUP), ("consumer", ApiKey.CONSUMER_GROUP_HEARTBEAT)],
)
def test_a_consumer_that_goes_on_has_raised_nothing_fatal(
    fake_kafka: FakeKafka, protocol: Literal["classic", "consumer"], api: ApiKey
) -> None:
    with Producer(bootstrap_servers=fake_kafka.bootstrap_servers) as producer:
        producer.send(TOPIC, b"v").result(TIMEOUT_S)
    with fake_kafka.control() as cluster:
        cluster.faults.add(faults.fail_with(GroupAuthorizationFailedError), api)
    with Consumer(
        bootstrap_servers=fake_kafka.bootstrap_servers,
        group_id="g",
        group_protocol=protocol,
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.subscribe([TOPIC])
        with pytest.raises(GroupAuthorizationFailedError) as caught:
            consumer.poll(TIMEOUT_S)
        assert not caught.value.fatal
        assert [record.value for record in consumer.poll(TIMEOUT_S)] == [b"v"]


def test_an_admin_client_goes_on_after_what_a_broker_refused(fake_kafka: FakeKafka) -> None:
    with fake_kafka.control() as cluster:
        cluster.faults.add(faults.fail_with(ClusterAuthorizationFailedError), ApiKey.CREATE_TOPICS)
    with Admin(bootstrap_servers=fake_kafka.bootstrap_servers) as admin:
        with pytest.raises(ClusterAuthorizationFailedError) as caught:
            admin.create_topics([NewTopic(TOPIC, 1, 1)])
        assert not caught.value.fatal
        admin.create_topics([NewTopic(TOPIC, 1, 1)])
