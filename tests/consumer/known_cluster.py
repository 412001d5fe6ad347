"""The metadata of a manager under test, and a retry back-off without jitter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.consumer.config import ConsumerConfig
from pykclient.network.broker.client import NetworkClient
from pykclient.network.cluster.cluster import Cluster, PartitionInfo, TopicInfo
from pykclient.network.cluster.metadata import Metadata
from pykclient.network.manager import NEVER_MS
from pykclient.network.retry import Backoff
from pykclient.protocol.messages.metadata import MetadataResponse
from pykclient.types import Node
from tests.network.scripted_network import Steady

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pykclient.errors import BrokerError, KafkaError

START_MS = 1_000_000
RETRY_MS = 100
MAX_AGE_MS = 300_000
RETRY_BACKOFF = Backoff(RETRY_MS, 1_000, jitter=0)
TOPIC_ID = bytes(range(16))


class ReachableNetwork(NetworkClient):
    """What coordinators need of a network in which every node responds but those taken away."""

    def __init__(self) -> None:
        self.unavailable: set[int] = set()

    def is_unavailable(self, node_id: int, now_ms: int) -> bool:
        """Whether the test took the node away."""
        del now_ms
        return node_id in self.unavailable

    def suspect_ms(self, node_id: int) -> int:
        """No response is due."""
        del node_id
        return NEVER_MS

    def abandon(self, node_id: int, error: KafkaError, now_ms: int) -> None:
        """Every node responds, so none is given up."""
        raise AssertionError(f"{node_id} was given up at {now_ms}") from error


def make_metadata() -> Metadata:
    """Metadata without a response yet."""
    config = ConsumerConfig.from_settings(bootstrap_servers="boot:9092")
    return Metadata(config, allow_auto_topic_creation=False, random=Steady())


def refresh(metadata: Metadata) -> None:
    """Let a broker respond to a metadata request, so that none is due for now."""
    (request,) = metadata.poll(START_MS).requests
    request.on_response(MetadataResponse(), START_MS)
    assert not is_outdated(metadata)


def is_outdated(metadata: Metadata) -> bool:
    """Whether metadata will be requested before its age makes it due."""
    return metadata.next_poll_ms() < START_MS + MAX_AGE_MS


def topic(
    name: str, leaders: Sequence[int | None], *, topic_id: bytes = TOPIC_ID, leader_epoch: int = 4
) -> TopicInfo:
    """A topic with one partition for each leader."""
    return TopicInfo(
        name,
        topic_id,
        False,
        tuple(
            PartitionInfo(name, index, leader, leader_epoch) for index, leader in enumerate(leaders)
        ),
    )


def update_metadata(
    metadata: Metadata,
    *topics: TopicInfo,
    errors: Mapping[str, BrokerError] | None = None,
    nodes: Sequence[int] = (1, 2, 3),
) -> None:
    """Set the cluster to these topics, as after a response."""
    metadata.cluster = Cluster(
        version=metadata.cluster.version + 1,
        controller_id=nodes[0],
        nodes=[Node(node_id, f"broker-{node_id}", 9092) for node_id in nodes],
        topics=topics,
        topic_errors=errors,
    )
