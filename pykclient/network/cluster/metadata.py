"""Metadata: requests updates of the cluster snapshot and applies the responses.

Owner: the driver of the engine. Other threads read `cluster`, `updated_ms` and `fatal_since`.
Source: Java classes ``Metadata``, ``ProducerMetadata``; KIP-320 (leader epochs), KIP-526 (idle
topics), KIP-899 and KIP-1102 (back to the bootstrap addresses).
"""

from __future__ import annotations

import logging
from enum import Enum
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from pykclient.errors import (
    DecodeError,
    KafkaError,
    RebootstrapRequiredError,
    UnknownTopicOrPartitionError,
    error_for_code,
)
from pykclient.errors.tracebacks import renewed, without_frames
from pykclient.network.cluster.cluster import (
    NO_TOPIC_ID,
    Cluster,
    TopicInfo,
    bootstrap_nodes,
    topic_info,
)
from pykclient.network.cluster.node import broker_node
from pykclient.network.log import ClientLog
from pykclient.network.manager import NEVER_MS, PollResult, Request
from pykclient.network.retry import Backoff
from pykclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pykclient.config.client import ClientConfig
    from pykclient.errors import BrokerError
    from pykclient.network.cluster.cluster import LeaderHints, PartitionInfo
    from pykclient.network.cluster.node import CoordinatorNode
    from pykclient.protocol.message import Message
    from pykclient.types import Node

RELIABLE_EPOCHS_VERSION = 9
"""First version of Metadata with reliable leader epochs. Brokers before 2.4 may name an older epoch
than a partition has while it is reassigned (Java's ``hasReliableLeaderEpochs``)."""

LAG_MS_MAX = 10_000
"""Time that a broker may lag behind. Topic ids, from Kafka 2.8 on, make this guess unnecessary."""


class MetadataState(Enum):
    FRESH = "fresh"
    STALE = "stale"
    IN_FLIGHT = "in_flight"


NEXT: dict[MetadataState, frozenset[MetadataState]] = {
    MetadataState.FRESH: frozenset({MetadataState.STALE}),
    MetadataState.STALE: frozenset({MetadataState.IN_FLIGHT}),
    MetadataState.IN_FLIGHT: frozenset({MetadataState.FRESH, MetadataState.STALE}),
}


class Metadata:
    """The manager that keeps `cluster` up to date.

    It tracks the topics named by `add_topic` or `set_topics`, or all topics after `set_all_topics`.
    Updates continue while a topic in use has no leader; with all topics, `used_topics` says which
    ones are in use. With `topic_idle_ms`, a topic that is not named again in that time is
    forgotten. After `metadata_recovery_rebootstrap_trigger_ms` without a good response the snapshot
    is dropped, so that the next request goes to a bootstrap address.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        allow_auto_topic_creation: bool,
        topic_idle_ms: int | None = None,
        random: Random | None = None,
    ) -> None:
        self.bootstrap = bootstrap_nodes(config.bootstrap_servers)
        self.cluster = Cluster()
        self.cluster_id: str | None = None
        """The id of the first cluster that this client reached. None before that, and while brokers
        name no cluster."""
        self.fatal_error: KafkaError | None = None
        """The error with which every node failed and that no retry cures. None once it was raised
        or has passed."""
        self.fatal_count = 0
        """Number of times `fatal_error` was set."""
        self.last_error: KafkaError | None = None
        """The error of the last update; None if it succeeded."""
        self.updated_ms: int | None = None
        """Time of the last good response; None before the first one."""
        self._log = ClientLog("pykclient.network", config.client_id)
        self._refresh_backoff = Backoff(
            config.retry_backoff_ms,
            config.retry_backoff_max_ms,
            random=random or Random(),  # noqa: S311 (for jitter)
        )
        self._config = config
        self._allow_auto_topic_creation = allow_auto_topic_creation
        self._topic_idle_ms = topic_idle_ms
        self._named_ms: dict[str, int] = {}
        self._used_topics: Callable[[], Collection[str]] | None = None
        """Returns the topics in use, of all topics; None while the topics are named."""
        self._state = MetadataState.STALE
        self._is_outdated = False
        """True if an update was requested while an older one, perhaps without the news, is in
        flight."""
        self._is_urgent = False
        """True if the next update skips its back-off, because it requests a topic for the first
        time."""
        self._attempt_count = 0
        self._unchanged_count = 0
        """Number of responses in a row that changed nothing."""
        self._response_version = MetadataRequest.max_version
        self._older_since_ms: dict[str, int] = {}
        """Start of the time in which responses have older epochs than known ones, for topics
        without ids."""
        self._earliest_ms = 0
        self._expires_ms = 0
        self._failing_since_ms: int | None = None
        self._listeners: list[Callable[[Cluster], None]] = []
        self._coordinators: dict[int, CoordinatorNode] = {}
        self._coordinators_version = 0

    # For the other managers.

    def add_listener(self, listener: Callable[[Cluster], None]) -> None:
        """Call `listener(cluster)` after each update, and when `fatal_error` is set."""
        self._listeners.append(listener)

    def add_topic(self, topic: str, now_ms: int) -> None:
        is_new = topic not in self._named_ms
        self._named_ms[topic] = now_ms
        if is_new and self._used_topics is None:
            self._request_at_once()

    def set_topics(self, topics: Collection[str]) -> None:
        wanted = dict.fromkeys(topics, NEVER_MS)
        is_new = self._used_topics is not None or any(
            topic not in self._named_ms for topic in wanted
        )
        self._named_ms = wanted
        self._used_topics = None
        if is_new:
            self._request_at_once()

    def set_all_topics(self, used_topics: Callable[[], Collection[str]]) -> None:
        """Request all topics. `used_topics` is called once per response."""
        is_new = self._used_topics is None
        self._used_topics = used_topics
        if is_new:
            self._request_at_once()

    def request_update(self) -> None:
        """Mark the snapshot as stale. The update waits for its back-off."""
        if self._state is MetadataState.FRESH:
            self._to(MetadataState.STALE)
        else:
            self._is_outdated = True

    def learn_coordinator(self, node: CoordinatorNode) -> None:
        if self._coordinators.get(node.id) != node:
            self._coordinators[node.id] = node
            self._coordinators_version += 1

    def learn_leaders(self, hints: LeaderHints) -> bool:
        """Apply the leaders that another response names; return whether any is new."""
        cluster = hints.newer_than(self.cluster)
        if cluster is not None:
            self._swap(cluster)
        return cluster is not None

    # Fatal errors.

    def on_verdict(self, error: KafkaError) -> None:
        """Record the error of all nodes, if no retry cures it until something changes there."""
        self.fatal_error = without_frames(error)
        self.fatal_count += 1
        self._swap(self.cluster)

    def fatal_since(self, count: int) -> KafkaError | None:
        """Return the error that became fatal since `fatal_count` was `count`, or None.

        Any thread may call it; it is for calls of several threads that wait.
        """
        error = self.fatal_error
        return None if error is None or self.fatal_count == count else renewed(error)

    def on_served(self) -> None:
        """Record a good response of a broker: the fatal error is true no longer."""
        self.fatal_error = None

    def take_fatal_error(self) -> KafkaError | None:
        """Return the error that the waiting call raises, and clear it.

        The next call tries again.
        """
        error, self.fatal_error = self.fatal_error, None
        return None if error is None else renewed(error)

    # For the network client and the engine.

    def is_of_cluster(self, response: MetadataResponse) -> bool:
        """Return whether a response comes from this client's cluster.

        The first response with a cluster id decides which cluster that is.
        """
        if self.cluster_id is None:
            self.cluster_id = response.cluster_id
        return response.cluster_id in (None, self.cluster_id)

    def node(self, node_id: int) -> Node | None:
        """Return a broker, a coordinator or a bootstrap address (negative id); None if unknown."""
        if node_id < 0:
            return self.bootstrap[-node_id - 1] if -node_id <= len(self.bootstrap) else None
        return self.cluster.nodes.get(node_id) or self._coordinators.get(node_id)

    @property
    def address_version(self) -> int:
        """A number that grows whenever `node` may return another address than before."""
        return self.cluster.version + self._coordinators_version

    def next_poll_ms(self) -> int:
        """Return the time of the next update; `NEVER_MS` while one is in flight."""
        if self._state is MetadataState.FRESH:
            return max(self._expires_ms, self._earliest_ms)
        if self._state is MetadataState.STALE:
            return 0 if self._is_urgent else self._earliest_ms
        return NEVER_MS

    def poll(self, now_ms: int) -> PollResult:
        due_ms = self.next_poll_ms()
        if now_ms < due_ms:
            return PollResult(next_poll_ms=due_ms)
        if self._state is MetadataState.FRESH:
            self._to(MetadataState.STALE)
        self._rebootstrap_if_failing(now_ms)
        self._forget_idle_topics(now_ms)
        self._is_outdated, self._is_urgent = False, False
        self._to(MetadataState.IN_FLIGHT)
        return PollResult(requests=(self._request(),))

    def restart(self, now_ms: int) -> None:
        """Request an update at once: the outcome of the last one is unknown."""
        del now_ms
        self._state = MetadataState.STALE
        self._is_urgent = True

    # Requests.

    def _request(self) -> Request:
        topics = None
        if self._used_topics is None:
            topics = [MetadataRequestTopic(name=name) for name in self._named_ms]
        message = MetadataRequest(
            topics=topics,
            allow_auto_topic_creation=self._allow_auto_topic_creation and topics is not None,
        )
        return Request(
            message,
            node_id=None,
            on_response=self._on_response,
            on_failure=self._on_failure,
            check=None if topics is None else partial(_check_topics, frozenset(self._named_ms)),
            build=partial(self._build, message),
            is_movable=True,
        )

    def _build(self, message: MetadataRequest, version: int) -> MetadataRequest:
        self._response_version = version
        return message

    def _request_at_once(self) -> None:
        self._is_urgent = True
        self.request_update()

    def _forget_idle_topics(self, now_ms: int) -> None:
        if self._topic_idle_ms is None:
            return
        oldest_ms = now_ms - self._topic_idle_ms
        self._named_ms = {
            topic: named_ms for topic, named_ms in self._named_ms.items() if named_ms >= oldest_ms
        }

    def _rebootstrap_if_failing(self, now_ms: int) -> None:
        if self._failing_since_ms is None or self._config.metadata_recovery_strategy == "none":
            return
        failing_ms = now_ms - self._failing_since_ms
        is_due = failing_ms >= self._config.metadata_recovery_rebootstrap_trigger_ms
        if is_due and self.cluster.nodes:
            self._log.warning(
                "no metadata for %d ms; returning to the bootstrap addresses", failing_ms
            )
            self._rebootstrap(now_ms)

    def _rebootstrap(self, now_ms: int) -> None:
        self._failing_since_ms = now_ms
        self._swap(Cluster(version=self.cluster.version + 1))

    # Responses.

    def _on_response(self, response: Message | None, now_ms: int) -> None:
        assert isinstance(response, MetadataResponse)
        if response.error_code == RebootstrapRequiredError.code:
            self._log.warning("the cluster requests a return to the bootstrap addresses")
            self.last_error = error_for_code(response.error_code)
            self._retry_later(now_ms)
            self._rebootstrap(now_ms)
            return
        if response.error_code != 0:
            self._note_failure(error_for_code(response.error_code), now_ms)
            self._retry_later(now_ms)
            return
        try:
            cluster, is_complete = self._merge(response, now_ms)
        except DecodeError as error:
            self._note_failure(error, now_ms)
            self._retry_later(now_ms)
            return
        self.last_error = self._failing_since_ms = self.fatal_error = None
        self.updated_ms = now_ms
        self._expires_ms = now_ms + self._config.metadata_max_age_ms
        if is_complete:
            self._attempt_count = 0
            # A partition that no longer exists may be requested again and again: then the back-off
            # grows.
            is_pressed = now_ms - self._earliest_ms <= self._refresh_backoff.max_ms
            is_repeated = is_pressed and cluster.is_like(self.cluster)
            self._unchanged_count = self._unchanged_count + 1 if is_repeated else 0
            self._earliest_ms = now_ms + self._refresh_backoff.delay_ms(self._unchanged_count)
            self._to(MetadataState.STALE if self._is_outdated else MetadataState.FRESH)
        else:
            self._retry_later(now_ms)
        self._swap(cluster)

    def _on_failure(self, error: KafkaError, now_ms: int) -> None:
        self._note_failure(error, now_ms)
        self._retry_later(now_ms)

    def _note_failure(self, error: KafkaError, now_ms: int) -> None:
        # One warning is enough; failing connections log that the failure persists.
        level = logging.WARNING if self.last_error is None else logging.DEBUG
        self._log.log(level, "metadata update failed: %s", error)
        self.last_error = error
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms

    def _retry_later(self, now_ms: int) -> None:
        self._earliest_ms = now_ms + self._refresh_backoff.delay_ms(self._attempt_count)
        self._attempt_count += 1
        self._to(MetadataState.STALE)

    def _swap(self, cluster: Cluster) -> None:
        for topic in self.cluster.topic_errors.keys() & cluster.topics.keys():
            if isinstance(self.cluster.topic_errors[topic], UnknownTopicOrPartitionError):
                self._log_created(topic, len(cluster.topics[topic].partitions))
        self.cluster = cluster
        for listener in self._listeners:
            listener(cluster)

    def _log_created(self, topic: str, partition_count: int) -> None:
        """Log the creation of a topic that did not exist; its partition count may be a default."""
        why = ""
        if self._allow_auto_topic_creation:
            why = "; brokers create a requested topic (auto.create.topics.enable) with "
            why += "num.partitions partitions"
        self._log.info(
            "topic %r did not exist and now has %d partitions%s", topic, partition_count, why
        )

    def _merge(self, response: MetadataResponse, now_ms: int) -> tuple[Cluster, bool]:
        """Return the new snapshot, and whether it is complete for the topics in use."""
        node_ids = {broker.node_id for broker in response.brokers}
        topics: list[TopicInfo] = []
        errors: dict[str, BrokerError] = {}
        used = None if self._used_topics is None else self._used_topics()
        is_complete = True
        for topic in response.topics:
            if topic.error_code == 0:
                info = self._newest(self._reliable(topic_info(topic)), now_ms)
                topics.append(info)
                if used is None or info.name in used:
                    has_leaders = all(each.leader_id in node_ids for each in info.partitions)
                    is_complete = is_complete and has_leaders
            elif topic.name is not None:
                error = error_for_code(topic.error_code, f"topic {topic.name!r}")
                errors[topic.name] = error
                if used is None or topic.name in used:
                    is_complete = is_complete and not error.retriable
        cluster = Cluster(
            version=self.cluster.version + 1,
            cluster_id=response.cluster_id,
            controller_id=None if response.controller_id < 0 else response.controller_id,
            nodes=[broker_node(broker) for broker in response.brokers],
            topics=topics,
            topic_errors=errors,
        )
        return cluster, is_complete

    def _reliable(self, received: TopicInfo) -> TopicInfo:
        """Remove leader epochs from a topic if the broker is too old to have reliable ones."""
        if self._response_version >= RELIABLE_EPOCHS_VERSION:
            return received
        return received._replace(
            partitions=tuple(each._replace(leader_epoch=None) for each in received.partitions)
        )

    def _newest(self, received: TopicInfo, now_ms: int) -> TopicInfo:
        """Keep a known partition where the response has an older leader epoch."""
        known = self.cluster.topics.get(received.name)
        # Another id means that the topic was deleted and recreated: its epochs start over.
        if known is None or known.topic_id != received.topic_id:
            return received
        if received.topic_id == NO_TOPIC_ID and self._is_anew(known, received, now_ms):
            return received
        return received._replace(
            partitions=(
                *map(_newer, known.partitions, received.partitions),
                *received.partitions[len(known.partitions) :],
            )
        )

    def _is_anew(self, known: TopicInfo, received: TopicInfo, now_ms: int) -> bool:
        """Return whether a topic without an id must have been recreated.

        It must if responses have had older epochs for longer than a broker lags behind.
        """
        are_older = map(_is_older, received.partitions, known.partitions)
        if not any(are_older):
            self._older_since_ms.pop(received.name, None)
            return False
        since_ms = self._older_since_ms.setdefault(received.name, now_ms)
        if now_ms - since_ms < LAG_MS_MAX:
            return False
        del self._older_since_ms[received.name]
        return True

    def _to(self, state: MetadataState) -> None:
        assert state in NEXT[self._state], f"{self._state} -> {state}"
        self._state = state


def _check_topics(requested: frozenset[str], response: Message) -> None:
    assert isinstance(response, MetadataResponse)
    missing = requested.difference(topic.name for topic in response.topics)
    if missing and response.error_code == 0:
        raise DecodeError(f"a Metadata response lacks topic {min(missing)!r}")


def _newer(known: PartitionInfo, received: PartitionInfo) -> PartitionInfo:
    return known if _is_older(received, known) else received


def _is_older(received: PartitionInfo, known: PartitionInfo) -> bool:
    return (
        known.leader_epoch is not None
        and received.leader_epoch is not None
        and received.leader_epoch < known.leader_epoch
    )
