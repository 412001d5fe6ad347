"""EmptyPolls: why a poll is empty, where the application must know; Stalls: what is not read.

A cluster may be away for a moment, but a wrong address or a misspelled topic never ends by itself.
So each of these has a time after which an empty poll raises what is known. What was raised is not
raised again while it lasts, but logged now and then. With `on_stall` log it is only logged.

Owner: the core lock.
Source: ours. Java's consumer retries and reports nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.consumer.config import RAISE
from pykclient.consumer.subscription import PositionState, SubscriptionMode
from pykclient.errors import DisconnectedError, KafkaTimeoutError, UnknownTopicOrPartitionError
from pykclient.network.broker.errors import UNREACHED_CURE
from pykclient.network.coordinators import CoordinatorType
from pykclient.network.log import ClientLog, RateLimitedLog
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.subscription import AssignedPartition, SubscriptionState
    from pykclient.errors import KafkaError
    from pykclient.network.broker.client import NetworkClient
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.network.cluster.metadata import Metadata
    from pykclient.network.coordinators import Coordinators

NO_CLUSTER_MS: Final = 3_000
"""How long polls may go without any response, as long as some address may still give one."""

UNKNOWN_TOPIC_MS: Final = 1_000
"""How long a topic may be unknown to the brokers: one made just now takes a moment to spread."""

ABSENCE_CHARGED_MS: Final = UNKNOWN_TOPIC_MS // 2
"""What counts of the time between two empty polls, less than each of the times above: two polls
that are far apart are not enough. Were nothing counted, an application that polls for a moment now
and then would never get an error."""

GOES_ON: Final = "%s; this goes on by itself"

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


class EmptyPolls:
    def __init__(
        self,
        config: ConsumerConfig,
        *,
        metadata: Metadata,
        client: NetworkClient,
        subscription: SubscriptionState,
        coordinators: Coordinators,
        stalls: Stalls,
        why_no_position: Callable[[AssignedPartition], object],
        why_no_member: Callable[[], KafkaError | None],
    ) -> None:
        self._config = config
        self._log = ClientLog("pykclient.consumer", config.client_id)
        self._repeated = RateLimitedLog(self._log)
        self._metadata = metadata
        self._client = client
        self._subscription = subscription
        self._coordinators = coordinators
        self._stalls = stalls
        self._why_no_position = why_no_position
        self._why_no_member = why_no_member
        self._raised: set[object] = set()
        """What was raised and still lasts."""
        self._no_coordinator_since_ms: int | None = None
        self._first_poll_ms: int | None = None
        self._unknown_since_ms: dict[TopicPartition, int] = {}
        self._ended_ms: int | None = None
        """When the last empty poll ended."""

    def reason(self, started_ms: int, now_ms: int) -> KafkaError | None:
        """Return what to raise from a poll that ends empty, None for nothing.

        `started_ms` is when that poll began.
        """
        error = self._found(started_ms, now_ms)
        if error is None or self._config.on_stall == RAISE:
            return error
        self._log.warning(GOES_ON, error)  # as seldom as it would be raised
        return None

    def _found(self, started_ms: int, now_ms: int) -> KafkaError | None:
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
        self._raised &= lasting.keys()
        for reason, error in lasting.items():
            if error is None:
                continue
            if reason not in self._raised:
                self._raised.add(reason)
                return error
            self._repeated.log(logging.WARNING, now_ms, (reason,), GOES_ON, error)
        return None

    def _excuse_absence(self, started_ms: int) -> None:
        """Leave out the time in which no poll was empty, but for its first moment.

        What began before may have ended and begun again meanwhile.
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
        self._stalls.excuse(later)

    def _no_cluster(self, since_ms: int, now_ms: int) -> KafkaError | None:
        waited_ms = now_ms - since_ms
        if waited_ms < NO_CLUSTER_MS and not self._has_tried_all():
            return None
        failures = self._client.describe_failures()
        if not failures:
            failures = f"no address has responded yet; {UNREACHED_CURE}"
        if isinstance(self._metadata.last_error, DisconnectedError):
            failures += (
                "; a listener that requires authentication (SASL) responds to the handshake and "
                "then hangs up: use one of security protocol PLAINTEXT; or it is the broker that "
                "ended"
            )
        return KafkaTimeoutError(f"no broker could be reached for {waited_ms} ms: {failures}")

    def _no_coordinator(self, started_ms: int, now_ms: int) -> KafkaError | None:
        """Return an error when the group's coordinator has failed for a session's time."""
        group_id = self._config.group_id
        if group_id is None:
            return None
        # One that assigns partitions by hand requests from it how far the group has come.
        is_needed = self._subscription.is_by_group or any(
            assigned.state is PositionState.INITIALIZING
            for assigned in self._subscription.without_position
        )
        found = self._coordinator_stall(group_id) if is_needed else None
        if found is None:
            self._no_coordinator_since_ms = None
            return None
        if self._no_coordinator_since_ms is None:
            self._no_coordinator_since_ms = started_ms
        waited_ms = now_ms - self._no_coordinator_since_ms
        if waited_ms < self._config.session_timeout_ms:
            return None
        self._no_coordinator_since_ms = now_ms  # once a session, not in each poll
        what, why, cure = found
        return KafkaTimeoutError(
            f"the coordinator of group {group_id!r} {what} for {waited_ms} ms: {why}; {cure}"
        )

    def _coordinator_stall(self, group_id: str) -> tuple[str, object, str] | None:
        """Return what is wrong, why, and what may cure it.

        One found and lost again and again is out of reach.
        """
        coordinator = self._coordinators.find(CoordinatorType.GROUP, group_id)
        node = coordinator.node()
        # One that cannot be reached is known for moments only, in which no poll may end.
        found = coordinator.found_node
        unreached = None if found is None else self._client.last_error(found.id)
        error = coordinator.attempt.last_error
        if unreached is not None and error is None:
            return "was out of reach", unreached, _FIND_COORDINATOR
        if node is None:
            failures = error or self._client.describe_failures()
            why = failures or "no broker has reported which it is"
            return "was not found", why, _FIND_COORDINATOR
        refusal = self._why_no_member()
        if refusal is None:
            return None
        return "did not take this consumer in", refusal, _JOIN_GROUP

    def _unread(self, started_ms: int, now_ms: int) -> KafkaError | None:
        """Return an error when a partition has stalled for too long."""
        for assigned in self._subscription.without_position:
            why = self._why_no_position(assigned) or "it has no position yet"
            self._stalls.note(assigned, why, started_ms)
        oldest = self._stalls.oldest()
        if oldest is None:
            return None
        assigned, (reason, since_ms) = oldest
        waited_ms = now_ms - since_ms
        if waited_ms < self._config.default_api_timeout_ms:
            return None
        self._stalls.on_reported(now_ms)
        count = len(self._stalls)
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


class Stall(NamedTuple):
    """Why a partition is not read: the newest reason, and when the first one was noted."""

    reason: object
    since_ms: int


class Stalls:
    def __init__(self) -> None:
        self._stalls: dict[AssignedPartition, Stall] = {}

    def __len__(self) -> int:
        return len(self._stalls)

    def note(self, assigned: AssignedPartition, reason: object, now_ms: int) -> None:
        """Note why a partition cannot be read, an error or a text; it is not the first reason."""
        known = self._stalls.get(assigned)
        self._stalls[assigned] = Stall(reason, now_ms if known is None else known.since_ms)

    def end(self, partitions: Iterable[AssignedPartition]) -> None:
        """Note that partitions are read. Costs nothing where nothing stalls."""
        if self._stalls:
            for assigned in partitions:
                self._stalls.pop(assigned, None)
            # While all polls find records, `oldest` is not called.
            self._forget([each for each in self._stalls if not each.is_assigned])

    def oldest(self) -> tuple[AssignedPartition, Stall] | None:
        """Return the longest stall of a partition that is to be read."""
        self._forget([each for each in self._stalls if not _is_to_be_read(each)])
        if not self._stalls:
            return None
        return min(self._stalls.items(), key=lambda item: item[1].since_ms)

    def on_reported(self, now_ms: int) -> None:
        """Count the time of all stalls anew: the application knows of them."""
        for assigned, stall in self._stalls.items():
            self._stalls[assigned] = stall._replace(since_ms=now_ms)

    def excuse(self, later: Callable[[int], int]) -> None:
        """Move the times since when stalls count, each to what `later` makes of it."""
        for assigned, stall in self._stalls.items():
            self._stalls[assigned] = stall._replace(since_ms=later(stall.since_ms))

    def _forget(self, partitions: Iterable[AssignedPartition]) -> None:
        for assigned in partitions:
            del self._stalls[assigned]


def _is_to_be_read(assigned: AssignedPartition) -> bool:
    is_stopped = assigned.is_paused or assigned.is_held or assigned.has_reached_limit
    return assigned.is_assigned and not is_stopped
