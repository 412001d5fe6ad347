"""Poll a `Metadata` as the engine does, and respond as brokers do.

Owner: no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors import DisconnectedError
from pykclient.network.cluster.metadata import Metadata
from pykclient.producer.config import ProducerConfig
from pykclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.network.scripted_network import BOOTSTRAP, Steady

if TYPE_CHECKING:
    from pykclient.network.manager import Request

START_MS = 1_000_000
MAX_AGE_MS = 300_000
TOPIC_ID, OTHER_ID = bytes(15) + b"1", bytes(15) + b"2"
UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, INVALID_TOPIC = 3, 5, 17
UNSUPPORTED_VERSION, REBOOTSTRAP_REQUIRED = 35, 129
LOST = DisconnectedError("the broker went away")


def make_metadata(*, topic_idle_ms: int | None = None, **settings: object) -> Metadata:
    """Return metadata that has sent no request, without jitter."""
    servers = [node.address for node in BOOTSTRAP]
    return Metadata(
        ProducerConfig.from_settings({"bootstrap_servers": servers, **settings}),
        allow_auto_topic_creation=True,
        topic_idle_ms=topic_idle_ms,
        random=Steady(),
    )


def poll(metadata: Metadata, now_ms: int) -> Request | None:
    """Poll it as the engine does, and check that a request is due if `next_poll_ms` says so."""
    is_due = metadata.next_poll_ms() <= now_ms
    result = metadata.poll(now_ms)
    assert len(result.requests) == is_due
    return result.requests[0] if result.requests else None


def due_request(metadata: Metadata, now_ms: int) -> Request:
    """Return its request, which must be due."""
    request = poll(metadata, now_ms)
    assert request is not None
    return request


def requested_topics(request: Request) -> list[str | None] | None:
    """Return the topics that a request names; None for all."""
    assert isinstance(request.message, MetadataRequest)
    topics = request.message.topics
    return None if topics is None else [topic.name for topic in topics]


def brokers(*ids: int) -> list[MetadataResponseBroker]:
    return [MetadataResponseBroker(node_id=n, host=f"broker-{n}", port=9092) for n in ids]


def topic(
    name: str | None = "t",
    *,
    leaders: tuple[int, ...] = (1,),
    epoch: int = 0,
    topic_id: bytes = TOPIC_ID,
    error_code: int = 0,
) -> MetadataResponseTopic:
    """Return the topic of a response, with a partition for each leader."""
    return MetadataResponseTopic(
        name=name,
        topic_id=topic_id,
        error_code=error_code,
        partitions=[
            MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch)
            for index, leader in enumerate(leaders)
        ],
    )


def metadata_response(*topics: MetadataResponseTopic) -> MetadataResponse:
    """Return the response of a cluster of two brokers with these topics."""
    return MetadataResponse(
        cluster_id="c", controller_id=1, brokers=brokers(1, 2), topics=list(topics)
    )


def respond_with(metadata: Metadata, now_ms: int, *topics: MetadataResponseTopic) -> None:
    """Poll it, and respond with these topics."""
    due_request(metadata, now_ms).on_response(metadata_response(*topics), now_ms)
