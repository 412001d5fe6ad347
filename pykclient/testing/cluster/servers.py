"""The servers of one cluster that was started, wherever they run, and the proxies before them.

A subclass starts them, from the jars on this machine or as containers, and fills the attributes.
`KafkaCluster` has one of them and knows no more of it than stands here.

Owner: the thread that made it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from pykclient.errors.base import ConnectionFailedError, KafkaTimeoutError
from pykclient.testing.clock import Deadline
from pykclient.testing.cluster.probe import fetch_metadata, response_timeout_s
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
    """One broker, or the controller. What does not fit its state raises `UsageError`."""

    @property
    def state(self) -> BrokerState:
        """The state now; one that ended, by us or by itself, is STOPPED."""

    def start(self) -> None:
        """Start it; its being ready is another matter."""

    def pause(self) -> None:
        """Hold it: it keeps its connections and sends nothing."""

    def resume(self) -> None:
        """Let it go on as if no time had passed."""

    def kill(self) -> None:
        """End it with SIGKILL, running or paused."""

    def stop(self, timeout: float) -> None:
        """End it with SIGTERM; `KafkaTimeoutError` if it had to be killed after all."""

    def stay_alive(self, timeout: float) -> None:
        """Watch it for `timeout` seconds; `BrokerFailedError` if it has ended."""


class ClusterServers(ABC):
    """Brokers by node id, and the controller if it is none of them."""

    proxies: Mapping[int, Mapping[str, FaultProxy]]
    """By node id and listener, the proxies through which clients reach a broker; empty where they
    reach it itself."""
    certificates: CertificateAuthority | None = None
    """What signed the brokers' certificates, where they have any."""
    _servers: Mapping[int, Server]
    """By node id, the controller that is no broker among them."""
    _resources: ExitStack
    """What ends the servers and removes what they left."""

    @property
    def brokers(self) -> dict[int, Server]:
        """The brokers by node id, without a controller that is no broker."""
        return {id_: server for id_, server in self._servers.items() if id_ != CONTROLLER_ID}

    @abstractmethod
    def address(self, node_id: int) -> Address:
        """Where broker `node_id` is reached from here in plain text, whether or not it is up."""

    @abstractmethod
    def client_address(self, node_id: int, listener: str) -> Address:
        """Where broker `node_id` is advertised to clients of a listener."""

    @abstractmethod
    def data_folder(self, node_id: int) -> Path:
        """Where the broker keeps its partitions; `UsageError` where that is not on this machine."""

    def start(self, node_id: int, timeout: float) -> None:
        """Start a broker again and wait until it and all that run know each other.

        Raises:
            UsageError: it is not stopped.
            BrokerFailedError: it ended again; ends with the tail of its log.
            KafkaTimeoutError: it was not ready within `timeout` seconds.
        """
        deadline = Deadline(timeout)
        self._servers[node_id].start()
        self.wait_until_all_ready(deadline)

    def running(self) -> list[int]:
        """The node ids of the brokers that run and are not paused."""
        return [id_ for id_, broker in self.brokers.items() if broker.state is BrokerState.RUNNING]

    def close(self) -> None:
        """End all servers and remove what they left. A second call does nothing."""
        self._resources.close()

    def wait_until_all_ready(self, deadline: Deadline) -> None:
        """Wait until all brokers that run list each other; see `await_ready`."""
        for running_id in self.running():
            self.wait_until_ready(running_id, deadline)

    def wait_until_ready(self, node_id: int, deadline: Deadline) -> None:
        """Wait until the broker responds and lists every broker that runs; see `await_ready`."""
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
    """Wait until the broker responds and lists every broker that runs.

    Raises:
        BrokerFailedError: one of the `watched` ended meanwhile.
        KafkaTimeoutError: it was not ready in time; says what was missing.
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
