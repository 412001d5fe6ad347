"""Clusters in containers: the requests to a Docker engine, and the errors without one.

`docker_engine.py` replaces the engine; it has its HTTP API and runs nothing. docker-py and
testcontainers are real. `tests/integration/test_docker_settings.py` shows that Kafka accepts the
settings, with a broker from the jars.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from testcontainers.core.config import ConnectionMode, testcontainers_config

from pykclient.errors.base import ClosedError, ConfigError, KafkaTimeoutError, UsageError
from pykclient.testing import (
    BrokerFailedError,
    ClusterSecurity,
    KafkaCluster,
    MissingPrerequisiteError,
)
from pykclient.testing.cluster.docker import START_SCRIPT, DockerLayout
from pykclient.testing.cluster.properties import dump_properties
from pykclient.testing.port import Address
from tests.integration.loopback_server import unused_address
from tests.testing.docker_engine import Container, DockerEngine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BROKER_COUNT = 2


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose Docker, in an environment without other settings."""
    for name in ("PYKCLIENT_BOOTSTRAP_SERVERS", "TESTCONTAINERS_HOST_OVERRIDE", "TC_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYKCLIENT_KAFKA_PROVIDER", "docker")
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)
    monkeypatch.setattr(
        testcontainers_config, "connection_mode_override", ConnectionMode.docker_host
    )


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerEngine]:
    with DockerEngine(BROKER_COUNT) as engine:
        monkeypatch.setenv("DOCKER_HOST", engine.address)
        yield engine


def container_of(engine: DockerEngine, node_id: int) -> Container:
    (found,) = [c for c in engine.all_containers if c.properties["node.id"] == str(node_id)]
    return found


def actions(engine: DockerEngine) -> list[str]:
    """Return the requests about containers in order, with the timeout of a stop."""
    return [
        request.path.split("/")[-1] + "".join(request.query.get("t", []))
        for request in engine.requests
        if request.method == "POST" and not request.path.endswith(("create", "wait"))
    ]


def test_without_an_engine_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = f"tcp://{unused_address()}"
    monkeypatch.setenv("DOCKER_HOST", nowhere)
    with pytest.raises(MissingPrerequisiteError, match="none responds at") as caught:
        KafkaCluster()
    assert nowhere in str(caught.value)
    assert "or unset PYKCLIENT_KAFKA_PROVIDER to run Kafka from its jars" in str(caught.value)


def test_without_testcontainers_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "testcontainers.core.container", None)
    monkeypatch.delitem(sys.modules, "pykclient.testing.cluster.docker")
    with pytest.raises(MissingPrerequisiteError, match="pip install testcontainers"):
        KafkaCluster()


def test_an_impossible_version_or_config_is_refused_before_any_request(
    engine: DockerEngine,
) -> None:
    with pytest.raises(ConfigError, match=r"'2\.8\.2' is not a supported Kafka version"):
        KafkaCluster(version="2.8.2")
    with pytest.raises(ConfigError, match=r"listener\.security\.protocol\.map, log\.dirs"):
        KafkaCluster(config={"log.dirs": "/x", "listener.security.protocol.map": "PLAINTEXT:SSL"})
    with pytest.raises(UsageError, match="a cluster in containers cannot be secured; unset"):
        KafkaCluster(security=ClusterSecurity())
    assert engine.requests == []


@pytest.mark.usefixtures("engine")
def test_ports_that_cannot_be_reached_from_within_a_container_are_reported_with_the_cure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(testcontainers_config, "connection_mode_override", ConnectionMode.bridge_ip)
    with pytest.raises(ConfigError, match="TESTCONTAINERS_CONNECTION_MODE=docker_host"):
        KafkaCluster()


def test_one_broker_is_one_container_that_clients_reach_by_its_advertised_port(
    engine: DockerEngine,
) -> None:
    with KafkaCluster(version="3.9.2", config={"num.partitions": 7}) as cluster:
        (container,) = engine.all_containers
        assert container.spec["Image"] == "apache/kafka:3.9.2"
        assert container.spec["Cmd"] == ["sh", "-c", START_SCRIPT]
        assert container.aliases == ["broker-1"]
        assert list(container.spec["HostConfig"]["PortBindings"]) == ["9092/tcp"]
        assert cluster.bootstrap_servers == f"127.0.0.1:{container.host_port}"
        properties = container.properties
        assert properties["num.partitions"] == "7"
        assert properties["process.roles"] == "broker,controller"
        assert properties["controller.quorum.voters"] == "1@broker-1:9094"
        assert properties["advertised.listeners"] == (
            f"PLAINTEXT://127.0.0.1:{container.host_port},REPLICATION://broker-1:9093"
        )


def test_several_brokers_have_a_controller_and_share_network_and_cluster_id(
    engine: DockerEngine,
) -> None:
    with KafkaCluster(BROKER_COUNT) as cluster:
        assert len(engine.all_containers) == BROKER_COUNT + 1
        controller, *brokers = engine.all_containers
        assert controller.aliases == ["controller"]
        assert controller.host_port is None
        assert len({c.environment["PYKCLIENT_CLUSTER_ID"] for c in engine.all_containers}) == 1
        for container in engine.all_containers:
            assert container.properties["controller.quorum.voters"] == "100@controller:9094"
            assert {container.spec["HostConfig"]["NetworkMode"]} == engine.networks
        ports = [container.host_port for container in brokers]
        assert cluster.bootstrap_servers == ",".join(f"127.0.0.1:{port}" for port in ports)
        assert len(set(ports)) == BROKER_COUNT


def test_nothing_is_left_after_the_end(engine: DockerEngine) -> None:
    cluster = KafkaCluster(BROKER_COUNT)
    cluster.pause(1)
    cluster.close()
    cluster.close()
    assert engine.containers == {}
    assert engine.networks == set()
    removals = [request for request in engine.requests if request.path.startswith("/containers/")]
    removed = [request.query for request in removals if request.method == "DELETE"]
    assert [(query["force"], query["v"]) for query in removed] == [(["True"], ["True"])] * 3
    with pytest.raises(ClosedError):
        cluster.start(1)


@pytest.mark.parametrize("refused", ["/networks/create", "/containers/create", "/start$"])
def test_nothing_is_left_where_the_engine_refuses(engine: DockerEngine, refused: str) -> None:
    engine.refused_path = refused
    with pytest.raises(BrokerFailedError, match="refused by the test"):
        KafkaCluster()
    assert engine.containers == {}
    assert engine.networks == set()


def test_what_is_done_to_a_broker_is_done_to_its_container(engine: DockerEngine) -> None:
    with KafkaCluster(BROKER_COUNT) as cluster:
        container = container_of(engine, 2)
        before = len(actions(engine))
        cluster.pause(2)
        assert container.status == "paused"
        cluster.resume(2)
        assert container.status == "running"
        cluster.stop(2, timeout=4.2)
        assert container.status == "exited"
        port = container.host_port
        cluster.start(2)
        cluster.pause(2)
        cluster.kill(2)
        assert container.status == "exited"
        cluster.start(2)
        done = ["pause", "unpause", "stop5", "start", "pause", "kill", "start"]
        assert actions(engine)[before:] == done
        assert container.host_port == port
        assert len(engine.all_containers) == BROKER_COUNT + 1


def test_what_does_not_fit_a_brokers_state_is_refused(engine: DockerEngine) -> None:
    with KafkaCluster() as cluster:
        with pytest.raises(UsageError, match="broker-1 is running; to start it"):
            cluster.start(1)
        with pytest.raises(UsageError, match="broker-1 is running; to resume it"):
            cluster.resume(1)
        cluster.kill(1)
        with pytest.raises(UsageError, match="broker-1 is stopped; to pause it"):
            cluster.pause(1)
        with pytest.raises(UsageError, match="keeps its data in its container"):
            cluster.data_folder(1)
        with pytest.raises(UsageError, match="broker-1 is a container, which stays at its version"):
            cluster.upgrade(1, "4.4.0")


def test_a_stop_that_ended_in_a_kill_is_reported(engine: DockerEngine) -> None:
    with KafkaCluster() as cluster:
        engine.stop_exit_code = 137
        with pytest.raises(KafkaTimeoutError, match="did not stop within 1000 ms and was killed"):
            cluster.stop(1, timeout=1)


def test_a_broker_that_exits_at_its_start_is_reported_with_its_last_output(
    engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Container, "to", lambda self, status, brokers: self.__dict__.update(status="exited")
    )
    with pytest.raises(BrokerFailedError, match=r"broker-1 ended; .*\n.*the last words"):
        KafkaCluster()
    assert engine.containers == {}


def test_clients_are_sent_to_the_proxies_and_brokers_are_not(engine: DockerEngine) -> None:
    with KafkaCluster(proxied=True) as cluster:
        proxy = cluster.proxy(1).address
        assert cluster.bootstrap_servers == str(proxy)
        (container,) = engine.all_containers
        assert container.host_port != proxy.port
        assert container.properties["advertised.listeners"].startswith(f"PLAINTEXT://{proxy},")


def test_the_start_script_formats_and_becomes_kafka(tmp_path: Path) -> None:
    """The tools are replaced by ones that print their arguments."""
    for tool in ("kafka-storage.sh", "kafka-server-start.sh"):
        (tmp_path / tool).write_text(f'#!/bin/sh\necho {tool} "$@" $$\n')
        (tmp_path / tool).chmod(0o755)
    script = START_SCRIPT.replace("/opt/kafka/bin", str(tmp_path)).replace(
        "/tmp/s", f"{tmp_path}/s"
    )
    text = dump_properties({"node.id": 1, "log.dirs": "/a b", "x": "$HOME \\ %s"})
    process = subprocess.Popen(
        ["sh", "-c", script],
        env={"PYKCLIENT_SERVER_PROPERTIES": text, "PYKCLIENT_CLUSTER_ID": "-id"},
        stdout=subprocess.PIPE,
        text=True,
    )
    output, _ = process.communicate(timeout=30)
    properties = tmp_path / "server.properties"
    assert properties.read_text() == text
    formatted, started = output.splitlines()
    assert formatted.startswith(
        f"kafka-storage.sh format --ignore-formatted --cluster-id=-id --config={properties} "
    )
    assert started == f"kafka-server-start.sh {properties} {process.pid}"


def test_the_layout_of_several_brokers() -> None:
    layout = DockerLayout({1: Address("h", 1), 2: Address("h", 2)}, {})
    assert layout.broker(2)["listeners"] == "PLAINTEXT://:9092,REPLICATION://:9093"
    assert layout.broker(2)["process.roles"] == "broker"
    assert layout.controller()["listeners"] == "CONTROLLER://:9094"
    assert layout.controller()["process.roles"] == "controller"
