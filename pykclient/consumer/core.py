"""ConsumerCore: the consumer without the waiting.

Builds the engine with its managers in the right order, and has every public method that does not
wait. `Consumer` adds those that do; it reads and changes nothing that is not here.

Owner: the thread guard, which each public method takes; `wakeup` alone does not.
Source: Java class ``KafkaConsumer``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from pykclient.consumer.assignors.choice import make_assignors
from pykclient.consumer.commits import Commits, CommitSettings
from pykclient.consumer.committed import CommittedOffsets
from pykclient.consumer.coordinator import ConsumerCoordinator, GroupInBackground
from pykclient.consumer.deserialization import RecordDeserializer
from pykclient.consumer.duration import duration_ms
from pykclient.consumer.fetch_buffer import FetchBuffer
from pykclient.consumer.fetched_partition import DecodeSettings
from pykclient.consumer.fetcher import Fetcher, FetchSettings
from pykclient.consumer.interceptors import ConsumerInterceptors
from pykclient.consumer.offset_lookups import OffsetLookups
from pykclient.consumer.position_validator import PositionValidator
from pykclient.consumer.positions import PositionManager
from pykclient.consumer.rebalance import RebalanceListener
from pykclient.consumer.silence import Silence
from pykclient.consumer.subscription import OffsetReset, SubscriptionMode, SubscriptionState
from pykclient.consumer.subscription_input import checked_topics, compiled_pattern
from pykclient.consumer.thread_guard import ThreadGuard
from pykclient.consumer.topic_listing import TopicListing
from pykclient.errors import NotSubscribedError, UsageError, WakeupError
from pykclient.network.backoff import Backoff
from pykclient.network.client import NetworkClient
from pykclient.network.client_log import ClientLog
from pykclient.network.coordinators import Coordinators
from pykclient.network.drive import wall_ms
from pykclient.network.engine import Engine
from pykclient.network.metadata import Metadata
from pykclient.setting import INT_MAX, LONG_MAX
from pykclient.types import IsolationLevel, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Collection, Iterable, Mapping

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.subscription import AssignedPartition
    from pykclient.errors import KafkaError
    from pykclient.network.cluster import Cluster
    from pykclient.network.manager import Manager, Operation, UserCall
    from pykclient.network.port import Port

__all__ = ["NO_LIMITS", "ConsumerCore", "check_offset", "check_partition"]

NO_LIMITS: Final[Mapping[TopicPartition, int]] = {}


class ConsumerCore:
    """A consumer's state and every method that does not wait."""

    def __init__(
        self, config: ConsumerConfig, port: Port, *, wall_clock_ms: Callable[[], int] = wall_ms
    ) -> None:
        # What may be refused comes first: nothing is open yet.
        deserializer = RecordDeserializer.from_config(config)
        self._interceptors = ConsumerInterceptors.from_setting(config.interceptors)
        self._assignors = make_assignors(config.partition_assignment_strategy)
        self._config = config
        self._log = ClientLog("pykclient.consumer", config.client_id)
        self._port = port
        self._guard = ThreadGuard("consumer")
        self._is_woken = False
        self._asked_topics: set[str] = set()
        """Topics of calls under way, which are followed as those of the assignment are."""
        self._unavailable_topics: frozenset[str] = frozenset()
        """Those that the log has been told of."""
        retry_backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        reset, _, duration = config.auto_offset_reset.partition(":")
        auto_offset_reset = OffsetReset(reset)
        reset_age_ms = duration_ms(duration) if duration else 0
        self._metadata = Metadata.from_config(
            config, allow_auto_topic_creation=config.allow_auto_create_topics
        )
        self._metadata.set_topics(())
        self._metadata.add_listener(self._on_cluster)
        self._client = NetworkClient.from_config(config, port, self._metadata)
        self._subscription = SubscriptionState()
        self._buffer = FetchBuffer(deserializer, retry_backoff)
        self._lookups = OffsetLookups(
            self._metadata, isolation_level=config.isolation_level, retry_backoff=retry_backoff
        )
        self._coordinators = Coordinators(
            self._metadata, self._client, retry_backoff=retry_backoff, client_id=config.client_id
        )
        self._user_calls: deque[UserCall] = deque()
        self._group: ConsumerCoordinator | None = None
        self._commits: Commits | None = None
        self._committed: CommittedOffsets | None = None
        if config.group_id is not None:
            self._build_group(config.group_id, retry_backoff)
        self._positions = PositionManager(
            self._subscription,
            self._lookups,
            auto_offset_reset=auto_offset_reset,
            retry_backoff=retry_backoff,
            committed=self._committed,
            reset_from_ms=lambda: wall_clock_ms() - reset_age_ms,
            client_id=config.client_id,
        )
        self._validator = PositionValidator(
            self._subscription,
            self._buffer,
            self._metadata,
            auto_offset_reset=auto_offset_reset,
            retry_backoff=retry_backoff,
            client_id=config.client_id,
        )
        self._listing = TopicListing(retry_backoff)
        self._fetcher = Fetcher(
            subscription=self._subscription,
            buffer=self._buffer,
            metadata=self._metadata,
            client=self._client,
            settings=_fetch_settings(config, auto_offset_reset),
            retry_backoff=retry_backoff,
        )
        self._silence = Silence(self._metadata, self._client, self._subscription)
        self._engine = self._build_engine()

    def _build_engine(self) -> Engine:
        managers: list[Manager | None] = [
            self._metadata,
            self._listing,
            self._group,
            self._commits,
            self._positions,
            self._committed,
            self._lookups,
            self._coordinators,
            self._validator,
            self._fetcher,
        ]
        return Engine(
            self._client,
            [manager for manager in managers if manager is not None],
            self._user_calls,
            background=self._background_managers(),
            lend=self._guard.lent,
        )

    def _background_managers(self) -> list[Manager]:
        if self._group is None:
            return []
        return [self._metadata, GroupInBackground(self._group), self._coordinators]

    def _build_group(self, group_id: str, retry_backoff: Backoff) -> None:
        config = self._config
        membership = self._group = ConsumerCoordinator(
            config,
            group_id=group_id,
            assignors=self._assignors,
            subscription=self._subscription,
            buffer=self._buffer,
            metadata=self._metadata,
            coordinators=self._coordinators,
            user_calls=self._user_calls,
            commit=self._commit_before_revocation,
            follow_topics=self._follow_topics,
        )
        self._commits = Commits(
            subscription=self._subscription,
            coordinators=self._coordinators,
            metadata=self._metadata,
            membership=membership,
            settings=CommitSettings(
                group_id,
                config.auto_commit_interval_ms if config.enable_auto_commit else None,
                retry_backoff,
                config.client_id,
            ),
            user_calls=self._user_calls,
            on_commit=self._interceptors.on_commit if self._interceptors else None,
        )
        self._committed = CommittedOffsets(
            group_id,
            coordinators=self._coordinators,
            metadata=self._metadata,
            membership=membership,
            retry_backoff=retry_backoff,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._config.client_id or 'without client_id'}>"

    # The assignment.

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; none at all for an empty list.

        A partition that was assigned before keeps its position and what is buffered of it. The
        others begin where `seek` says, or else `auto_offset_reset`. Whether they exist shows in
        `poll`.

        Raises:
            UsageError: something is not a `TopicPartition` with a number from 0.
        """
        with self._guard:
            wanted = list(partitions)
            for partition in wanted:
                check_partition(partition)
            for dropped in self._subscription.assign(wanted):
                self._buffer.drop(dropped)
            self._follow_topics()

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that this consumer reads."""
        with self._guard:
            return self._subscription.partitions

    def subscribe(
        self,
        topics: Collection[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read topics together with the other members of the group, which share the partitions.

        Give `topics`, or a `pattern` (a regular expression of Python that whole names match, which
        topics that appear later are held against, too). A new subscription takes the place of the
        last one, and `listener` of the last listener. The group is joined by the next `poll`; until
        then, and for a moment after, what was assigned stays.

        Raises:
            UsageError: there is no `group_id`, both or neither of topics and pattern are given, one
                is malformed, or partitions were given to `assign`; call `unsubscribe` first.
        """
        with self._guard:
            group = self._require_group("subscribe")
            if listener is not None and not isinstance(listener, RebalanceListener):
                raise UsageError(
                    f"subscribe: {listener!r:.100} is no RebalanceListener; make one of functions"
                )
            if (pattern is None) == (not topics):
                raise UsageError(
                    "subscribe takes topics or a pattern, one of the two; unsubscribe() ends it"
                )
            if pattern is None:
                self._subscription.subscribe(checked_topics(topics))
            else:
                self._subscription.subscribe_pattern(compiled_pattern(pattern))
            group.on_subscribed(listener)
            self._follow_topics()

    def subscription(self) -> frozenset[str]:
        """Return the topics that are subscribed to; of a pattern those that match by now."""
        with self._guard:
            return self._subscription.wanted_topics

    # Positions.

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Read a partition from this offset on. Nothing fetched from elsewhere is handed out.

        Whether the log has the offset shows in `poll`: if it has not, `auto_offset_reset` applies.

        Raises:
            UsageError: the partition is not assigned, or the offset is not an integer from 0.
        """
        with self._guard:
            assigned = self._subscription.require(partition)
            leader_epoch = None
            if isinstance(offset, OffsetAndMetadata):
                leader_epoch = offset.leader_epoch
                offset = offset.offset
            check_offset(offset, f"seek({partition}) to")
            if self._commits is not None:
                self._commits.handed_out.forget(assigned)
            if self._buffer.can_skip_to(assigned, offset):
                # Past a bad record, say: what is behind it need not be fetched again.
                self._subscription.skip_to(assigned, offset)
                self._buffer.forgive(assigned)
            else:
                self._buffer.drop(assigned)
                self._subscription.seek(assigned, offset, leader_epoch)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Read from the first offset of the log; None means all that are assigned.

        The offset is looked up by the next `poll` or `position`.

        Raises:
            UsageError: a partition is not assigned.
        """
        with self._guard:
            self._reset(partitions, OffsetReset.EARLIEST)

    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Read what comes from now on; None means all that are assigned.

        The offset is looked up by the next `poll` or `position`: with `read_committed` it is the
        last stable offset, else the high watermark.

        Raises:
            UsageError: a partition is not assigned.
        """
        with self._guard:
            self._reset(partitions, OffsetReset.LATEST)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out no records of these partitions until `resume`. What is buffered is kept.

        Raises:
            UsageError: a partition is not assigned.
        """
        with self._guard:
            for assigned in self._subscription.require_all(partitions):
                self._subscription.pause(assigned)
                self._buffer.refresh(assigned)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `pause`; no effect on partitions that are not paused.

        Raises:
            UsageError: a partition is not assigned.
        """
        with self._guard:
            for assigned in self._subscription.require_all(partitions):
                self._subscription.resume(assigned)
                self._buffer.refresh(assigned)

    def paused(self) -> frozenset[TopicPartition]:
        """Return the partitions that are paused."""
        with self._guard:
            return frozenset(a.partition for a in self._subscription if a.is_paused)

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Return how many offsets are between the position and the end, as last heard of it.

        None before the first fetch has told. The end is that of `seek_to_end`. No broker is asked.

        Raises:
            UsageError: the partition is not assigned.
        """
        with self._guard:
            assigned = self._subscription.require(partition)
            end = assigned.high_watermark
            if self._config.isolation_level is IsolationLevel.READ_COMMITTED:
                end = assigned.last_stable_offset
            if end is None or not assigned.has_offset:
                return None
            return max(0, end - assigned.offset)

    def wakeup(self) -> None:
        """Make the call that waits now, or the next one that would, raise `WakeupError`.

        The one method for other threads. Records that are at hand are returned first, so none is
        lost.
        """
        self._is_woken = True
        self._client.wakeup()

    # For the front-end.

    def _step_in_background(self, now_ms: int) -> int:
        """Do what cannot wait for the application; return when to come again.

        Requires the core lock. Nothing is waited for: answers are looked for a moment later.
        """
        assert self._group is not None
        next_ms = self._engine.step_in_background(now_ms)
        self._port.wait(0)
        self._engine.complete(now_ms)
        if self._group.has_request_in_flight:
            next_ms = min(next_ms, now_ms + self._config.retry_backoff_ms)
        return next_ms

    @property
    def _is_interrupted(self) -> bool:
        """Whether a wait must end, whatever it waits for."""
        return self._is_woken or self._metadata.fatal_error is not None

    def _raise_interruption(self) -> None:
        """Raise what ended a wait; return when nothing did."""
        if self._metadata.fatal_error is not None:
            raise self._metadata.fatal_error
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("Consumer.wakeup() was called")

    @property
    def _has_news(self) -> bool:
        """Whether there is an error that `poll` is to raise."""
        return (
            self._subscription.has_error
            or (self._commits is not None and self._commits.has_error)
            or (self._group is not None and self._group.has_error)
        )

    def _take_news(self) -> KafkaError | None:
        """Return the oldest error that `poll` is to raise, and forget it; None if none."""
        error = self._subscription.take_error()
        if error is None and self._commits is not None:
            error = self._commits.take_error()
        if error is None and self._group is not None:
            error = self._group.take_error()
        return error

    def _require_assignment(self) -> None:
        if not len(self._subscription) and not self._subscription.is_by_group:
            raise NotSubscribedError(
                "there is nothing to read: call subscribe() with topics, or assign() with "
                "partitions first"
            )

    def _set_limits(self, limits: Mapping[TopicPartition, int]) -> None:
        for assigned in self._subscription.set_limits(limits):
            self._buffer.refresh(assigned)

    def _have_all_reached_limits(self) -> bool:
        # A member that has got nothing yet waits for its share.
        return len(self._subscription) > 0 and all(
            assigned.has_reached_limit for assigned in self._subscription
        )

    def _follow_topics(self) -> None:
        """Have metadata kept for what is wanted, assigned and asked about."""
        if self._subscription.mode is SubscriptionMode.PATTERN:
            self._metadata.set_all_topics()
            return
        topics = self._subscription.topics | self._subscription.wanted_topics | self._asked_topics
        if self._group is not None:
            topics |= self._group.group_topics
        self._metadata.set_topics(sorted(topics))

    def _require_group(self, call: str) -> ConsumerCoordinator:
        if self._group is None:
            raise UsageError(f"{call}() needs a group: set group_id, or use assign()")
        return self._group

    def _commit_before_revocation(self, deadline_ms: int) -> Operation[None]:
        assert self._commits is not None
        return self._commits.commit_before_revocation(deadline_ms)

    def _reset(
        self, partitions: Iterable[TopicPartition] | None, reset_to: OffsetReset
    ) -> list[AssignedPartition]:
        chosen = self._subscription.require_all(partitions)
        for assigned in chosen:
            self._buffer.drop(assigned)
            self._subscription.await_reset(assigned, reset_to)
        return chosen

    def _on_cluster(self, cluster: Cluster) -> None:
        """Tell the user of topics that no waiting will bring, and log those that it may."""
        if self._group is not None:
            self._group.on_cluster(cluster)
        for assigned in self._subscription:
            error = cluster.topic_errors.get(assigned.partition.topic)
            if error is not None and not error.retriable:
                self._subscription.fail(assigned, error)
        unavailable = self._subscription.topics & cluster.topic_errors.keys()
        for topic in unavailable - self._unavailable_topics:
            self._log.warning("%s; it is waited for", cluster.topic_errors[topic])
        self._unavailable_topics = unavailable


def check_partition(partition: TopicPartition) -> None:
    """Refuse what only looks like a partition.

    Raises:
        UsageError: it is no `TopicPartition` with a topic's name and a number from 0.
    """
    if not (
        isinstance(partition, TopicPartition)
        and isinstance(partition.topic, str)
        and _is_number(partition.partition, INT_MAX)
    ):
        raise UsageError(
            f"{partition!r} is no partition; give TopicPartition(topic, number), numbers from 0 "
            f"to {INT_MAX}"
        )


def check_offset(offset: object, where: str) -> None:
    """Refuse what is no offset.

    Raises:
        UsageError: it is no integer from 0 that a log can have.
    """
    if not _is_number(offset, LONG_MAX):
        raise UsageError(f"{where} {offset!r}: an offset is an integer from 0 to {LONG_MAX}")


def _is_number(value: object, maximum: int) -> bool:
    # What does not fit a request's field would fail that of every other partition as well.
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= maximum


def _fetch_settings(config: ConsumerConfig, auto_offset_reset: OffsetReset) -> FetchSettings:
    return FetchSettings(
        min_bytes=config.fetch_min_bytes,
        max_wait_ms=config.fetch_max_wait_ms,
        max_bytes=config.fetch_max_bytes,
        partition_max_bytes=config.max_partition_fetch_bytes,
        isolation_level=config.isolation_level,
        rack=config.client_rack,
        read_replica_ms=config.metadata_max_age_ms,
        auto_offset_reset=auto_offset_reset,
        decode=DecodeSettings(config.check_crcs, config.decompressed_max_bytes),
        client_id=config.client_id,
    )
