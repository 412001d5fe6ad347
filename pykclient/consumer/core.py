"""ConsumerCore: the consumer without the waiting.

Builds the engine with its managers in the right order, and has every public method that does not
wait. `Consumer` adds those that do; it reads and changes nothing that is not here.

Owner: the thread guard, which each public method takes; `wakeup` alone does not.
Source: Java class ``KafkaConsumer``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.consumer.deserialization import RecordDeserializer
from pykclient.consumer.duration import duration_ms
from pykclient.consumer.fetch_buffer import FetchBuffer
from pykclient.consumer.fetched_partition import DecodeSettings
from pykclient.consumer.fetcher import Fetcher, FetchSettings
from pykclient.consumer.interceptors import ConsumerInterceptors
from pykclient.consumer.offset_lookups import OffsetLookups
from pykclient.consumer.position_validator import PositionValidator
from pykclient.consumer.positions import PositionManager
from pykclient.consumer.silence import Silence
from pykclient.consumer.subscription import OffsetReset, SubscriptionState
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
    from collections.abc import Callable, Collection, Iterable, Mapping

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.subscription import AssignedPartition
    from pykclient.network.cluster import Cluster
    from pykclient.network.port import Port

__all__ = ["NO_LIMITS", "ConsumerCore", "check_partition"]

NO_LIMITS: Final[Mapping[TopicPartition, int]] = {}


class ConsumerCore:
    """A consumer's state and every method that does not wait."""

    def __init__(
        self, config: ConsumerConfig, port: Port, *, wall_clock_ms: Callable[[], int] = wall_ms
    ) -> None:
        # What may be refused comes first: nothing is open yet.
        deserializer = RecordDeserializer.from_config(config)
        self._interceptors = ConsumerInterceptors.from_setting(config.interceptors)
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
        self._positions = PositionManager(
            self._subscription,
            self._lookups,
            auto_offset_reset=auto_offset_reset,
            retry_backoff=retry_backoff,
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
        self._coordinators = Coordinators(
            self._metadata, self._client, retry_backoff=retry_backoff, client_id=config.client_id
        )
        self._silence = Silence(self._metadata, self._client, self._subscription)
        self._engine = Engine(
            self._client,
            [
                self._metadata,
                self._listing,
                self._positions,
                self._lookups,
                self._coordinators,
                self._validator,
                self._fetcher,
            ],
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
        pattern: str | None = None,
        listener: object = None,
    ) -> None:
        """Refuse: consumer groups are not built yet. Use `assign`.

        Raises:
            UsageError: always.
        """
        with self._guard:
            raise UsageError(
                f"subscribe({pattern or list(topics)!r}) needs a consumer group, and groups are "
                f"not built yet; use assign() with the partitions to read"
            )

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
            if not _is_number(offset, LONG_MAX):
                raise UsageError(
                    f"seek({partition}, {offset!r}): an offset is an integer from 0 to {LONG_MAX}"
                )
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

    def _require_assignment(self) -> None:
        if not len(self._subscription):
            raise NotSubscribedError(
                "there is nothing to read: call assign() with partitions first"
            )

    def _set_limits(self, limits: Mapping[TopicPartition, int]) -> None:
        for assigned in self._subscription.set_limits(limits):
            self._buffer.refresh(assigned)

    def _have_all_reached_limits(self) -> bool:
        return all(assigned.has_reached_limit for assigned in self._subscription)

    def _follow_topics(self) -> None:
        """Have metadata kept for what is assigned and asked about."""
        self._metadata.set_topics(sorted(self._subscription.topics | self._asked_topics))

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
