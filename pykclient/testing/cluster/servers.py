"""The servers of one cluster that was started, wherever they run, and their proxies.

What makes them is the subclasses' matter, which fill the attributes.

Owner: the thread that made it.
Source: ours.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from pykclient.testing.cluster.broker_state import BrokerState
from pykclient.testing.cluster.provider import Server, await_ready
from pykclient.testing.cluster.server_properties import CONTROLLER_ID
from pykclient.testing.deadline import Deadline

if TYPE_CHECKING:
    from contextlib import ExitStack

    from pykclient.testing.cluster.probe import Address
    from pykclient.testing.proxy.proxy import FaultProxy

__all__ = ["ClusterServers"]

ServerT = TypeVar("ServerT", bound=Server)


class ClusterServers(ABC, Generic[ServerT]):
    """Brokers by node id, and the controller if it is none of them."""

    proxies: dict[int, FaultProxy]
    """By node id, the proxy through which clients reach a broker; empty where they reach it itself.
    """
    _servers: dict[int, ServerT]
    """By node id, the controller that is no broker among them."""
    _resources: ExitStack
    """What ends the servers and removes what they left."""

    @property
    def brokers(self) -> dict[int, ServerT]:
        """The brokers by node id, without a controller that is no broker."""
        return {id_: server for id_, server in self._servers.items() if id_ != CONTROLLER_ID}

    @abstractmethod
    def address(self, node_id: int) -> Address:
        """Where broker `node_id` is reached from here, whether or not it is up."""

    def client_address(self, node_id: int) -> Address:
        """Where broker `node_id` tells clients to go: its proxy, if it has one."""
        if node_id in self.proxies:
            return self.proxies[node_id].address
        return self.address(node_id)

    def start(self, node_id: int, timeout: float) -> None:
        """Start a broker again and wait until it and all that run know each other.

        Raises:
            UsageError: it is not stopped.
            BrokerFailedError: it ended again; ends with the tail of its log.
            KafkaTimeoutError: it was not ready within `timeout` seconds.
        """
        deadline = Deadline(timeout)
        self._servers[node_id].start()
        for running_id in self.running():
            self._await_ready(running_id, deadline)

    def running(self) -> list[int]:
        """The node ids of the brokers that run and are not paused."""
        return [id_ for id_, broker in self.brokers.items() if broker.state is BrokerState.RUNNING]

    def close(self) -> None:
        """End all servers and remove what they left. A second call does nothing."""
        self._resources.close()

    def _await_ready(self, node_id: int, deadline: Deadline) -> None:
        await_ready(
            node_id,
            self.address(node_id),
            running=self.running(),
            watched=[
                self._servers[id_] for id_ in (CONTROLLER_ID, node_id) if id_ in self._servers
            ],
            deadline=deadline,
        )
