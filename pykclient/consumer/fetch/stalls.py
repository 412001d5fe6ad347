"""EmptyPolls: decides when an empty poll raises an error; Stalls: partitions that are not read.

A cluster may be away for a moment, but a wrong address or a misspelled topic does not resolve
itself. After a certain time, an empty poll therefore raises the known reason. While the reason
lasts, it is not raised again, but logged now and then. With `on_stall=log` it is only logged.

Owner: the core lock.
Source: our own. Java's consumer retries and reports nothing.
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
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.subscription import AssignedPartition, SubscriptionState
    from pykclient.errors import KafkaError
    from pykclient.network.broker.client import NetworkClient
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.network.cluster.metadata import Metadata
    from pykclient.network.coordinators import Coordinators

NO_CLUSTER_MS: Final = 3_000
"""Maximum time without any response, as long as some address was not tried yet."""

UNKNOWN_TOPIC_MS: Final = 1_000
"""Maximum time that brokers may not know a topic: a new one takes a moment to propagate."""

ABSENCE_CHARGED_MS: Final = UNKNOWN_TOPIC_MS // 2
"""Part of the time between two empty polls that counts. It is less than each of the times above, so
that two polls that are far apart are not enough. If none counted, an application that polls only
now and then would never get an error."""

UNLISTED: Final = (
    "brokers do not list it in metadata: the topic was deleted, or its DESCRIBE is denied to this "
    "client"
)

GOES_ON: Final = "%s; the consumer keeps trying"

_FIND_COORDINATOR: Final = "check that the brokers run, and that __consumer_offsets has leaders"
_RESPOND: Final = "check that broker and the network to it"
_JOIN_GROUP: Final = "it keeps trying; Consumer.group_history() lists the last attempts"


def unknown_partition(
    cluster: Cluster, partition: TopicPartition
) -> UnknownTopicOrPartitionError | None:
    """Return the error for a partition that brokers do not know; None if they do, or may."""
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
    """See the module."""

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
        unlisted: Callable[[], Sequence[TopicPartition]],
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
        self._unlisted = unlisted
        self._raised: set[object] = set()
        """Reasons that were raised and still last."""
        self._no_coordinator_since_ms: int | None = None
        self._first_poll_ms: int | None = None
        self._unknown_since_ms: dict[TopicPartition, int] = {}
        self._unlisted_since_ms: int | None = None
        self._known_versions = (-1, -1)
        """Versions of the subscription and the cluster that were last compared."""
        self._missing: list[TopicPartition] = []
        """Their result: the lowest partition that brokers do not know, of each topic."""
        self._ended_ms: int | None = None
        """Time when the last empty poll ended."""

    def reason(self, started_ms: int, now_ms: int) -> KafkaError | None:
        """Return the error for a poll that ends empty, or None.

        `started_ms` is when that poll began.
        """
        error = self._found(started_ms, now_ms)
        if error is None or self._config.on_stall == RAISE:
            return error
        self._log.warning(GOES_ON, error)  # as rarely as it would be raised
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
            or self._unassigned(started_ms, now_ms)
        )

    def _news(self, lasting: Mapping[object, KafkaError | None], now_ms: int) -> KafkaError | None:
        """Return the first error that was not raised yet; log the others now and then.

        `lasting` has all current reasons, with None for an error that is not due yet.
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
        """Subtract the time in which no poll was empty, except its first moment.

        A problem that began before may have been resolved and come back meanwhile.
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
        if self._unlisted_since_ms is not None:
            self._unlisted_since_ms = later(self._unlisted_since_ms)
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
                "then closes the connection: use a listener with security protocol PLAINTEXT; or "
                "the broker itself has stopped"
            )
        return KafkaTimeoutError(f"no broker could be reached for {waited_ms} ms: {failures}")

    def _no_coordinator(self, started_ms: int, now_ms: int) -> KafkaError | None:
        """Return an error if the group's coordinator has failed for the session time-out."""
        group_id = self._config.group_id
        if group_id is None:
            return None
        # A consumer with an assignment by `assign` needs it for the committed offsets.
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
        self._no_coordinator_since_ms = now_ms  # once per session time-out, not in each poll
        what, why, cure = found
        return KafkaTimeoutError(
            f"the coordinator of group {group_id!r} {what} for {waited_ms} ms: {why}; {cure}"
        )

    def _coordinator_stall(self, group_id: str) -> tuple[str, object, str] | None:
        """Return what is wrong, why, and how to resolve it.

        A coordinator that is found and lost again and again counts as unreachable.
        """
        coordinator = self._coordinators.find(CoordinatorType.GROUP, group_id)
        node = coordinator.node()
        # An unreachable one is known only for moments, and no poll may end in one.
        found = coordinator.found_node
        unreached = None if found is None else self._client.last_error(found.id)
        error = coordinator.attempt.last_error
        if unreached is not None and error is None:
            return "was unreachable", unreached, _FIND_COORDINATOR
        if node is None:
            failures = error or self._client.describe_failures()
            why = failures or "no broker has reported which it is"
            return "was not found", why, _FIND_COORDINATOR
        silence = self._client.silence(node.id)
        if silence:
            return "did not respond", silence, _RESPOND
        refusal = self._why_no_member()
        if refusal is None:
            return None
        return "did not accept this consumer as a member", refusal, _JOIN_GROUP

    def _unread(self, started_ms: int, now_ms: int) -> KafkaError | None:
        """Return an error if a partition has stalled for too long."""
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
            f"{what} could not be read for {waited_ms} ms: {why}; reading resumes when that is "
            f"resolved"
        )

    def _unassigned(self, started_ms: int, now_ms: int) -> KafkaError | None:
        """Return an error when partitions of the group have been unlisted for too long."""
        unlisted = self._unlisted()
        if not unlisted:
            self._unlisted_since_ms = None
            return None
        if self._unlisted_since_ms is None:
            self._unlisted_since_ms = started_ms
        waited_ms = now_ms - self._unlisted_since_ms
        if waited_ms < self._config.default_api_timeout_ms:
            return None
        self._unlisted_since_ms = now_ms
        partition = unlisted[0]
        error = self._metadata.cluster.topic_errors.get(partition.topic)
        why = error or self._client.describe_failures() or UNLISTED
        return KafkaTimeoutError(
            f"{partition}, which the group has assigned to this consumer, could not be read for "
            f"{waited_ms} ms: {why}; it continues by itself when that is cured"
        )

    def _has_tried_all(self) -> bool:
        return all(
            self._client.last_error(node.id) is not None for node in self._metadata.bootstrap
        )

    def _unknown(self, started_ms: int, now_ms: int) -> dict[object, KafkaError | None]:
        cluster = self._metadata.cluster
        before, self._unknown_since_ms = self._unknown_since_ms, {}
        found: dict[object, KafkaError | None] = {}
        wanted = [*self._lowest_missing(), *self._unlisted()]
        if self._subscription.mode is SubscriptionMode.TOPICS:
            # A group assigns no partitions of a topic that does not exist.
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

    def _lowest_missing(self) -> list[TopicPartition]:
        """Return the lowest partition that brokers do not know, of each topic.

        It costs nothing while the assignment and metadata are unchanged.
        """
        cluster = self._metadata.cluster
        versions = (self._subscription.version, cluster.version)
        if versions != self._known_versions:
            counts = cluster.partition_counts()
            lowest: dict[str, int] = {}
            for assigned in self._subscription:
                topic, number = assigned.partition
                if number >= counts.get(topic, 0) and number < lowest.get(topic, number + 1):
                    lowest[topic] = number
            self._missing = [TopicPartition(*each) for each in lowest.items()]
            self._known_versions = versions
        return self._missing


class Stall(NamedTuple):
    """The latest reason why a partition is not read, and the time of the first one."""

    reason: object
    since_ms: int


class Stalls:
    """Partitions that cannot be read, with reasons and times."""

    def __init__(self) -> None:
        self._stalls: dict[AssignedPartition, Stall] = {}

    def __len__(self) -> int:
        return len(self._stalls)

    def note(self, assigned: AssignedPartition, reason: object, now_ms: int) -> None:
        """Set the reason, an error or a text, why a partition cannot be read."""
        known = self._stalls.get(assigned)
        self._stalls[assigned] = Stall(reason, now_ms if known is None else known.since_ms)

    def end(self, partitions: Iterable[AssignedPartition]) -> None:
        """Remove partitions that are read. Costs nothing if none stalls."""
        if self._stalls:
            for assigned in partitions:
                self._stalls.pop(assigned, None)
            # `oldest` is not called while all polls find records.
            self._forget([each for each in self._stalls if not each.is_assigned])

    def oldest(self) -> tuple[AssignedPartition, Stall] | None:
        """Return the longest stall of a partition that should be read."""
        self._forget([each for each in self._stalls if not _is_to_be_read(each)])
        if not self._stalls:
            return None
        return min(self._stalls.items(), key=lambda item: item[1].since_ms)

    def on_reported(self, now_ms: int) -> None:
        """Restart the time of all stalls: the application has been informed."""
        for assigned, stall in self._stalls.items():
            self._stalls[assigned] = stall._replace(since_ms=now_ms)

    def excuse(self, later: Callable[[int], int]) -> None:
        """Replace the start time of each stall by `later` of it."""
        for assigned, stall in self._stalls.items():
            self._stalls[assigned] = stall._replace(since_ms=later(stall.since_ms))

    def _forget(self, partitions: Iterable[AssignedPartition]) -> None:
        for assigned in partitions:
            del self._stalls[assigned]


def _is_to_be_read(assigned: AssignedPartition) -> bool:
    is_stopped = assigned.is_paused or assigned.is_held or assigned.has_reached_limit
    return assigned.is_assigned and not is_stopped
