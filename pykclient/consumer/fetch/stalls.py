"""Silence: whether an empty poll has a reason that the application must hear of.

A poll that finds nothing is normal, and an application that polls in short steps must not get an
error because the cluster is a moment away. But a wrong address or a misspelled topic never ends by
itself, and brokers that are gone may stay away. So each of these has a time after which an empty
poll raises what is known. Of the time between two empty polls a moment counts at most: the
application was away, or there was something to read. What was raised is not raised again while it
lasts, but logged now and then: a loop that goes on after an error is not in error all the time.

Owner: the core lock.
Source: ours. Java's consumer stays silent, which is what its users complain about most.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from pykclient.consumer.subscription import PositionState, SubscriptionMode
from pykclient.errors import (
    DisconnectedError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)
from pykclient.network.client_log import ClientLog
from pykclient.network.cluster.coordinators import CoordinatorType
from pykclient.network.repeated_log import RepeatedLog
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pykclient.consumer.fetch.troubles import FetchTroubles
    from pykclient.consumer.subscription import AssignedPartition, SubscriptionState
    from pykclient.errors import KafkaError
    from pykclient.network.broker.client import NetworkClient
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.network.cluster.coordinators import Coordinators
    from pykclient.network.cluster.metadata import Metadata

__all__ = ["NO_CLUSTER_MS", "UNKNOWN_TOPIC_MS", "Silence", "unknown_partition"]

NO_CLUSTER_MS: Final = 3_000
"""How long polls may go without any answer, as long as some address may still give one."""

UNKNOWN_TOPIC_MS: Final = 1_000
"""How long a topic may be unknown to the brokers: one made just now takes a moment to spread."""

ABSENCE_CHARGED_MS: Final = UNKNOWN_TOPIC_MS // 2
"""What counts of the time between two empty polls, less than each of the times above: two polls
that are far apart are not enough. Were nothing counted, an application that polls for a moment now
and then would never be told."""

_FIND_COORDINATOR: Final = "check that the brokers run, and that __consumer_offsets has leaders"
_JOIN_GROUP: Final = "it goes on trying; Consumer.group_history() lists the last attempts"


def unknown_partition(
    cluster: Cluster, partition: TopicPartition
) -> UnknownTopicOrPartitionError | None:
    """Return the error that says that brokers do not know a partition; None if they do, or may."""
    known = cluster.partitions_for(partition.topic)
    if known is not None and partition.partition >= len(known):
        return UnknownTopicOrPartitionError(
            f"{partition} does not exist: topic {partition.topic!r} has {len(known)} partitions, "
            f"numbered from 0"
        )
    error = cluster.topic_errors.get(partition.topic)
    if not isinstance(error, UnknownTopicOrPartitionError):
        return None
    return UnknownTopicOrPartitionError(
        f"topic {partition.topic!r} does not exist: the brokers do not know it. Check its name and "
        f"the cluster, or create it with Admin.create_topics"
    )


class Silence:
    """Watches the polls of one consumer."""

    def __init__(
        self,
        metadata: Metadata,
        client: NetworkClient,
        subscription: SubscriptionState,
        *,
        troubles: FetchTroubles,
        why_no_position: Callable[[AssignedPartition], object],
        unread_max_ms: int,
        coordinators: Coordinators | None = None,
        group_id: str | None = None,
        session_timeout_ms: int = 0,
        why_no_member: Callable[[], KafkaError | None] = lambda: None,
        client_id: str = "",
    ) -> None:
        self._repeated = RepeatedLog(ClientLog("pykclient.consumer", client_id))
        self._told: set[object] = set()
        """What was raised and still lasts."""
        self._metadata = metadata
        self._troubles = troubles
        self._why_no_position = why_no_position
        self._unread_max_ms = unread_max_ms
        self._coordinators = coordinators
        self._group_id = group_id
        self._session_timeout_ms = session_timeout_ms
        self._why_no_member = why_no_member
        self._no_coordinator_since_ms: int | None = None
        self._unreached: KafkaError | None = None
        """Why the coordinator was out of reach, though it may just be looked up again."""
        self._client = client
        self._subscription = subscription
        self._first_poll_ms: int | None = None
        self._unknown_since_ms: dict[TopicPartition, int] = {}
        self._ended_ms: int | None = None
        """When the last empty poll ended."""

    def reason(self, started_ms: int, now_ms: int) -> KafkaError | None:
        """Return what to raise from a poll that ends empty, None for nothing.

        `started_ms` is when that poll began.
        """
        self._excuse_absence(started_ms)
        self._ended_ms = now_ms
        if self._first_poll_ms is None:
            self._first_poll_ms = started_ms
        if self._metadata.cluster.version == 0:
            error = self._no_cluster(self._first_poll_ms, now_ms)
            kind = type(self._metadata.last_error)
            return self._news({kind: error}, now_ms)
        return (
            self._news(self._unknown(started_ms, now_ms), now_ms)
            or self._no_coordinator(started_ms, now_ms)
            or self._unread(started_ms, now_ms)
        )

    def _news(self, lasting: Mapping[object, KafkaError | None], now_ms: int) -> KafkaError | None:
        """Return the first error that was not raised yet; log the others, now and then.

        `lasting` has all reasons that there are, with None for an error whose time has not come.
        """
        self._told &= lasting.keys()
        for reason, error in lasting.items():
            if error is None:
                continue
            if reason not in self._told:
                self._told.add(reason)
                return error
            self._repeated.log(
                logging.WARNING, now_ms, (reason,), "%s; this goes on by itself", error
            )
        return None

    def _excuse_absence(self, started_ms: int) -> None:
        """Leave out the time in which no poll was empty, but for its first moment.

        What began before may have ended and begun again meanwhile, and nobody looked.
        """
        excused_ms = started_ms  # before the first empty poll
        if self._ended_ms is not None:
            excused_ms -= self._ended_ms + ABSENCE_CHARGED_MS
        if excused_ms <= 0:
            return

        def later(since_ms: int) -> int:
            return max(since_ms, min(since_ms + excused_ms, started_ms))

        if self._first_poll_ms is not None:
            self._first_poll_ms = later(self._first_poll_ms)
        if self._no_coordinator_since_ms is not None:
            self._no_coordinator_since_ms = later(self._no_coordinator_since_ms)
        for partition, since_ms in self._unknown_since_ms.items():
            self._unknown_since_ms[partition] = later(since_ms)
        self._troubles.excuse(later)

    def _no_cluster(self, since_ms: int, now_ms: int) -> KafkaError | None:
        waited_ms = now_ms - since_ms
        if waited_ms < NO_CLUSTER_MS and not self._has_tried_all():
            return None
        failures = self._client.describe_failures() or "no address has answered yet"
        cure = "check bootstrap_servers and that the brokers run"
        if isinstance(self._metadata.last_error, DisconnectedError):
            cure = (
                "a listener that asks for authentication (SASL) answers the handshake and then "
                "hangs up: use one of security protocol PLAINTEXT; or it is the broker that ended"
            )
        return KafkaTimeoutError(
            f"no broker could be reached for {waited_ms} ms: {failures}; {cure}"
        )

    def _no_coordinator(self, started_ms: int, now_ms: int) -> KafkaError | None:
        """Whatever keeps the coordinator from helping has ended this member's session."""
        if self._coordinators is None or self._group_id is None:
            return None
        # One that assigns partitions by hand asks it how far the group has come.
        is_needed = self._subscription.is_by_group or any(
            assigned.state is PositionState.INITIALIZING
            for assigned in self._subscription.without_position
        )
        trouble = None
        if is_needed:
            trouble = self._coordinator_trouble(self._coordinators, self._group_id)
        if trouble is None:
            self._no_coordinator_since_ms = self._unreached = None
            return None
        if self._no_coordinator_since_ms is None:
            self._no_coordinator_since_ms = started_ms
        waited_ms = now_ms - self._no_coordinator_since_ms
        if waited_ms < self._session_timeout_ms:
            return None
        self._no_coordinator_since_ms = now_ms  # it is told once a session, not in each poll
        what, why, cure = trouble
        return KafkaTimeoutError(
            f"the coordinator of group {self._group_id!r} {what} for {waited_ms} ms: {why}; {cure}"
        )

    def _coordinator_trouble(
        self, coordinators: Coordinators, group_id: str
    ) -> tuple[str, object, str] | None:
        """Return what is wrong, why, and what may cure it.

        One found and lost again and again is out of reach.
        """
        node = coordinators.coordinator(CoordinatorType.GROUP, group_id)
        if node is not None:
            self._unreached = self._client.last_error(node.id)
        error = coordinators.last_error(CoordinatorType.GROUP, group_id)
        if self._unreached is not None and error is None:
            return "was out of reach", self._unreached, _FIND_COORDINATOR
        if node is None:
            failures = error or self._client.describe_failures()
            why = failures or "no broker has told who it is"
            return "was not found", why, _FIND_COORDINATOR
        refusal = self._why_no_member()
        if refusal is None:
            return None
        return "did not take this consumer in", refusal, _JOIN_GROUP

    def _unread(self, started_ms: int, now_ms: int) -> KafkaError | None:
        """Somebody who knew everything at first cannot be reached, or does not help, by now."""
        for assigned in self._subscription.without_position:
            why = self._why_no_position(assigned) or "it has no position yet"
            self._troubles.note(assigned, why, started_ms)
        oldest = self._troubles.oldest()
        if oldest is None:
            return None
        assigned, (reason, since_ms) = oldest
        waited_ms = now_ms - since_ms
        if waited_ms < self._unread_max_ms:
            return None
        self._troubles.tell_again(now_ms)
        count = len(self._troubles)
        what = f"{assigned.partition}" + (f" and {count - 1} more" if count > 1 else "")
        why, failures = str(reason), self._client.describe_failures()
        if failures:
            why = failures if why in failures else f"{why}; {failures}"
        return KafkaTimeoutError(
            f"{what} could not be read for {waited_ms} ms: {why}; it goes on by itself when that "
            f"is cured"
        )

    def _has_tried_all(self) -> bool:
        return all(
            self._client.last_error(node.id) is not None for node in self._metadata.bootstrap
        )

    def _unknown(self, started_ms: int, now_ms: int) -> dict[object, KafkaError | None]:
        cluster = self._metadata.cluster
        before, self._unknown_since_ms = self._unknown_since_ms, {}
        found: dict[object, KafkaError | None] = {}
        wanted = [assigned.partition for assigned in self._subscription]
        if self._subscription.mode is SubscriptionMode.TOPICS:
            # A group assigns nothing of a topic that does not exist.
            wanted += [TopicPartition(topic, 0) for topic in self._subscription.wanted_topics]
        for partition in wanted:
            error = unknown_partition(cluster, partition)
            if error is None:
                continue
            since_ms = before.get(partition, started_ms)
            self._unknown_since_ms[partition] = since_ms
            is_due = now_ms - since_ms >= UNKNOWN_TOPIC_MS
            found.setdefault(str(error), error if is_due else None)
        return found
