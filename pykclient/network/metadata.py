"""Metadata: when to ask the cluster about itself, and how an answer changes our picture of it.

States: *fresh* (nothing due before the age limit), *stale* (an update was asked for), *in flight*
(asked, not answered). The picture is an immutable `Cluster`, swapped whole; this object never
changes one that it has handed out. An answer that knows less than we do about a partition's
leadership, which brokers that lag behind give, does not take us back (KIP-320).

Owner: the driver of the engine. Other threads read `cluster` and `fatal_error`.
Source: Java classes ``Metadata``, ``ProducerMetadata``; KIP-320 (leader epochs), KIP-526 (idle
topics), KIP-899 and KIP-1102 (back to the bootstrap addresses).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pykclient.errors import DecodeError, KafkaError, error_for_code
from pykclient.network.backoff import Backoff
from pykclient.network.bootstrap import bootstrap_nodes
from pykclient.network.cluster import Cluster, PartitionInfo, TopicInfo
from pykclient.network.manager import NEVER_MS, PollResult, Request
from pykclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from pykclient.types import Node

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Self

    from pykclient.config import ClientConfig
    from pykclient.errors import BrokerError
    from pykclient.protocol.message import Message
    from pykclient.protocol.messages.metadata import (
        MetadataResponsePartition,
        MetadataResponseTopic,
    )

__all__ = ["Metadata"]

log = logging.getLogger("pykclient.network")

LEADER_NONE = -1
"""How a Metadata answer says that a partition has no leader."""

REBOOTSTRAP_REQUIRED = 129


class Metadata:
    """The manager that keeps `cluster` up to date.

    `topics` are tracked because they were named by `add_topic` or `set_topics`, or are all topics
    after `set_all_topics`. With `topic_idle_ms` a topic that nobody names again in that time is
    forgotten.
    """

    def __init__(
        self,
        *,
        bootstrap: Sequence[Node],
        refresh_backoff: Backoff,
        max_age_ms: int,
        allow_auto_topic_creation: bool,
        topic_idle_ms: int | None = None,
    ) -> None:
        self.bootstrap = tuple(bootstrap)
        self.cluster = Cluster()
        self.fatal_error: KafkaError | None = None
        self._refresh_backoff = refresh_backoff
        self._max_age_ms = max_age_ms
        self._allow_auto_topic_creation = allow_auto_topic_creation
        self._topic_idle_ms = topic_idle_ms
        self._last_named_ms: dict[str, int] = {}
        self._wants_all_topics = False
        self._is_requested = True
        self._is_in_flight = False
        self._is_urgent = False
        """A topic was added while a request was in flight that does not name it."""
        self._attempt_count = 0
        self._earliest_ms = 0
        self._expires_ms = 0
        self._listeners: list[Callable[[Cluster], None]] = []

    @classmethod
    def from_config(
        cls,
        config: ClientConfig,
        *,
        allow_auto_topic_creation: bool,
        topic_idle_ms: int | None = None,
    ) -> Self:
        """Build one as a client's configuration says."""
        return cls(
            bootstrap=bootstrap_nodes(config.bootstrap_servers),
            refresh_backoff=Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms),
            max_age_ms=config.metadata_max_age_ms,
            allow_auto_topic_creation=allow_auto_topic_creation,
            topic_idle_ms=topic_idle_ms,
        )

    # What the other managers ask for.

    def add_listener(self, listener: Callable[[Cluster], None]) -> None:
        """Have `listener(cluster)` called after each update and after a fatal failure."""
        self._listeners.append(listener)

    def add_topic(self, topic: str, now_ms: int) -> None:
        """Track a topic; one that is not known yet is asked for at once."""
        is_new = topic not in self._last_named_ms
        self._last_named_ms[topic] = now_ms
        if is_new and not self._wants_all_topics:
            self._request_at_once()

    def set_topics(self, topics: Collection[str]) -> None:
        """Track exactly these topics."""
        wanted = dict.fromkeys(topics, NEVER_MS)
        is_new = self._wants_all_topics or any(t not in self._last_named_ms for t in wanted)
        self._last_named_ms = wanted
        self._wants_all_topics = False
        if is_new:
            self._request_at_once()

    def set_all_topics(self) -> None:
        """Track every topic of the cluster."""
        if not self._wants_all_topics:
            self._wants_all_topics = True
            self._request_at_once()

    def request_update(self) -> None:
        """Note that the picture is stale. The update waits for its back-off."""
        self._is_requested = True

    # What the network client asks.

    def node(self, node_id: int) -> Node | None:
        """Return a broker, or a bootstrap address by its negative id; None if unknown."""
        found = self.cluster.nodes.get(node_id)
        if found is None and node_id < 0 and -node_id <= len(self.bootstrap):
            return self.bootstrap[-node_id - 1]
        return found

    def poll(self, now_ms: int) -> PollResult:
        """Ask for the metadata when an update is due."""
        if self._is_in_flight or self.fatal_error is not None:
            return PollResult()
        due_ms = self._earliest_ms if self._is_requested else self._expires_ms
        due_ms = max(due_ms, self._earliest_ms)
        if now_ms < due_ms:
            return PollResult(next_poll_ms=due_ms)
        self._forget_idle_topics(now_ms)
        self._is_requested, self._is_urgent, self._is_in_flight = False, False, True
        return PollResult(requests=(self._request(),))

    def _request(self) -> Request:
        topics = None
        if not self._wants_all_topics:
            topics = [MetadataRequestTopic(name=name) for name in self._last_named_ms]
        return Request(
            MetadataRequest(
                topics=topics,
                allow_auto_topic_creation=self._allow_auto_topic_creation and topics is not None,
            ),
            node_id=None,
            on_response=self._on_response,
            on_failure=self._on_failure,
        )

    def _request_at_once(self) -> None:
        self._is_requested = self._is_urgent = True
        self._earliest_ms = 0
        self._attempt_count = 0

    def _forget_idle_topics(self, now_ms: int) -> None:
        if self._topic_idle_ms is None:
            return
        oldest_ms = now_ms - self._topic_idle_ms
        self._last_named_ms = {
            topic: named_ms
            for topic, named_ms in self._last_named_ms.items()
            if named_ms >= oldest_ms
        }

    # Answers.

    def _on_response(self, response: Message | None, now_ms: int) -> None:
        assert isinstance(response, MetadataResponse)
        if response.error_code == REBOOTSTRAP_REQUIRED:
            log.warning("the cluster asks clients to start over from the bootstrap addresses")
            self._swap(Cluster(version=self.cluster.version + 1))
            self._retry_later(now_ms)
            return
        if response.error_code != 0:
            self._on_failure(error_for_code(response.error_code), now_ms)
            return
        try:
            cluster, is_complete = self._merge(response)
        except DecodeError as error:
            self._on_failure(error, now_ms)
            return
        self._is_in_flight = False
        self._expires_ms = now_ms + self._max_age_ms
        if is_complete:
            self._attempt_count = 0
            if not self._is_urgent:
                self._earliest_ms = now_ms + self._refresh_backoff.delay_ms(0)
        else:
            self._retry_later(now_ms)
        self._swap(cluster)

    def _on_failure(self, error: KafkaError, now_ms: int) -> None:
        log.warning("metadata update failed: %s", error)
        self._retry_later(now_ms)
        if error.fatal:
            self.fatal_error = error
            self._swap(self.cluster)

    def _retry_later(self, now_ms: int) -> None:
        self._is_in_flight, self._is_requested = False, True
        if self._is_urgent:
            return
        self._earliest_ms = now_ms + self._refresh_backoff.delay_ms(self._attempt_count)
        self._attempt_count += 1

    def _swap(self, cluster: Cluster) -> None:
        self.cluster = cluster
        for listener in self._listeners:
            listener(cluster)

    def _merge(self, response: MetadataResponse) -> tuple[Cluster, bool]:
        nodes = [
            Node(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        ]
        topics: list[TopicInfo] = []
        errors: dict[str, BrokerError] = {}
        is_complete = True
        for answer in response.topics:
            if answer.name is None:
                raise DecodeError("a Metadata answer names a topic by neither name nor known id")
            if answer.error_code != 0:
                errors[answer.name] = error = error_for_code(
                    answer.error_code, f"topic {answer.name!r}"
                )
                is_complete = is_complete and not error.retriable
                continue
            info, has_leaders = self._topic(answer)
            topics.append(info)
            is_complete = is_complete and has_leaders
        cluster = Cluster(
            version=self.cluster.version + 1,
            cluster_id=response.cluster_id,
            controller_id=None if response.controller_id < 0 else response.controller_id,
            nodes=nodes,
            topics=topics,
            topic_errors=errors,
        )
        return cluster, is_complete

    def _topic(self, answer: MetadataResponseTopic) -> tuple[TopicInfo, bool]:
        assert answer.name is not None
        known = self.cluster.topics.get(answer.name)
        if known is not None and known.topic_id != answer.topic_id:
            known = None  # deleted and made anew: its epochs begin again
        partitions = sorted(answer.partitions, key=lambda partition: partition.partition_index)
        for expected, partition in enumerate(partitions):
            if partition.partition_index != expected:
                raise DecodeError(
                    f"a Metadata answer lists partition {partition.partition_index} of topic "
                    f"{answer.name!r} where {expected} must stand"
                )
        infos = tuple(_newest(answer.name, partition, known) for partition in partitions)
        has_leaders = all(info.leader_id is not None for info in infos)
        info = TopicInfo(answer.name, answer.topic_id, answer.is_internal, infos)
        return info, has_leaders


def _newest(
    topic: str, answer: MetadataResponsePartition, known: TopicInfo | None
) -> PartitionInfo:
    index = answer.partition_index
    if known is not None and index < len(known.partitions):
        before = known.partitions[index]
        if before.leader_epoch is not None and -1 < answer.leader_epoch < before.leader_epoch:
            return before
    return PartitionInfo(
        topic=topic,
        partition=index,
        leader_id=None if answer.leader_id == LEADER_NONE else answer.leader_id,
        leader_epoch=None if answer.leader_epoch < 0 else answer.leader_epoch,
        replica_ids=tuple(answer.replica_nodes),
        in_sync_replica_ids=tuple(answer.isr_nodes),
        offline_replica_ids=tuple(answer.offline_replicas),
    )
