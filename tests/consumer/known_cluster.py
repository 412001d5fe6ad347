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
    """A network for coordinators in which every node responds except those the test removed."""

    def __init__(self) -> None:
        self.unavailable: set[int] = set()

    def is_unavailable(self, node_id: int, now_ms: int) -> bool:
        """Return whether the test removed the node."""
        del now_ms
        return node_id in self.unavailable

    def suspect_ms(self, node_id: int) -> int:
        """Return 0: no response is overdue."""
        del node_id
        return NEVER_MS

    def abandon(self, node_id: int, error: KafkaError, now_ms: int) -> None:
        """Do nothing: every node responds, so none is abandoned."""
        raise AssertionError(f"{node_id} was given up at {now_ms}") from error


def make_metadata() -> Metadata:
    """Return metadata without a response yet."""
    config = ConsumerConfig.from_settings(bootstrap_servers="boot:9092")
    return Metadata(config, allow_auto_topic_creation=False, random=Steady())


def refresh(metadata: Metadata) -> None:
    """Respond to a metadata request as a broker does, so that no update is due."""
    (request,) = metadata.poll(START_MS).requests
    request.on_response(MetadataResponse(), START_MS)
    assert not is_outdated(metadata)


def is_outdated(metadata: Metadata) -> bool:
    """Return whether metadata will be requested before its maximum age."""
    return metadata.next_poll_ms() < START_MS + MAX_AGE_MS


def topic(
    name: str, leaders: Sequence[int | None], *, topic_id: bytes = TOPIC_ID, leader_epoch: int = 4
) -> TopicInfo:
    """Return a topic with one partition for each leader."""
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
    """Set the cluster to these topics, as a response does."""
    metadata.cluster = Cluster(
        version=metadata.cluster.version + 1,
        controller_id=nodes[0],
        nodes=[Node(node_id, f"broker-{node_id}", 9092) for node_id in nodes],
        topics=topics,
        topic_errors=errors,
    )
