"""What a cluster's brokers come from: the jars on this machine, or containers.

`KafkaCluster` is made of one of them and knows no more of it than stands here.

Owner: the thread that made it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pykclient.errors.base import ConnectionFailedError, KafkaTimeoutError
from pykclient.testing.cluster.probe import answer_timeout_s, ask_metadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pykclient.testing.cluster.broker_state import BrokerState
    from pykclient.testing.cluster.probe import Address
    from pykclient.testing.deadline import Deadline
    from pykclient.testing.proxy.proxy import FaultProxy

__all__ = ["Provider", "Server", "await_ready"]

PROBE_PAUSE_S = 0.03


class Server(Protocol):
    """One broker, or the controller. What does not fit its state raises `UsageError`."""

    @property
    def state(self) -> BrokerState:
        """The state now; one that ended, by us or by itself, is STOPPED."""

    def start(self) -> None:
        """Start it; its being ready is another matter."""

    def pause(self) -> None:
        """Hold it: it keeps its connections and answers nothing."""

    def resume(self) -> None:
        """Let it go on as if no time had passed."""

    def kill(self) -> None:
        """End it with SIGKILL, running or paused."""

    def stop(self, timeout: float) -> None:
        """End it with SIGTERM; `KafkaTimeoutError` if it had to be killed after all."""

    def stay_alive(self, timeout: float) -> None:
        """Watch it for `timeout` seconds; `BrokerFailedError` if it has ended."""


class Provider(Protocol):
    """A cluster that runs, its brokers numbered from 1."""

    @property
    def brokers(self) -> Mapping[int, Server]:
        """The brokers by node id."""

    @property
    def proxies(self) -> Mapping[int, FaultProxy]:
        """The proxies before them; none where the cluster is not proxied."""

    def address(self, node_id: int) -> Address:
        """Where the broker is reached from here, whether or not it is up."""

    def client_address(self, node_id: int) -> Address:
        """Where the broker tells clients to go: its proxy, if it has one."""

    def data_folder(self, node_id: int) -> Path:
        """Where the broker keeps its partitions; `UsageError` where that is not on this machine."""

    def start(self, node_id: int, timeout: float) -> None:
        """Start a broker again and wait until it and all that run know each other."""

    def running(self) -> list[int]:
        """The node ids of the brokers that run and are not paused."""

    def close(self) -> None:
        """End all servers and remove what they left. A second call does nothing."""


def await_ready(
    node_id: int,
    address: Address,
    *,
    running: Iterable[int],
    watched: Sequence[Server],
    deadline: Deadline,
) -> None:
    """Wait until the broker answers and lists every broker that runs.

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
        answer = ask_metadata(address, timeout=answer_timeout_s(deadline))
    except ConnectionFailedError as error:
        return str(error)
    missing = expected - {broker.node_id for broker in answer.brokers}
    return f"it does not list the brokers {sorted(missing)}" if missing else None
