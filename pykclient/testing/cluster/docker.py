"""Servers of a Kafka cluster as containers of a Docker engine, through testcontainers.

Each runs Apache's image ``apache/kafka:<version>`` with our settings instead of the image's, in a
network of its own, where the servers know each other by name. Clients connect to a port of the
engine's host, which the broker advertises and keeps across restarts.

The constructor starts the servers and returns when every broker responds and lists all others.
`close` removes containers and network; if this process dies earlier, the reaper of testcontainers
(Ryuk) does.

This was never run with a real engine: the requests to it are tested, its behaviour is not.

Owner: the thread that created it.
Source: testcontainers' ``DockerContainer`` and ``Network``, docker-py's ``Container``; Kafka's
``docker/jvm/Dockerfile``.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from pykclient.errors.base import ConfigError, KafkaTimeoutError, UsageError
from pykclient.testing.clock import Deadline
from pykclient.testing.cluster.jars import check_version
from pykclient.testing.cluster.java import MissingPrerequisiteError
from pykclient.testing.cluster.processes import (
    LOG_TAIL_LINES,
    BrokerFailedError,
    BrokerState,
    check_allowed,
)
from pykclient.testing.cluster.properties import (
    CONTROLLER_ID,
    INTER_BROKER,
    PLAINTEXT,
    PROTOCOL_MAP,
    check_config,
    dump_properties,
    new_kafka_uuid,
    protocol_map,
    settings_of,
)
from pykclient.testing.cluster.servers import ClusterServers
from pykclient.testing.port import Address, PortReservation
from pykclient.testing.proxy.proxy import FaultProxy

try:
    import docker.errors
    import requests
    from docker.constants import DEFAULT_UNIX_SOCKET
    from testcontainers.core.config import ConnectionMode
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.docker_client import DockerClient, get_docker_host
    from testcontainers.core.network import Network
except ImportError as error:
    raise MissingPrerequisiteError(
        "PYKCLIENT_KAFKA_PROVIDER=docker needs the package testcontainers "
        f"({error}): pip install testcontainers, or unset the variable to run Kafka from its "
        "jars"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pykclient.testing.cluster.properties import PropertyValue
    from pykclient.testing.cluster.security import ClusterSecurity

IMAGE = "apache/kafka"
CLIENT_PORT = 9092
INTER_BROKER_PORT = 9093
CONTROLLER_PORT = 9094
DATA_FOLDER = "/tmp/kafka-data"  # noqa: S108 - in the container

REACH_TIMEOUT_S = 10.0

SETTINGS_VARIABLE = "PYKCLIENT_SERVER_PROPERTIES"
CLUSTER_VARIABLE = "PYKCLIENT_CLUSTER_ID"

# `exec` makes Kafka the container's first process, which receives its signals.
START_SCRIPT = f"""\
set -e
printf '%s' "${SETTINGS_VARIABLE}" > /tmp/server.properties
/opt/kafka/bin/kafka-storage.sh format --ignore-formatted \
--cluster-id="${CLUSTER_VARIABLE}" --config=/tmp/server.properties
exec /opt/kafka/bin/kafka-server-start.sh /tmp/server.properties
"""

ENGINE_ERRORS = (docker.errors.DockerException, requests.RequestException)
"""Errors of docker-py: its own, and those of requests if the engine is gone."""

KILLED_STATUS = 137
"""Exit status of a process killed by SIGKILL: 128 and the signal's number."""

# The engine's status names; any other status means the container does not run.
_STATES = {"running": BrokerState.RUNNING, "paused": BrokerState.PAUSED}


class DockerBroker:
    """A server named `name` in a `container` that is created at its first start."""

    def __init__(self, name: str, container: DockerContainer) -> None:
        self.name = name
        self._container = container
        self._is_made = False
        self._is_removed = False

    @property
    def state(self) -> BrokerState:
        """Current state; a server that ended for any reason is STOPPED."""
        if not self._is_made:
            return BrokerState.STOPPED
        with self._engine_errors("look at"):
            self._container.reload()
        return _STATES.get(self._container.status, BrokerState.STOPPED)

    def start(self) -> None:
        """Start the server, creating its container if needed. Raises `UsageError`."""
        check_allowed("start", self.name, self.state)
        with self._engine_errors("start"):
            if self._is_made:
                self._container.get_wrapped_container().start()
            else:
                self._container.start()
                self._is_made = True

    def pause(self) -> None:
        """Freeze it: it keeps its connections and sends nothing. Raises `UsageError`."""
        check_allowed("pause", self.name, self.state)
        with self._engine_errors("pause"):
            self._container.get_wrapped_container().pause()

    def resume(self) -> None:
        """Resume it; to the server no time has passed. Raises `UsageError`."""
        check_allowed("resume", self.name, self.state)
        with self._engine_errors("resume"):
            self._container.get_wrapped_container().unpause()

    def kill(self) -> None:
        """Kill it with SIGKILL, running or paused, and wait for its end. Raises `UsageError`."""
        check_allowed("kill", self.name, self.state)
        container = self._container.get_wrapped_container()
        with self._engine_errors("kill"):
            try:
                container.kill()
            except docker.errors.APIError:
                if self.state is not BrokerState.PAUSED:
                    raise
                # Some engines cannot kill a paused container.
                container.unpause()
                container.kill()
            container.wait()

    def stop(self, timeout: float) -> None:
        """Stop it with SIGTERM and wait; after `timeout` seconds, kill it.

        Raises:
            UsageError: it is not running.
            KafkaTimeoutError: it did not end in time, and was killed.
        """
        check_allowed("stop", self.name, self.state)
        container = self._container.get_wrapped_container()
        with self._engine_errors("stop"):
            container.stop(timeout=math.ceil(timeout))
            status = container.wait()["StatusCode"]
        if status == KILLED_STATUS:
            raise KafkaTimeoutError(
                f"{self.name} did not stop within {timeout * 1000:.0f} ms and was killed"
            )

    def stay_alive(self, timeout: float) -> None:
        """Watch it for `timeout` seconds.

        Raises:
            BrokerFailedError: it has ended.
        """
        time.sleep(timeout)
        if self.state is BrokerState.STOPPED:
            raise BrokerFailedError(f"{self.name} ended; the last lines it logged:\n{self._tail()}")

    def remove(self) -> None:
        """End it in any state, and remove the container. Idempotent."""
        if not self._is_removed:
            self._is_removed = True
            # A container may exist even if its start failed.
            with self._engine_errors("remove"), contextlib.suppress(docker.errors.NotFound):
                self._container.stop(force=True, delete_volume=True)

    def _tail(self) -> str:
        with self._engine_errors("read the log of"):
            log = self._container.get_wrapped_container().logs(tail=LOG_TAIL_LINES)
        return bytes(log).decode(errors="replace")

    @contextlib.contextmanager
    def _engine_errors(self, action: str) -> Iterator[None]:
        """Turn an engine's error into a BrokerFailedError that names the action and server."""
        try:
            yield
        except ENGINE_ERRORS as error:
            raise BrokerFailedError(
                f"the Docker engine failed to {action} {self.name}: {error}"
            ) from error


class DockerCluster(ClusterServers):
    """Brokers numbered from 1, each a container with a port of the engine's host.

    With `proxied`, `proxies` has the fault proxy of each.

    Raises:
        UsageError: `security` is given, which only brokers from the jars support.
        ConfigError: `config` has a setting that the cluster chooses, or the version is invalid.
        MissingPrerequisiteError: no engine responds; the message tells what to do.
        BrokerFailedError: the engine refused, for example because the image is missing, or a
            server did not start; the message has the tail of its log.
        KafkaTimeoutError: the brokers were not ready within `timeout` seconds, which include the
            download of the image.
    """

    def __init__(
        self,
        broker_count: int,
        version: str,
        config: Mapping[str, PropertyValue],
        *,
        proxied: bool,
        security: ClusterSecurity | None,
        timeout: float,
    ) -> None:
        if security is not None:
            raise UsageError(
                "a cluster in containers cannot be secured; unset PYKCLIENT_KAFKA_PROVIDER to run "
                "Kafka from its jars"
            )
        check_version(version)
        check_config(config, maps_listeners=True)
        host = _engine_host()
        deadline = Deadline(timeout)
        with ExitStack() as resources:
            self._addresses = {
                node_id: Address(host, _free_port()) for node_id in range(1, broker_count + 1)
            }
            proxies: dict[int, dict[str, FaultProxy]] = {}
            self.proxies = proxies
            for node_id, address in self._addresses.items() if proxied else ():
                proxy = FaultProxy(address, seed=node_id)
                proxies[node_id] = {PLAINTEXT: resources.enter_context(proxy)}
            advertised = {id_: self.client_address(id_, PLAINTEXT) for id_ in self._addresses}
            layout = DockerLayout(advertised, config)
            network = resources.enter_context(_made_network())
            settings = {node_id: layout.broker(node_id) for node_id in self._addresses}
            if layout.has_own_controller:
                settings = {CONTROLLER_ID: layout.controller(), **settings}
            cluster_id = new_kafka_uuid()
            servers: dict[int, DockerBroker] = {}
            self._servers = servers
            for node_id, properties in settings.items():
                container = self._container(node_id, version, network).with_envs(
                    **{SETTINGS_VARIABLE: dump_properties(properties), CLUSTER_VARIABLE: cluster_id}
                )
                server = DockerBroker(server_name(node_id), container)
                resources.callback(server.remove)
                server.start()
                servers[node_id] = server
            for node_id in self._addresses:
                self.wait_until_ready(node_id, deadline)
            self._resources = resources.pop_all()

    def address(self, node_id: int) -> Address:
        """Return the address of broker `node_id` from here, up or down."""
        return self._addresses[node_id]

    def client_address(self, node_id: int, listener: str) -> Address:
        """Return the address that clients are given: the broker's proxy, if it has one."""
        if node_id in self.proxies:
            return self.proxies[node_id][listener].address
        return self.address(node_id)

    def data_folder(self, node_id: int) -> Path:
        """Refuse, because the folder is inside the container.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            f"broker {node_id} keeps its data in its container, {DATA_FOLDER}; unset "
            "PYKCLIENT_KAFKA_PROVIDER for a broker whose files are on this machine"
        )

    def install(self, node_id: int, version: str) -> None:
        """Refuse, because the data is inside the container of the present version.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            f"{server_name(node_id)} is a container, which stays at its version; unset "
            "PYKCLIENT_KAFKA_PROVIDER for servers that can be upgraded"
        )

    def _container(self, node_id: int, version: str, network: Network) -> DockerContainer:
        container = (
            DockerContainer(f"{IMAGE}:{version}")
            .with_command(["sh", "-c", START_SCRIPT])
            .with_network(network)
            .with_network_aliases(server_name(node_id))
            .with_envs(KAFKA_HEAP_OPTS="-Xmx512m")
        )
        if node_id in self._addresses:
            container.with_bind_ports(f"{CLIENT_PORT}/tcp", self._addresses[node_id].port)
        return container


class DockerLayout:
    """The settings of each server; brokers give their `advertised` address to clients.

    Raises:
        ConfigError: `config` has a setting that the cluster chooses.
    """

    def __init__(
        self, advertised: Mapping[int, Address], config: Mapping[str, PropertyValue]
    ) -> None:
        check_config(config, maps_listeners=True)
        self._advertised = advertised
        self._config = config

    @property
    def has_own_controller(self) -> bool:
        """True if the controller is a separate server, as with several brokers."""
        return len(self._advertised) > 1

    def broker(self, node_id: int) -> dict[str, PropertyValue]:
        """Return the settings of broker `node_id`."""
        listeners = [f"PLAINTEXT://:{CLIENT_PORT}", f"{INTER_BROKER}://:{INTER_BROKER_PORT}"]
        if not self.has_own_controller:
            listeners.append(f"CONTROLLER://:{CONTROLLER_PORT}")
        return {
            **self._shared(node_id),
            "process.roles": "broker" if self.has_own_controller else "broker,controller",
            "listeners": ",".join(listeners),
            "advertised.listeners": f"PLAINTEXT://{self._advertised[node_id]},"
            f"{INTER_BROKER}://{server_name(node_id)}:{INTER_BROKER_PORT}",
            "inter.broker.listener.name": INTER_BROKER,
        }

    def controller(self) -> dict[str, PropertyValue]:
        """Return the settings of a separate controller."""
        return {
            **self._shared(CONTROLLER_ID),
            "process.roles": "controller",
            "listeners": f"CONTROLLER://:{CONTROLLER_PORT}",
        }

    def _shared(self, node_id: int) -> dict[str, PropertyValue]:
        voter_id = CONTROLLER_ID if self.has_own_controller else min(self._advertised)
        return {
            **settings_of(node_id, len(self._advertised), self._config),
            "node.id": node_id,
            "controller.quorum.voters": f"{voter_id}@{server_name(voter_id)}:{CONTROLLER_PORT}",
            "controller.listener.names": "CONTROLLER",
            PROTOCOL_MAP: protocol_map({PLAINTEXT: PLAINTEXT}),
            "log.dirs": DATA_FOLDER,
        }


def server_name(node_id: int) -> str:
    """Return the server's name in the network and in errors."""
    return "controller" if node_id == CONTROLLER_ID else f"broker-{node_id}"


def _engine_host() -> str:
    """Return the host on which the ports of containers are reached from here."""
    try:
        _reach_socket()
        client = DockerClient()
        client.client.ping()
    except (OSError, *ENGINE_ERRORS) as error:
        place = os.environ.get("DOCKER_HOST") or "its default socket"
        raise MissingPrerequisiteError(
            f"PYKCLIENT_KAFKA_PROVIDER=docker needs a Docker engine, and none responds at {place}: "
            f"{error}. Start one, or name another in DOCKER_HOST, or unset "
            "PYKCLIENT_KAFKA_PROVIDER to run Kafka from its jars."
        ) from error
    try:
        if client.get_connection_mode() is not ConnectionMode.docker_host:
            raise ConfigError(
                "the ports of containers cannot be reached at the address of the Docker engine's "
                "host from here; set TESTCONTAINERS_HOST_OVERRIDE to an address of the host and "
                "TESTCONTAINERS_CONNECTION_MODE=docker_host"
            )
        return client.host()
    finally:
        client.client.close()


def _reach_socket() -> None:
    """Check that the engine's Unix socket accepts connections. Raises OSError.

    docker-py never closes a socket whose connection failed, and the test would be blamed for it.
    """
    _, is_file, path = (get_docker_host() or DEFAULT_UNIX_SOCKET).partition("unix://")
    if is_file:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(REACH_TIMEOUT_S)
            probe.connect(f"/{path.lstrip('/')}")


@contextlib.contextmanager
def _made_network() -> Iterator[Network]:
    network = Network()
    try:
        network.create()
    except ENGINE_ERRORS as error:
        raise BrokerFailedError(
            f"the Docker engine failed to create the cluster's network: {error}"
        ) from error
    try:
        yield network
    finally:
        network.remove()


def _free_port() -> int:
    """Return a port that is free here now; a remote engine reports it if it is in use there."""
    reservation = PortReservation()
    reservation.close()
    return reservation.port
