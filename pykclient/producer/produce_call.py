"""ProduceCall: one Produce request, from the batches it carries to what is said of each.

Batches are put in, the request is made once, and they are taken out again as they are answered; an
answer that matches none of them is passed over. What an answer means is the sender's matter.

Owner: the sender thread.
Source: Java class ``Sender``, method ``sendProduceRequest``; KIP-516 (topic ids).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pykclient.network.cluster import NO_TOPIC_ID
from pykclient.network.manager import Request
from pykclient.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.errors import KafkaError
    from pykclient.network.cluster import Cluster
    from pykclient.producer.batch import ProducerBatch
    from pykclient.protocol.message import Message
    from pykclient.protocol.messages.produce import PartitionProduceResponse, ProduceResponse

__all__ = ["ProduceCall"]

log = logging.getLogger("pykclient.producer")

ACKS_NONE = 0
TOPIC_IDS_FROM_VERSION = 13


class ProduceCall:
    """A request to `node_id`; `cluster` is what the topics' ids are taken from."""

    def __init__(self, node_id: int, cluster: Cluster) -> None:
        self._node_id = node_id
        self._cluster = cluster
        self._carried: dict[TopicPartition, ProducerBatch] = {}
        self._topics: dict[str, TopicProduceData] = {}
        self._names_by_id: dict[bytes, str] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no batch was put in, or none is left."""
        return not self._carried

    @property
    def topics(self) -> list[str]:
        """The topics of the batches that were put in."""
        return list(self._topics)

    def carry(self, batch: ProducerBatch) -> None:
        """Put a batch in.

        Raises:
            ConfigError: it cannot be compressed as it should be, and is not put in.
        """
        records = batch.encode()
        name, partition = batch.partition
        topic = self._topics.get(name)
        if topic is None:
            topic_id = self._cluster.topic_id(name)
            topic = self._topics[name] = TopicProduceData(name, topic_id, [])
            self._names_by_id[topic_id] = name
        topic.partition_data.append(PartitionProduceData(partition, records))
        self._carried[batch.partition] = batch

    def request(
        self,
        acks: int,
        timeout_ms: int,
        *,
        on_response: Callable[[Message | None, int], None],
        on_failure: Callable[[KafkaError, int], None],
    ) -> Request:
        """Make the request, in a version that names topics if one of them has no id."""
        has_ids = NO_TOPIC_ID not in self._names_by_id
        return Request(
            ProduceRequest(
                acks=acks, timeout_ms=timeout_ms, topic_data=list(self._topics.values())
            ),
            node_id=self._node_id,
            on_response=on_response,
            on_failure=on_failure,
            max_version=None if has_ids else TOPIC_IDS_FROM_VERSION - 1,
            expects_response=acks != ACKS_NONE,
        )

    def take_answered(
        self, response: ProduceResponse
    ) -> Iterator[tuple[ProducerBatch, PartitionProduceResponse]]:
        """Take out the batches that are answered, each with its answer."""
        for topic in response.responses:
            name = topic.name or self._names_by_id.get(topic.topic_id, "")
            for answer in topic.partition_responses:
                batch = self._carried.pop(TopicPartition(name, answer.index), None)
                if batch is None:
                    log.warning("an answer about %s-%d, which was not asked", name, answer.index)
                    continue
                yield batch, answer

    def take_rest(self) -> list[ProducerBatch]:
        """Take out all batches that are still carried."""
        rest = list(self._carried.values())
        self._carried.clear()
        return rest
