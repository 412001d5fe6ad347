"""Wiring: builds the parts of a consumer, and holds the operations that concern all of them.

These are recovery from an interrupted call, steps in the background, and calls of user code.

Owner: the core lock.
Source: the constructor of Java's ``KafkaConsumer``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from pykclient import accel
from pykclient.consumer.batch_guard import BatchGuard
from pykclient.consumer.deserializers import RecordDeserializer
from pykclient.consumer.fetch.buffer import NOT_BEGUN, FetchBuffer
from pykclient.consumer.fetch.fetcher import Fetcher
from pykclient.consumer.fetch.read import RecordReader
from pykclient.consumer.fetch.stalls import EmptyPolls, Stalls
from pykclient.consumer.group.assignors.setting import make_assignors
from pykclient.consumer.group.group import ConsumerGroup
from pykclient.consumer.group.rebalance import GroupContext
from pykclient.consumer.heartbeat_thread import Heartbeats
from pykclient.consumer.interceptors import ConsumerInterceptors
from pykclient.consumer.metrics import ConsumerMetrics
from pykclient.consumer.offsets.commit import Commits
from pykclient.consumer.offsets.committed import CommittedOffsets
from pykclient.consumer.offsets.former_topics import FormerTopics
from pykclient.consumer.offsets.list_offsets import OffsetLookups
from pykclient.consumer.offsets.reset import PositionManager
from pykclient.consumer.offsets.stored import StoredOffsets
from pykclient.consumer.offsets.unprocessed import Unprocessed
from pykclient.consumer.offsets.validate import PositionValidator
from pykclient.consumer.subscription import SubscriptionState
from pykclient.consumer.thread_guard import ThreadGuard
from pykclient.consumer.topics import FollowedTopics, TopicLookups
from pykclient.consumer.waiting import Waiting
from pykclient.errors import UsageError
from pykclient.metrics import Windows
from pykclient.network.broker.client import NetworkClient
from pykclient.network.cluster.metadata import Metadata
from pykclient.network.coordinators import Coordinators, CoordinatorType
from pykclient.network.drive import now_ms
from pykclient.network.engine import Engine
from pykclient.network.log import ClientLog
from pykclient.network.manager import NEVER_MS
from pykclient.network.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.record import RecordSpan
    from pykclient.consumer.subscription import AssignedPartition
    from pykclient.network.io.port import Port
    from pykclient.network.manager import PollResult, RecoveringManager, UserCall

P = ParamSpec("P")
T = TypeVar("T")


class Wiring:
    """The parts of one consumer. It connects at the first call that needs a broker."""

    def __init__(
        self, config: ConsumerConfig, port: Port, *, wall_clock_ms: Callable[[], int]
    ) -> None:
        # First everything that may raise: nothing is open yet.
        deserializer = RecordDeserializer.from_config(config)
        self.interceptors = ConsumerInterceptors.from_setting(
            config.interceptors, clock_ms=now_ms, client_id=config.client_id
        )
        self._assignors = make_assignors(config.partition_assignment_strategy)
        self.config = config
        self.port = port
        if config.check_crcs:
            # Importing its package takes 20 ms: do it now rather than when the first records come.
            accel.crc32c(b"")
        self.log = ClientLog("pykclient.consumer", config.client_id)
        if accel.implementation_note:
            self.log.info("runs on the pure core: %s", accel.implementation_note)
        self._retry_backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self.guard = ThreadGuard("consumer", self.recover)
        self.metadata = Metadata(config, allow_auto_topic_creation=config.allow_auto_create_topics)
        self.client = NetworkClient(config, port, self.metadata)
        self.waiting = Waiting(self.metadata, self.client, self.log)
        self.subscription = SubscriptionState()
        self.topics = FollowedTopics(self.metadata, self.subscription, self.log)
        self.buffer = FetchBuffer(self._retry_backoff, parked_max_bytes=config.fetch_max_bytes)
        stores = config.group_id is not None and not config.enable_auto_offset_store
        self.unprocessed = Unprocessed(
            self.subscription,
            drop=self.buffer.drop,
            log=self.log,
            stored=StoredOffsets(self.subscription) if stores else None,
        )
        windows = Windows(config.metrics_num_samples, config.metrics_sample_window_ms)
        self.metrics = ConsumerMetrics(self.subscription, config.isolation_level, windows)
        self.records = RecordReader(
            config,
            deserializer,
            buffer=self.buffer,
            subscription=self.subscription,
            metrics=self.metrics,
            call_unlocked=self.call_unlocked,
            deserialize_unlocked=self._deserialize_unlocked,
            clock_ms=now_ms,
        )
        self.lookups = OffsetLookups(
            self.metadata,
            isolation_level=config.isolation_level,
            retry_backoff=self._retry_backoff,
        )
        self.coordinators = Coordinators(
            self.metadata,
            self.client,
            retry_backoff=self._retry_backoff,
            client_id=config.client_id,
        )
        self.user_calls: deque[UserCall] = deque()
        self.batch_guard = BatchGuard()
        self._former_topics = FormerTopics()
        self.group: ConsumerGroup | None = None
        self.commits: Commits | None = None
        self.committed: CommittedOffsets | None = None
        self.heartbeats = Heartbeats(self.step_in_background, self.guard, config)
        if config.group_id is not None:
            self._build_group(config.group_id)
        self.topic_lookups = TopicLookups(self._retry_backoff)
        self._build_reading(wall_clock_ms)
        self.engine = self._build_engine()

    def _build_reading(self, wall_clock_ms: Callable[[], int]) -> None:
        config = self.config
        stalls = Stalls()
        reset_age_ms = config.offset_reset_age_ms
        self.positions = PositionManager(
            self.subscription,
            self.lookups,
            auto_offset_reset=config.offset_reset,
            retry_backoff=self._retry_backoff,
            committed=self.committed,
            reset_from_ms=lambda: wall_clock_ms() - reset_age_ms,
            client_id=config.client_id,
        )
        self._validator = PositionValidator(
            self.subscription,
            self.buffer,
            self.metadata,
            auto_offset_reset=config.offset_reset,
            retry_backoff=self._retry_backoff,
            stalls=stalls,
            former_topics=self._former_topics,
            client_id=config.client_id,
        )
        self.fetcher = Fetcher(
            config,
            subscription=self.subscription,
            buffer=self.buffer,
            metadata=self.metadata,
            client=self.client,
            retry_backoff=self._retry_backoff,
            metrics=self.metrics,
            stalls=stalls,
        )
        self.empty_polls = EmptyPolls(
            config,
            metadata=self.metadata,
            client=self.client,
            subscription=self.subscription,
            coordinators=self.coordinators,
            stalls=stalls,
            why_no_position=self.positions.last_error,
            why_no_member=lambda: None if self.group is None else self.group.rejection,
            unlisted=lambda: () if self.group is None else self.group.unlisted,
        )

    def _build_engine(self) -> Engine:
        managers: list[RecoveringManager | None] = [
            self.metadata,
            self.topic_lookups,
            self.group,
            self.commits,
            self.positions,
            self.committed,
            self.lookups,
            self.coordinators,
            self._validator,
            self.fetcher,
        ]
        self._managers = [manager for manager in managers if manager is not None]
        background: list[Callable[[int], PollResult]] = []
        if self.group is not None:
            background = [
                self.metadata.poll,
                self.group.poll_in_background,
                self.coordinators.poll,
            ]
        return Engine(
            self.client,
            self._managers,
            self.user_calls,
            background=background,
            call_unlocked=self.call_unlocked,
        )

    def _build_group(self, group_id: str) -> None:
        coordinator = self.coordinators.find(CoordinatorType.GROUP, group_id)
        context = GroupContext(
            subscription=self.subscription,
            metadata=self.metadata,
            coordinator=coordinator,
            retry_backoff=self._retry_backoff,
            user_calls=self.user_calls,
            drop=self.buffer.drop,
            refresh=self.buffer.refresh,
            commit=lambda deadline_ms: commits.commit_before_revocation(deadline_ms),
            why_late=lambda: commits.describe_wait(),
            follow_topics=self.topics.follow,
        )
        group = self.group = self.topics.group = ConsumerGroup(
            self.config, context, self._assignors
        )
        commits = self.commits = Commits(
            self.config,
            subscription=self.subscription,
            unprocessed=self.unprocessed,
            coordinator=coordinator,
            metadata=self.metadata,
            group=group,
            retry_backoff=self._retry_backoff,
            user_calls=self.user_calls,
            former_topics=self._former_topics,
            on_commit=self.interceptors.on_commit if self.interceptors else None,
        )
        self.committed = CommittedOffsets(
            coordinator,
            metadata=self.metadata,
            retry_backoff=self._retry_backoff,
        )

    def require_group(self, call: str) -> ConsumerGroup:
        if self.group is None:
            raise UsageError(f"{call}() needs a group: set group_id, or use assign()")
        return self.group

    def require_own_commits(self, call: str) -> Commits:
        """Return the commits for a call of the application.

        Raises:
            UsageError: there is no group, or a block of `ExactlyOnce` is open.
        """
        self.batch_guard.check_commit(call)
        return self.require_commits(call)

    def require_commits(self, call: str) -> Commits:
        if self.commits is None:
            raise UsageError(f"{call}() needs a group to commit for: set group_id")
        return self.commits

    def step_in_background(self, started_ms: int) -> int:
        """Make a step while the application is outside the consumer; return when to call again.

        Requires the core lock. It waits for nothing and calls no user code: it reads responses in a
        later step.
        """
        assert self.group is not None
        if self.guard.is_closed:
            return NEVER_MS
        if self.guard.is_torn:
            self.recover()
        self.guard.is_torn = True
        next_ms = self.engine.step_in_background(started_ms)
        self.port.wait(0)
        self.engine.complete(started_ms)
        if self.group.has_request_in_flight:
            next_ms = min(next_ms, started_ms + self.config.retry_backoff_ms)
        self.guard.is_torn = False
        return next_ms

    # Interrupts.

    def make_good(self) -> None:
        """Repair what an interrupted call has left. It may be interrupted itself."""
        is_torn, self.guard.is_torn = self.guard.is_torn, True
        if is_torn:
            self.recover()
        else:
            self.buffer.give_back()
        self.waiting.raise_if_closed()

    def recover(self) -> None:
        """Continue after an interrupted call as if all connections had been lost now.

        Positions go back to what calls have returned, requests in flight are sent again, and state
        that may be half changed is rebuilt from state that cannot. Requires the core lock.
        """
        recovered_ms = now_ms()
        self.log.info("a call was interrupted; reconnecting")
        if not self.guard.is_in_user_code:  # else a call that has called user code is under way
            self._forget_calls()
        self.subscription.restart()
        self.buffer.restart()
        self.engine.restart()
        for manager in self._managers:
            manager.restart(recovered_ms)
        self.topics.follow()
        self.guard.is_torn = False

    def _forget_calls(self) -> None:
        """Remove the temporary state of calls under way."""
        self.topics.forget_calls()
        self.records.forget_calls()
        if self.commits is not None:
            self.commits.forget_calls()
        if self.group is not None:
            self.group.end_poll()

    def call_unlocked(self, function: Callable[P, T], /, *args: P.args, **keywords: P.kwargs) -> T:
        """Call user code without the core lock, and without the current call's read state."""
        begun, self.buffer.begun = self.buffer.begun, NOT_BEGUN
        try:
            return self.guard.call_unlocked(function, *args, **keywords)
        finally:
            self.buffer.begun = begun

    def _deserialize_unlocked(
        self,
        deserialize: Callable[[RecordSpan], RecordSpan],
        assigned: AssignedPartition,
        span: RecordSpan,
    ) -> RecordSpan:
        """Deserialize a span without the core lock, in the middle of a poll.

        None of its records counts as processed, and no rebalance takes a partition meanwhile.
        """
        self.unprocessed.add(assigned, span.columns.first_offset)
        group = self.group
        if group is None or not self.subscription.is_by_group:
            return self.call_unlocked(deserialize, span)
        group.end_poll()
        try:
            return self.call_unlocked(deserialize, span)
        finally:
            group.begin_poll()
