"""ConsumerParts: what a consumer is made of, put together.

Builds the engine with its managers in the right order, and connects what one part tells another.

Owner: the core lock.
Source: the constructor of Java's ``KafkaConsumer``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from pykclient import accel
from pykclient.consumer.deserializers import RecordDeserializer
from pykclient.consumer.fetch.buffer import NOT_BEGUN, FetchBuffer
from pykclient.consumer.fetch.fetcher import Fetcher
from pykclient.consumer.fetch.read import RecordReader
from pykclient.consumer.fetch.stalls import EmptyPolls, Stalls
from pykclient.consumer.group.assignors.setting import make_assignors
from pykclient.consumer.group.classic.coordinator import ConsumerCoordinator
from pykclient.consumer.group.group import (
    ConsumerGroup,
    GroupInBackground,
    GroupSurroundings,
)
from pykclient.consumer.group.kip848.coordinator import ModernCoordinator
from pykclient.consumer.interceptors import ConsumerInterceptors
from pykclient.consumer.list_topics import TopicListing
from pykclient.consumer.metrics import ConsumerMetrics
from pykclient.consumer.offsets.commit import Commits
from pykclient.consumer.offsets.committed import CommittedOffsets
from pykclient.consumer.offsets.list_offsets import OffsetLookups
from pykclient.consumer.offsets.reset import PositionManager
from pykclient.consumer.offsets.validate import PositionValidator
from pykclient.consumer.public_call import CLOSED_BY_HANDLER
from pykclient.consumer.subscription import SubscriptionState
from pykclient.consumer.thread_guard import ThreadGuard
from pykclient.errors import ClosedError, UsageError
from pykclient.metrics.sensors import Windows
from pykclient.network.broker.client import NetworkClient
from pykclient.network.cluster.coordinators import Coordinators
from pykclient.network.cluster.metadata import Metadata
from pykclient.network.drive import now_ms, wall_ms
from pykclient.network.engine import Engine
from pykclient.network.live_client import LiveClient, describe_client
from pykclient.network.log import ClientLog, LongWaits
from pykclient.network.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.record import RecordSpan
    from pykclient.consumer.subscription import AssignedPartition
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.network.io.port import Port
    from pykclient.network.manager import Manager, Operation, RecoveringManager, UserCall

__all__ = ["ConsumerParts"]

P = ParamSpec("P")
T = TypeVar("T")


class ConsumerParts(LiveClient):
    """The parts of one consumer. Nothing is connected before the first call that needs a broker."""

    _is_shut_down = False
    _close_request: tuple[float | None, str] | None = None
    """With what `close` was called on top of the call under way."""

    def __init__(
        self, config: ConsumerConfig, port: Port, *, wall_clock_ms: Callable[[], int] = wall_ms
    ) -> None:
        # What may be refused comes first: nothing is open yet.
        deserializer = RecordDeserializer.from_config(config)
        self._interceptors = ConsumerInterceptors.from_setting(config.interceptors)
        self._assignors = make_assignors(config.partition_assignment_strategy)
        self._config = config
        if config.check_crcs:
            # Its package takes 20 ms to import: now, rather than when the first records come.
            accel.crc32c(b"")
        self._log = ClientLog("pykclient.consumer", config.client_id)
        self._port = port
        self._guard = ThreadGuard("consumer", self._recover)
        self._is_woken = False
        self._asked_topics: set[str] = set()
        """Topics of calls under way, which are followed as those of the assignment are."""
        self._unavailable_topics: frozenset[str] = frozenset()
        """Those that the log has been told of."""
        retry_backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._metadata = Metadata.from_config(
            config, allow_auto_topic_creation=config.allow_auto_create_topics
        )
        self._metadata.set_topics(())
        self._metadata.add_listener(self._on_cluster)
        self._client = NetworkClient(config, port, self._metadata)
        self._subscription = SubscriptionState()
        self._buffer = FetchBuffer(retry_backoff, parked_max_bytes=config.fetch_max_bytes)
        windows = Windows(config.metrics_num_samples, config.metrics_sample_window_ms)
        self._metrics = ConsumerMetrics(self._subscription, config.isolation_level, windows)
        self._records = RecordReader(
            config,
            deserializer,
            buffer=self._buffer,
            subscription=self._subscription,
            metrics=self._metrics,
            lend=self._lend,
            lend_span=self._lend_span,
        )
        self._lookups = OffsetLookups(
            self._metadata, isolation_level=config.isolation_level, retry_backoff=retry_backoff
        )
        self._coordinators = Coordinators(
            self._metadata,
            self._client,
            retry_backoff=retry_backoff,
            client_id=config.client_id,
        )
        self._user_calls: deque[UserCall] = deque()
        self._group: ConsumerGroup | None = None
        self._commits: Commits | None = None
        self._committed: CommittedOffsets | None = None
        if config.group_id is not None:
            self._build_group(config.group_id, retry_backoff)
        self._listing = TopicListing(retry_backoff)
        self._build_reading(retry_backoff, wall_clock_ms)
        self._empty_polls = EmptyPolls(
            config,
            metadata=self._metadata,
            client=self._client,
            subscription=self._subscription,
            coordinators=self._coordinators,
            stalls=self._stalls,
            why_no_position=self._positions.last_error,
            why_no_member=lambda: None if self._group is None else self._group.trouble,
        )
        self._engine = self._build_engine()

    def _build_reading(self, retry_backoff: Backoff, wall_clock_ms: Callable[[], int]) -> None:
        config = self._config
        self._stalls = Stalls()
        self._waits = LongWaits(self._log)
        reset_age_ms = config.offset_reset_age_ms
        self._positions = PositionManager(
            self._subscription,
            self._lookups,
            auto_offset_reset=config.offset_reset,
            retry_backoff=retry_backoff,
            committed=self._committed,
            reset_from_ms=lambda: wall_clock_ms() - reset_age_ms,
            client_id=config.client_id,
        )
        self._validator = PositionValidator(
            self._subscription,
            self._buffer,
            self._metadata,
            auto_offset_reset=config.offset_reset,
            retry_backoff=retry_backoff,
            stalls=self._stalls,
            client_id=config.client_id,
        )
        self._fetcher = Fetcher(
            config,
            subscription=self._subscription,
            buffer=self._buffer,
            metadata=self._metadata,
            client=self._client,
            retry_backoff=retry_backoff,
            metrics=self._metrics,
            stalls=self._stalls,
        )

    def _build_engine(self) -> Engine:
        managers: list[RecoveringManager | None] = [
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
        self._managers = [manager for manager in managers if manager is not None]
        return Engine(
            self._client,
            self._managers,
            self._user_calls,
            background=self._background_managers(),
            lend=self._lend,
        )

    def _background_managers(self) -> list[Manager]:
        if self._group is None:
            return []
        return [self._metadata, GroupInBackground(self._group), self._coordinators]

    def _build_group(self, group_id: str, retry_backoff: Backoff) -> None:
        config = self._config
        membership = self._group = self._make_group(group_id)
        self._commits = Commits(
            config,
            subscription=self._subscription,
            coordinators=self._coordinators,
            metadata=self._metadata,
            membership=membership,
            retry_backoff=retry_backoff,
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

    def _make_group(self, group_id: str) -> ConsumerGroup:
        surroundings = GroupSurroundings(
            group_id,
            subscription=self._subscription,
            buffer=self._buffer,
            metadata=self._metadata,
            coordinators=self._coordinators,
            user_calls=self._user_calls,
            commit=self._commit_before_revocation,
            follow_topics=self._follow_topics,
        )
        if self._config.group_protocol == "consumer":
            return ModernCoordinator(self._config, surroundings)
        return ConsumerCoordinator(self._config, surroundings, self._assignors)

    def __repr__(self) -> str:
        group_id = self._config.group_id
        about = "" if group_id is None else f", group {group_id!r}"
        state = "closed" if self._guard.is_closed else "open"
        return describe_client(self, self._config, state, about)

    def _follow_topics(self) -> None:
        """Have metadata kept for what is wanted, assigned and asked about."""
        if self._subscription.is_by_pattern:
            self._metadata.set_all_topics()
            return
        topics = self._subscription.topics | self._subscription.wanted_topics | self._asked_topics
        if self._group is not None:
            topics |= self._group.group_topics
        self._metadata.set_topics(sorted(topics))

    def _require_group(self, call: str) -> ConsumerGroup:
        if self._group is None:
            raise UsageError(f"{call}() needs a group: set group_id, or use assign()")
        return self._group

    # Interrupts.

    def _make_good(self) -> None:
        """Undo what a call that did not end has left behind. It may be interrupted as well."""
        is_torn, self._guard.is_torn = self._guard.is_torn, True
        if is_torn:
            self._recover()
        else:
            self._buffer.give_back()
        if self._close_request is not None:
            raise ClosedError(CLOSED_BY_HANDLER)

    def _recover(self) -> None:
        """Go on as if all connections had been lost now, from wherever a call was interrupted.

        Positions go back to what calls that returned have handed out, what is in flight is asked
        anew, and what was half changed is made anew from what cannot be. Requires the core lock.
        """
        recovered_ms = now_ms()
        self._log.info("a call was interrupted; connecting anew")
        if not self._guard.is_lent:  # else a call is under way that has called user code
            self._forget_calls()
        self._subscription.restart()
        self._buffer.restart()
        self._engine.restart()
        for manager in self._managers:
            manager.restart(recovered_ms)
        self._follow_topics()
        self._guard.is_torn = False

    def _forget_calls(self) -> None:
        """Forget what calls under way had noted for their time."""
        self._asked_topics.clear()
        self._records.forget_calls()
        if self._commits is not None:
            self._commits.forget_calls()
        if self._group is not None:
            self._group.end_poll()

    def _lend(self, function: Callable[P, T], /, *args: P.args, **keywords: P.kwargs) -> T:
        """Call user code without the core lock, and with a clean slate for its own calls."""
        begun, self._buffer.begun = self._buffer.begun, NOT_BEGUN
        try:
            return self._guard.lend(function, *args, **keywords)
        finally:
            self._buffer.begun = begun

    def _lend_span(
        self,
        deserialize: Callable[[RecordSpan], RecordSpan],
        assigned: AssignedPartition,
        span: RecordSpan,
    ) -> RecordSpan:
        """Deserialize a span without the core lock, though this is in the midst of a poll.

        Nothing of it counts as processed, and no rebalance takes a partition meanwhile.
        """
        if self._commits is not None:
            self._commits.unprocessed.add(assigned, span.columns.first_offset)
        group = self._group
        if group is None or not self._subscription.is_by_group:
            return self._lend(deserialize, span)
        group.end_poll()
        try:
            return self._lend(deserialize, span)
        finally:
            group.begin_poll()

    def _commit_before_revocation(self, deadline_ms: int) -> Operation[None]:
        assert self._commits is not None
        return self._commits.commit_before_revocation(deadline_ms)

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
