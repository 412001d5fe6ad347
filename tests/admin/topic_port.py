"""TopicPort: a port without sockets, behind which brokers keep topics as a cluster does.

Broker 1 is the controller. A broker has a change only after `lag_count` requests.

Owner: the test that made it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError
from pykclient.protocol.messages.api_versions import ApiVersionsRequest
from pykclient.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pykclient.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from pykclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.network.scripted_port import ScriptedPort

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.protocol.message import Message, Request
    from tests.network.scripted_port import ScriptedPeer

INTERNAL = "__consumer_offsets"


class TopicPort(ScriptedPort):
    """The port. `topics` has the number of partitions of each topic, as the controller has it."""

    def __init__(self, broker_count: int = 1) -> None:
        super().__init__()
        self.topics: dict[str, int] = {INTERNAL: 1}
        self.lag_count = 0
        self.is_hung = False
        self.on_wait: Callable[[], None] = lambda: None
        self.requests: list[tuple[str, type[Request]]] = []
        """All requests, and at which host."""
        self._broker_ids = range(1, broker_count + 1)
        self._known = {f"broker-{number}": dict(self.topics) for number in self._broker_ids}
        self._lags: dict[str, int] = {}

    def wait(self, timeout_ms: int) -> None:
        """Serve and deliver as many requests as possible."""
        self.on_wait()
        for peer in self.peers:
            self._serve(peer)
        super().wait(timeout_ms)

    def _serve(self, peer: ScriptedPeer) -> None:
        if not peer.is_accepted:
            peer.accept()
        while peer.requests and not self.is_hung and not peer.is_ended:
            message = peer.requests[0].message
            if isinstance(message, ApiVersionsRequest):
                peer.respond_versions()
                continue
            self.requests.append((peer.host, type(message)))
            peer.respond(self._response(message, peer.host))

    def _response(self, message: Request, host: str) -> Message:
        if isinstance(message, CreateTopicsRequest):
            return CreateTopicsResponse(topics=[self._create(t.name) for t in message.topics])
        if isinstance(message, DeleteTopicsRequest):
            return DeleteTopicsResponse(responses=[self._delete(n) for n in message.topic_names])
        assert isinstance(message, MetadataRequest)
        known = self._metadata_of(host) if message.topics else self.topics
        names = list(known) if message.topics is None else [t.name for t in message.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=number, host=f"broker-{number}", port=9092)
                for number in self._broker_ids
            ],
            controller_id=1,
            topics=[_topic(name, known.get(name or "")) for name in names],
        )

    def _metadata_of(self, host: str) -> dict[str, int]:
        """Return a broker's topics; it learns of a change after `lag_count` requests."""
        if self._known.get(host) != self.topics:
            self._lags[host] = self._lags.get(host, self.lag_count) - 1
            if self._lags[host] < 0:
                self._known[host] = dict(self.topics)
                del self._lags[host]
        return self._known.get(host, self.topics)

    def _create(self, name: str) -> CreatableTopicResult:
        if name in self.topics:
            return CreatableTopicResult(name, error_code=TopicAlreadyExistsError.code)
        self.topics[name] = 1
        return CreatableTopicResult(name, num_partitions=1, replication_factor=1)

    def _delete(self, name: str) -> DeletableTopicResult:
        if self.topics.pop(name, None) is None:
            return DeletableTopicResult(name, error_code=UnknownTopicOrPartitionError.code)
        return DeletableTopicResult(name)


def _topic(name: str | None, partition_count: int | None) -> MetadataResponseTopic:
    if partition_count is None:
        return MetadataResponseTopic(name=name, error_code=UnknownTopicOrPartitionError.code)
    return MetadataResponseTopic(
        name=name,
        is_internal=name == INTERNAL,
        partitions=[
            MetadataResponsePartition(partition_index=index, leader_id=1)
            for index in range(partition_count)
        ],
    )
