"""Servers of a started cluster, wherever they run, and the proxies in front of them.

A subclass starts them, from the jars on this machine or as containers, and sets the attributes.
`KafkaCluster` uses only this interface.

Owner: the thread that created it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from pykclient.errors.base import ConnectionFailedError, KafkaTimeoutError
from pykclient.testing.clock import Deadline
from pykclient.testing.cluster.probe import (
    fetch_metadata,
    is_controller_reached,
    response_timeout_s,
)
from pykclient.testing.cluster.processes import BrokerState
from pykclient.testing.cluster.properties import CONTROLLER_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import ExitStack
    from pathlib import Path

    from pykclient.testing.cluster.certificates import CertificateAuthority
    from pykclient.testing.port import Address
    from pykclient.testing.proxy.proxy import FaultProxy

PROBE_PAUSE_S = 0.03


class Server(Protocol):
    """A broker or a controller. A call that does not fit its state raises `UsageError`."""

    @property
    def state(self) -> BrokerState:
        """Current state; a server that ended for any reason is STOPPED."""

    def start(self) -> None:
        """Start it, without waiting until it is ready."""

    def pause(self) -> None:
        """Pause it: it keeps its connections and sends nothing."""

    def resume(self) -> None:
        """Resume it; to the server no time has passed."""

    def kill(self) -> None:
        """Kill it with SIGKILL, running or paused."""

    def stop(self, timeout: float) -> None:
        """Stop it with SIGTERM; raise `KafkaTimeoutError` if it had to be killed."""

    def stay_alive(self, timeout: float) -> None:
        """Watch it for `timeout` seconds; raise `BrokerFailedError` if it has ended."""


class ClusterServers(ABC):
    """Brokers by node id, and the controller if it is separate."""

    proxies: Mapping[int, Mapping[str, FaultProxy]]
    """Proxies in front of brokers, by node id and listener; empty without proxies."""
    certificates: CertificateAuthority | None = None
    """Authority that signed the brokers' certificates, if they have any."""
    _servers: Mapping[int, Server]
    """Servers by node id, a separate controller included."""
    _resources: ExitStack
    """Resources whose closing ends the servers and removes their files."""

    @property
    def has_own_controller(self) -> bool:
        """True if the controller is a separate server."""
        return CONTROLLER_ID in self._servers

    @property
    def brokers(self) -> dict[int, Server]:
        """Brokers by node id, without a separate controller."""
        return {id_: server for id_, server in self._servers.items() if id_ != CONTROLLER_ID}

    @abstractmethod
    def address(self, node_id: int) -> Address:
        """Return the plaintext address of broker `node_id` from here, up or down."""

    @abstractmethod
    def client_address(self, node_id: int, listener: str) -> Address:
        """Return the address that broker `node_id` advertises to clients of a listener."""

    @abstractmethod
    def data_folder(self, node_id: int) -> Path:
        """Return the folder of the broker's partitions. Raises `UsageError` if it is not here."""

    @abstractmethod
    def install(self, node_id: int, version: str) -> None:
        """Give a server another Kafka version for its next start.

        Raises:
            UsageError: it is a container.
            ConfigError: the version is invalid.
            MissingPrerequisiteError: the jars cannot be downloaded.
        """

    def start(self, node_id: int, timeout: float) -> None:
        """Start a server again, and wait until all running brokers list each other.

        After a separate controller's start their requests reach it as well.

        Raises:
            UsageError: it is not stopped.
            BrokerFailedError: it ended again; the message has the tail of its log.
            KafkaTimeoutError: it was not ready within `timeout` seconds.
        """
        deadline = Deadline(timeout)
        self._servers[node_id].start()
        if node_id == CONTROLLER_ID:
            self._wait_for_controller(deadline)
        self.wait_until_all_ready(deadline)

    def stop(self, node_id: int, timeout: float) -> None:
        """Stop a server cleanly; see `Server.stop`."""
        self._servers[node_id].stop(timeout)

    def running(self) -> list[int]:
        """Return the node ids of brokers that run and are not paused."""
        return [id_ for id_, broker in self.brokers.items() if broker.state is BrokerState.RUNNING]

    def close(self) -> None:
        """End all servers and remove their files. Idempotent."""
        self._resources.close()

    def _wait_for_controller(self, deadline: Deadline) -> None:
        while not all(is_controller_reached(self.address(id_), deadline) for id_ in self.running()):
            if deadline.has_passed():
                raise KafkaTimeoutError(
                    f"the controller was not ready within {deadline.timeout_ms} ms"
                )
            self._servers[CONTROLLER_ID].stay_alive(PROBE_PAUSE_S)

    def wait_until_all_ready(self, deadline: Deadline) -> None:
        """Wait until all running brokers list each other; see `await_ready`."""
        for running_id in self.running():
            self.wait_until_ready(running_id, deadline)

    def wait_until_ready(self, node_id: int, deadline: Deadline) -> None:
        """Wait until a broker responds and lists every running broker; see `await_ready`."""
        watched = [self._servers[id_] for id_ in (CONTROLLER_ID, node_id) if id_ in self._servers]
        await_ready(
            node_id,
            self.address(node_id),
            running=self.running(),
            watched=watched,
            deadline=deadline,
        )


def await_ready(
    node_id: int,
    address: Address,
    *,
    running: Iterable[int],
    watched: Sequence[Server],
    deadline: Deadline,
) -> None:
    """Wait until a broker responds and lists every running broker.

    Raises:
        BrokerFailedError: one of the `watched` servers ended.
        KafkaTimeoutError: it was not ready in time; the message tells what is missing.
    """
    expected = set(running)
    while (reason := _why_not_ready(address, expected, deadline)) is not None:
        if deadline.has_passed():
            raise KafkaTimeoutError(
                f"broker {node_id} was not ready within {deadline.timeout_ms} ms: {reason}"
            )
        for server in watched:
            server.stay_alive(PROBE_PAUSE_S)


def _why_not_ready(address: Address, expected: set[int], deadline: Deadline) -> str | None:
    try:
        response = fetch_metadata(address, timeout=response_timeout_s(deadline))
    except ConnectionFailedError as error:
        return str(error)
    missing = expected - {broker.node_id for broker in response.brokers}
    return f"it does not list the brokers {sorted(missing)}" if missing else None
