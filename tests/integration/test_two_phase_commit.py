"""Two-phase commit participation (KIP-939) on brokers with it, and on those without."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Producer
from pykclient.errors import (
    InvalidTxnStateError,
    TransactionalIdAuthorizationFailedError,
    UnsupportedVersionError,
)
from tests.integration.confluent_tools import confluent_create_topic
from tests.integration.conftest import TIMEOUT_MS_MAX
from tests.integration.test_prepared_transactions import end_in_another_process, prepare
from tests.integration.test_transactions import TIMEOUT_S, read

if TYPE_CHECKING:
    from pykclient.testing import KafkaCluster

pytestmark = pytest.mark.kafka


def two_phase_producer(cluster: KafkaCluster, transactional_id: str) -> Producer:
    return Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        transactional_id=transactional_id,
        transaction_two_phase_commit_enable=True,
    )


def wait_until_aborted(admin: Admin, transactional_id: str) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while admin.describe_transactions([transactional_id])[transactional_id].state == "Ongoing":
        assert time.monotonic() < deadline_s, "no time-out has come"
        time.sleep(0.05)


def test_a_prepared_transaction_outlives_every_time_out(two_phase_cluster: KafkaCluster) -> None:
    cluster = two_phase_cluster
    topic = confluent_create_topic(cluster, "two-phase", partition_count=2)
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        with two_phase_producer(cluster, f"{topic}-2pc") as first:
            first.init_transactions()
            lasting = prepare(first, topic, b"lasting")
        with Producer(
            bootstrap_servers=cluster.bootstrap_servers,
            transactional_id=topic,
            transaction_timeout_ms=TIMEOUT_MS_MAX,
        ) as second:
            second.init_transactions()
            timed = prepare(second, topic, b"timed")
            # Open for the longest time that there is, and begun after the other one.
            wait_until_aborted(admin, topic)
            with pytest.raises(InvalidTxnStateError, match="aborted it after its"):
                admin.commit_prepared_transactions([timed])
        found = admin.describe_transactions([f"{topic}-2pc"])[f"{topic}-2pc"]
        assert (found.state, found.timeout_ms) == ("Ongoing", 2**31 - 1)
        end_in_another_process(cluster, "commit", lasting)
    assert read(cluster, topic) == [b"lasting"]


def test_a_new_epoch_keeps_taking_part(two_phase_cluster: KafkaCluster) -> None:
    cluster = two_phase_cluster
    topic = confluent_create_topic(cluster, "two-phase", partition_count=2)
    with (
        two_phase_producer(cluster, topic) as producer,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        producer.init_transactions()
        admin.abort_prepared_transactions([prepare(producer, topic, b"a")])
        producer.init_transactions()
        prepared = prepare(producer, topic, b"b")
        assert admin.describe_transactions([topic])[topic].timeout_ms == 2**31 - 1
        admin.commit_prepared_transactions([prepared])
    assert read(cluster, topic) == [b"b"]


def test_brokers_without_it_are_refused(each_kafka_cluster: KafkaCluster) -> None:
    with two_phase_producer(each_kafka_cluster, "none") as producer:
        for _ in range(2):
            with pytest.raises(
                UnsupportedVersionError,
                match=r"up to version 5, .*unstable\.api\.versions\.enable=true and "
                r"transaction\.two\.phase\.commit\.enable=true in the settings of all brokers",
            ):
                producer.init_transactions()


def test_brokers_that_have_it_switched_off_are_refused(one_phase_cluster: KafkaCluster) -> None:
    cluster = one_phase_cluster
    with (
        two_phase_producer(cluster, "off") as producer,
        pytest.raises(
            TransactionalIdAuthorizationFailedError,
            match=r"two\.phase\.commit\.enable=true for the brokers, .*TWO_PHASE_COMMIT",
        ),
    ):
        producer.init_transactions()
    # Who does not take part does not need it.
    topic = confluent_create_topic(cluster, "off", partition_count=2)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="off") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, b"a")
    assert read(cluster, topic) == [b"a"]
