"""The mock cluster that librdkafka carries for its own tests: brokers of another make.

It lives in this process, behind real sockets, as long as its object does. It makes topics of four
partitions when they are asked for, keeps little data, and speaks no newer Kafka than it has to:
ApiVersions up to version 2, for one.

Owner: the test that made it.
Source: librdkafka's property ``test.mock.num.brokers``.
"""

from __future__ import annotations

from typing import Final, Self

from confluent_kafka import Producer

__all__ = ["PARTITION_COUNT", "MockCluster"]

PARTITION_COUNT: Final = 4
"""How many each topic has that it makes by itself."""

TIMEOUT_S: Final = 30.0


class MockCluster:
    """Brokers of librdkafka's, numbered from 1; a context manager."""

    def __init__(self, brokers: int = 3) -> None:
        # The client that owns them also says, at level 5, that it does.
        self._owner: Producer | None = Producer({"test.mock.num.brokers": brokers, "log_level": 3})
        known = self._owner.list_topics(timeout=TIMEOUT_S).brokers.values()
        self.bootstrap_servers = ",".join(f"{broker.host}:{broker.port}" for broker in known)
        """As clients take them: ``host:port,host:port``."""

    def close(self) -> None:
        """End it. A second call does nothing."""
        self._owner = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
