"""Real clusters: ready when made, broken and repaired on command, gone when closed.

Topics are made with librdkafka, so that the harness is not tested with the clients it is for.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pykclient.errors.base import (
    ClosedError,
    ConnectionFailedError,
    KafkaTimeoutError,
    UsageError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.testing import BrokerFailedError, ClusterSecurity, KafkaCluster
from pykclient.testing.cluster.jars import kafka_jars
from pykclient.testing.cluster.java import find_java
from pykclient.testing.cluster.kafka_classes import make_archive
from pykclient.testing.cluster.probe import exchange, fetch_metadata
from pykclient.testing.port import Address
from tests.integration.confluent_tools import confluent_create_topic
from tests.integration.loopback_server import unused_address
from tests.soak import NEWEST, OLDEST, OWN_BROKERS
from tests.testing.test_processes import await_true, is_alive

if TYPE_CHECKING:
    from pykclient.testing.fixtures import KafkaClusterFactory

pytestmark = [
    pytest.mark.kafka,
    OWN_BROKERS,
]

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 30.0
JAAS, NO_MODULE = "listener.name.sasl_ssl.plain.sasl.jaas.config", "no.such.LoginModule"

# A process that owns a cluster, has paused its broker, and then sleeps until it is killed.
OWNER = """
import time
from pykclient.testing import KafkaCluster
cluster = KafkaCluster()
cluster.pause(1)
print(cluster.bootstrap_servers, cluster.data_folder(1), flush=True)
time.sleep(600)
"""


def addresses(cluster: KafkaCluster) -> list[Address]:
    pairs = (server.split(":") for server in cluster.bootstrap_servers.split(","))
    return [Address(host, int(port)) for host, port in pairs]


def brokers_in_metadata(address: Address) -> set[int]:
    return {broker.node_id for broker in fetch_metadata(address, timeout=TIMEOUT_S).brokers}


def newest_produce(address: Address) -> int:
    """Return the newest version of Produce that a broker supports."""
    request = ApiVersionsRequest("test", "1")
    found = exchange(address, request, ApiVersionsResponse, timeout=TIMEOUT_S)
    return next(api.max_version for api in found.api_keys if api.api_key == ApiKey.PRODUCE)


def kafka_processes(folder: Path) -> list[int]:
    """Return the processes whose command line names the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if b"kafka.Kafka" in command and str(folder).encode() in command:
            found.append(int(path.parent.name))
    return found


def test_one_broker_of_each_version_is_ready_when_made(each_kafka_cluster: KafkaCluster) -> None:
    assert brokers_in_metadata(*addresses(each_kafka_cluster)) == {1}


def test_several_clusters_run_at_once_and_share_nothing(
    kafka_cluster: KafkaCluster, old_kafka_cluster: KafkaCluster
) -> None:
    topic = confluent_create_topic(kafka_cluster, "only-in-one")
    assert kafka_cluster.leader(topic, 0) == 1
    with pytest.raises(KafkaTimeoutError, match="error code 3"):
        old_kafka_cluster.leader(topic, 0, timeout=0.5)


def test_a_broker_maps_the_archive_of_its_classes(kafka_cluster: KafkaCluster) -> None:
    archive = kafka_jars(kafka_cluster.version).class_archive(find_java())
    if not archive.exists():
        pytest.skip("there is no archive; this Java makes none, or `make kafka` did not run")
    (broker,) = kafka_processes(kafka_cluster.data_folder(1).parent)
    assert str(archive) in Path(f"/proc/{broker}/maps").read_text()
    assert make_archive(kafka_cluster.version) == archive


def test_the_users_config_reaches_the_broker_and_close_leaves_no_process_and_no_file(
    kafka_cluster_factory: KafkaClusterFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cluster = kafka_cluster_factory(config={"num.partitions": 7})
    # -1 partitions stands for the broker's own number.
    topic = confluent_create_topic(cluster, "seven", partition_count=-1)
    assert cluster.leader(topic, 6) == 1
    assert len(kafka_processes(tmp_path)) == 1
    cluster.pause(1)
    cluster.close()
    assert not kafka_processes(tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ClosedError):
        cluster.start(1)
    with pytest.raises(ClosedError):
        cluster.leader("t", 0)
    cluster.close()


@pytest.mark.usefixtures("kafka_cluster")  # So that what is missing here is a skip.
def test_a_cluster_vanishes_with_the_process_that_owns_it() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    folder = Path(owner.stdout.readline().split()[1]).parent
    (broker,) = kafka_processes(folder)
    owner.kill()
    owner.communicate()
    await_true(lambda: not is_alive(broker), "the paused broker ended")
    await_true(lambda: not folder.exists(), "its folder is gone")


@pytest.mark.parametrize(
    ("config", "cause"),
    [
        pytest.param({"num.partitions": "many"}, "many", id="refused by the formatting tool"),
        pytest.param({JAAS: f'{NO_MODULE} required x="canary";'}, NO_MODULE, id="by the broker"),
    ],
)
def test_a_broker_that_exits_at_its_start_is_reported_with_the_cause_and_leaves_nothing(
    kafka_cluster_factory: KafkaClusterFactory,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    config: dict[str, str],
    cause: str,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    security = ClusterSecurity(users={"alice": "canary"})
    with pytest.raises(BrokerFailedError, match=cause) as caught:
        kafka_cluster_factory(config=config, security=security)
    assert "canary" not in str(caught.value)
    assert not kafka_processes(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("kafka_cluster")
def test_a_cluster_that_is_not_ready_in_time_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for start_timeout in (0.0, 1.0):  # Too short for the formatting tool, and for the broker.
        with pytest.raises(KafkaTimeoutError):
            KafkaCluster(start_timeout=start_timeout)
        assert not list(tmp_path.iterdir())


def test_a_broker_is_upgraded_with_its_data_and_serves_the_newer_versions(
    kafka_cluster_factory: KafkaClusterFactory,
) -> None:
    with kafka_cluster_factory(version=OLDEST, proxied=True) as cluster:
        topic = confluent_create_topic(cluster, "kept")
        (address,) = addresses(cluster)
        old = newest_produce(address)
        with pytest.raises(UsageError, match="broker 1 is its own controller"):
            cluster.upgrade("controller", NEWEST)
        with pytest.raises(UsageError, match="there is no broker 2"):
            cluster.upgrade(2, NEWEST)
        cluster.upgrade(1, NEWEST)
        assert newest_produce(address) > old
        assert cluster.leader(topic, 0) == 1
        assert cluster.version == OLDEST


def test_an_existing_cluster_is_used_and_never_touched(
    kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYKCLIENT_BOOTSTRAP_SERVERS", kafka_cluster.bootstrap_servers)
    topic = confluent_create_topic(kafka_cluster, "existing")
    with KafkaCluster() as existing:
        assert existing.bootstrap_servers == kafka_cluster.bootstrap_servers
        assert existing.leader(topic, 0) == 1
        for touch in (existing.kill, existing.pause, existing.resume, existing.stop):
            with pytest.raises(UsageError, match="PYKCLIENT_BOOTSTRAP_SERVERS"):
                touch(1)
        with pytest.raises(UsageError, match="PYKCLIENT_BOOTSTRAP_SERVERS"):
            existing.start(1)
        with pytest.raises(UsageError, match="PYKCLIENT_BOOTSTRAP_SERVERS"):
            existing.upgrade(1, NEWEST)
        with pytest.raises(UsageError, match="PYKCLIENT_BOOTSTRAP_SERVERS"):
            existing.data_folder(1)
    assert brokers_in_metadata(*addresses(kafka_cluster)) == {1}


def test_an_existing_cluster_that_is_too_small_or_does_not_respond_is_refused(
    kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = unused_address()
    monkeypatch.setenv("PYKCLIENT_BOOTSTRAP_SERVERS", f"{dead},{kafka_cluster.bootstrap_servers}")
    with pytest.raises(UsageError, match="has 1 brokers, and 3 are needed"):
        KafkaCluster(3)
    monkeypatch.setenv("PYKCLIENT_BOOTSTRAP_SERVERS", dead)
    with pytest.raises(ConnectionFailedError, match=dead):
        KafkaCluster()
