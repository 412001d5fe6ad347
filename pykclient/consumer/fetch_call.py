"""FetchCall: one Fetch request, from what is asked of each partition to what is said of it.

What an answer means is the fetcher's matter; that it tells only of what was asked for, is checked
here before the fetcher hears of it.

Owner: the driver of the engine.
Source: Java class ``AbstractFetch``, method ``createFetchRequest``; KIP-516 (topic ids).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.errors import DecodeError
from pykclient.network.cluster import NO_TOPIC_ID
from pykclient.network.manager import Request
from pykclient.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.consumer.fetcher import FetchSettings
    from pykclient.consumer.subscription import AssignedPartition
    from pykclient.errors import KafkaError
    from pykclient.network.cluster import Cluster
    from pykclient.protocol.message import Message
    from pykclient.protocol.messages.fetch import PartitionData

__all__ = ["FetchCall", "Target", "Targets"]

FULL_FETCH_SESSION_ID: Final = 0
FULL_FETCH_SESSION_EPOCH: Final = -1
"""Together: no session (KIP-227), each request names all its partitions."""

TOPIC_NAMES_MAX_VERSION: Final = 12
"""Newer versions of Fetch name topics by id alone (KIP-516)."""


class Target(NamedTuple):
    """What was asked of one partition."""

    assigned: AssignedPartition
    epoch: int
    offset: int

    @property
    def is_current(self) -> bool:
        """Whether the answer still concerns anybody."""
        return self.assigned.is_assigned and self.assigned.epoch == self.epoch


Targets = dict[tuple[str, int], Target]


class FetchCall:
    """A request to `node_id`; ids and leader epochs are those of `cluster`."""

    def __init__(self, node_id: int, targets: Targets, cluster: Cluster) -> None:
        self.node_id = node_id
        self.targets = targets
        self._topics: dict[str, FetchTopic] = {}
        self._names_by_id: dict[bytes, str] = {}
        self._cluster = cluster

    def request(
        self,
        settings: FetchSettings,
        *,
        on_response: Callable[[Message | None, int], None],
        on_failure: Callable[[KafkaError, int], None],
    ) -> Request:
        """Make the request, in a version that names topics if one of them has no id."""
        for target in self.targets.values():
            self._ask(target, settings.partition_max_bytes)
        message = FetchRequest(
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            isolation_level=settings.isolation_level,
            session_id=FULL_FETCH_SESSION_ID,
            session_epoch=FULL_FETCH_SESSION_EPOCH,
            topics=list(self._topics.values()),
            rack_id=settings.rack,
        )
        has_ids = NO_TOPIC_ID not in self._names_by_id
        return Request(
            message,
            self.node_id,
            on_response=on_response,
            on_failure=on_failure,
            max_version=None if has_ids else TOPIC_NAMES_MAX_VERSION,
            check=self.check,
        )

    def check(self, response: Message) -> None:
        """Make sure that an answer names no partition but those asked for, each once.

        It may leave some out: one that throttles us names none.

        Raises:
            DecodeError: it does.
        """
        assert isinstance(response, FetchResponse)
        unanswered = set(self.targets)
        for partition, _ in self._answers(response):
            if partition not in unanswered:
                raise DecodeError(
                    f"a Fetch answer names {partition[0]}-{partition[1]}, which was not asked "
                    f"for, or twice"
                )
            unanswered.discard(partition)

    def answers(self, response: FetchResponse) -> Iterator[tuple[Target, PartitionData]]:
        """Return what is said of each partition. Requires that the answer was checked."""
        for partition, answer in self._answers(response):
            yield self.targets[partition], answer

    def _ask(self, target: Target, max_bytes: int) -> None:
        partition = target.assigned.partition
        name, index = partition
        topic = self._topics.get(name)
        if topic is None:
            topic_id = self._cluster.topic_id(name)
            topic = self._topics[name] = FetchTopic(topic=name, topic_id=topic_id)
            self._names_by_id[topic_id] = name
        info = self._cluster.partition(partition)
        epoch = None if info is None else info.leader_epoch
        topic.partitions.append(
            FetchPartition(
                partition=index,
                current_leader_epoch=-1 if epoch is None else epoch,
                fetch_offset=target.offset,
                partition_max_bytes=max_bytes,
            )
        )

    def _answers(self, response: FetchResponse) -> Iterator[tuple[tuple[str, int], PartitionData]]:
        for topic in response.responses:
            name = topic.topic or self._names_by_id.get(topic.topic_id, "")
            for answer in topic.partitions:
                yield (name, answer.partition_index), answer
