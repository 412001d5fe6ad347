"""NetworkLine: an engine with metadata alone, over real sockets, as a client's front-end builds it.

Owner: the test that made it; a context manager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from pykclient.network.broker.client import NetworkClient
from pykclient.network.cluster.metadata import Metadata
from pykclient.network.drive import drive_until, now_ms
from pykclient.network.engine import Engine
from pykclient.network.io.selector import SelectorPort
from pykclient.producer.config import ProducerConfig

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NetworkLine"]


class NetworkLine:
    """A line to the cluster at `servers`, with further settings as keywords."""

    def __init__(self, servers: str, **settings: object) -> None:
        config = ProducerConfig.from_settings(bootstrap_servers=servers, **settings)
        self.port = SelectorPort.from_config(config)
        self.metadata = Metadata.from_config(config, allow_auto_topic_creation=True)
        self.client = NetworkClient(config, self.port, self.metadata)
        self.engine = Engine(self.client, [self.metadata])

    def drive(self, until: Callable[[], bool], timeout_ms: int) -> bool:
        """Drive until it holds, or the time is over; return which."""
        return drive_until(self.engine, self.port, until=until, deadline_ms=now_ms() + timeout_ms)

    def learn(self, timeout_ms: int) -> bool:
        """Drive until there is metadata newer than now, or nothing more to hope for."""
        version = self.metadata.cluster.version
        self.metadata.request_update()
        return self.drive(
            lambda: (
                self.metadata.cluster.version > version or self.metadata.fatal_error is not None
            ),
            timeout_ms,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.port.shutdown()
