"""ProduceCall: one Produce request, from the batches it carries to the response for each.

Batches are put in, the request is made once, and they are taken out again with their part of the
response. That there is one part for each batch and none besides, is checked here before the sender
gets it. What an error says of a batch's records is here too; what follows from it is the sender's
matter.

Owner: the sender thread.
Source: Java class ``Sender``, method ``sendProduceRequest``; KIP-467 (refused records),
KIP-516 (topic ids).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors import InvalidRecordError, error_for_code
from pykclient.network.cluster.cluster import NO_TOPIC_ID
from pykclient.network.manager import Request, check_answered
from pykclient.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.errors import KafkaError
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.producer.accumulator.batch import ProducerBatch
    from pykclient.protocol.message import Message
    from pykclient.protocol.messages.produce import PartitionProduceResponse

__all__ = ["ProduceCall", "record_errors"]

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
        return not self._carried

    @property
    def topics(self) -> list[str]:
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
            check=self.check,
        )

    def check(self, response: Message) -> None:
        """Make sure that a response names the partitions of the batches, each once.

        Raises:
            DecodeError: it does not.
        """
        assert isinstance(response, ProduceResponse)
        answered = (partition for partition, _ in self._parts(response))
        check_answered("Produce", self._carried, answered)

    def take_parts(
        self, response: ProduceResponse
    ) -> Iterator[tuple[ProducerBatch, PartitionProduceResponse]]:
        """Take out the batches, each with its part. Requires that the response was checked."""
        for partition, part in self._parts(response):
            yield self._carried.pop(partition), part

    def _parts(
        self, response: ProduceResponse
    ) -> Iterator[tuple[TopicPartition, PartitionProduceResponse]]:
        for topic in response.responses:
            name = topic.name or self._names_by_id.get(topic.topic_id, "")
            for part in topic.partition_responses:
                yield TopicPartition(name, part.index), part

    def take_rest(self) -> list[ProducerBatch]:
        rest = list(self._carried.values())
        self._carried.clear()
        return rest


def record_errors(
    batch: ProducerBatch, response: PartitionProduceResponse
) -> dict[int, KafkaError] | None:
    """Return each record's error: refused itself, or with others of its batch (KIP-467)."""
    if not response.record_errors:
        return None
    errors: dict[int, KafkaError] = {
        index: InvalidRecordError(
            f"{batch.partition}: not written, since other records of its batch were refused: "
            f"{response.error_message or 'no reason given'}"
        )
        for index in range(batch.record_count)
    }
    for refused in response.record_errors:
        reason = refused.batch_index_error_message or response.error_message
        errors[refused.batch_index] = error_for_code(
            response.error_code, f"{batch.partition}: the record was refused: {reason}"
        )
    return errors
