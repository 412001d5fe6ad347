"""A cluster of three brokers: each can be stopped, killed, paused and had back on command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.errors.base import ConnectionFailedError, KafkaTimeoutError, UsageError
from pykclient.testing.cluster.jars import KAFKA_VERSIONS
from pykclient.testing.cluster.probe import fetch_metadata
from tests.integration.confluent_tools import confluent_create_topic
from tests.integration.conftest import THREE_BROKERS, repair
from tests.integration.test_kafka_cluster import TIMEOUT_S, addresses, brokers_in_metadata
from tests.soak import NEWEST_FIRST, OWN_BROKERS
from tests.testing.test_processes import await_true

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.testing import KafkaCluster
    from pykclient.testing.fixtures import KafkaClusterFactory

pytestmark = [
    pytest.mark.kafka,
    OWN_BROKERS,
]


@pytest.fixture(scope="module", params=NEWEST_FIRST)
def three_of_a_version(
    request: pytest.FixtureRequest, kafka_cluster_factory: KafkaClusterFactory
) -> Iterator[KafkaCluster]:
    """Three brokers of one version, quick to miss one."""
    if request.param == KAFKA_VERSIONS[0]:
        yield request.getfixturevalue("three_kafka_brokers")
    else:
        with kafka_cluster_factory(3, request.param, THREE_BROKERS) as made:
            yield made


@pytest.fixture
def three(three_of_a_version: KafkaCluster) -> Iterator[KafkaCluster]:
    """Provide the same brokers, all running again after each test, even one that failed."""
    yield three_of_a_version
    repair(three_of_a_version)


@pytest.mark.promise("`KafkaCluster` runs several brokers")
def test_every_broker_lists_all_when_the_cluster_is_made(three: KafkaCluster) -> None:
    assert len(set(addresses(three))) == 3
    for address in addresses(three):
        assert brokers_in_metadata(address) == {1, 2, 3}


def test_a_killed_leader_is_replaced_and_comes_back_with_its_data(three: KafkaCluster) -> None:
    topic = confluent_create_topic(three, "killed", replication_factor=3)
    leader = three.leader(topic, 0)
    three.kill(leader)
    with pytest.raises(ConnectionFailedError):
        brokers_in_metadata(addresses(three)[leader - 1])
    assert three.leader(topic, 0) != leader
    three.start(leader)
    assert brokers_in_metadata(addresses(three)[leader - 1]) == {1, 2, 3}
    assert (three.data_folder(leader) / f"{topic}-0").is_dir()


def test_a_stopped_leader_has_handed_over_when_it_is_gone(three: KafkaCluster) -> None:
    topic = confluent_create_topic(three, "stopped", replication_factor=3)
    leader = three.leader(topic, 0)
    three.stop(leader)
    others = [a for index, a in enumerate(addresses(three), 1) if index != leader]
    for address in others:
        (response,) = fetch_metadata(address, [topic], timeout=TIMEOUT_S).topics
        assert response.partitions[0].leader_id not in {leader, -1}
    three.start(leader)


def test_a_paused_broker_accepts_and_does_not_respond_until_it_is_resumed(
    three: KafkaCluster,
) -> None:
    paused = addresses(three)[1]
    three.pause(2)
    with pytest.raises(ConnectionFailedError, match="timed out"):
        fetch_metadata(paused, timeout=0.5)
    three.resume(2)
    await_true(lambda: brokers_in_metadata(paused) == {1, 2, 3}, "the broker is back")


@pytest.mark.soak
def test_all_brokers_can_be_down_at_once(three: KafkaCluster) -> None:
    topic = confluent_create_topic(three, "all-down", replication_factor=3)
    for broker in (1, 2, 3):
        three.kill(broker)
    with pytest.raises(KafkaTimeoutError, match="no broker is running"):
        three.leader(topic, 0, timeout=0.2)
    for broker in (3, 2, 1):
        three.start(broker)
    assert three.leader(topic, 0) in {1, 2, 3}


def test_calls_that_do_not_fit_are_refused(three: KafkaCluster) -> None:
    with pytest.raises(UsageError, match="there is no broker 4; there are 1 to 3"):
        three.kill(4)
    with pytest.raises(UsageError, match="broker 1 is running; to start it"):
        three.start(1)
    with pytest.raises(UsageError, match="broker 1 is running; to resume it"):
        three.resume(1)
