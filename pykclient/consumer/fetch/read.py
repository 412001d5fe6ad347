"""RecordReader: takes records from the buffer, deserializes them, and handles bad ones.

`on_record_error` decides whether a record that its deserializer cannot read, or a damaged batch, is
*raised* (the position stays) or *skipped*: never, always, or after the user's function returned. A
damaged batch is fetched again first: it may have been damaged in transit. If its end is unknown, it
cannot be skipped, and is raised.

Owner: the thread that polls.
Source: our own; Java's consumer raises, and leaves it to the application to seek (KIP-334).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar, cast

from pykclient.config.setting import resolve_class_setting
from pykclient.consumer.config import RAISE, SKIP
from pykclient.consumer.subscription import PositionState
from pykclient.errors import ConfigError, CorruptRecordError, RecordDeserializationError, UsageError
from pykclient.errors.base import describe_cause
from pykclient.network.log import ClientLog, RateLimitedLog
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.deserializers import RecordDeserializer
    from pykclient.consumer.fetch.buffer import FetchBuffer, Read
    from pykclient.consumer.metrics import ConsumerMetrics
    from pykclient.consumer.record import RecordSpan
    from pykclient.consumer.subscription import AssignedPartition, SubscriptionState
    from pykclient.network.engine import Caller

    DeserializeSpan = Callable[[RecordSpan], RecordSpan]
    DeserializeUnlocked = Callable[[DeserializeSpan, AssignedPartition, RecordSpan], RecordSpan]

BadRecord = CorruptRecordError | RecordDeserializationError
"""Argument of a function for `on_record_error`."""

T = TypeVar("T")


class RecordReader:
    """Returns records from the buffer to the application.

    `call_unlocked` calls the user's function without the core lock, `deserialize_unlocked` the
    deserializers. `clock_ms` is the monotonic clock.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        deserializer: RecordDeserializer | None,
        *,
        buffer: FetchBuffer,
        subscription: SubscriptionState,
        metrics: ConsumerMetrics,
        call_unlocked: Caller,
        deserialize_unlocked: DeserializeUnlocked,
        clock_ms: Callable[[], int],
    ) -> None:
        policy = config.on_record_error
        self._buffer = buffer
        self._deserialize_unlocked = deserialize_unlocked
        self._read = self._reader(deserializer)
        self._is_reading = False
        """True while a deserializer runs."""
        self._subscription = subscription
        self._metrics = metrics
        self._call_unlocked = call_unlocked
        self._raises = policy == RAISE
        self._function = None if policy in (RAISE, SKIP) else _function(policy)
        self._clock_ms = clock_ms
        self._repeated = RateLimitedLog(ClientLog("pykclient.consumer", config.client_id))
        self._damaged: dict[AssignedPartition, int] = {}
        """Offsets of damaged batches that are being fetched again."""
        self._raised: dict[AssignedPartition, int] = {}
        """Positions at which an error was raised, or passed to the function."""

    def take(
        self,
        count_max: int,
        now_ms: int,
        *,
        is_over: Callable[[], bool],
        is_raw: bool = False,
        size_bytes_max: int | None = None,
    ) -> list[RecordSpan]:
        """Take records as `FetchBuffer.take`. Raises as that, and what the function raises.

        `is_over` says when to stop if one bad record follows another. With `is_raw` deserializers
        are not applied.
        """
        read = None if is_raw else self._read

        def take() -> list[RecordSpan]:
            return self._buffer.take(count_max, now_ms, read, size_bytes_max=size_bytes_max)

        return self._past_bad(take, is_over) or []

    def next_span(
        self, count_max: int, now_ms: int, *, is_over: Callable[[], bool]
    ) -> tuple[AssignedPartition, RecordSpan] | None:
        """Return records as `FetchBuffer.next_span`; the rest is as for `take`."""
        return self._past_bad(
            lambda: self._buffer.next_span(count_max, now_ms, self._read), is_over
        )

    def leads_past_bad(self, assigned: AssignedPartition, offset: int) -> bool:
        """Return True if there was an error at the position, and `offset` is after it."""
        return self._raised.get(assigned) == assigned.offset < offset

    def check_may_read(self) -> None:
        """Raise if a deserializer polls: the first record would be the one it is processing."""
        if self._is_reading:
            raise UsageError(
                "a deserializer cannot read records of the consumer that calls it: use only the "
                "bytes that it gets, and poll after this poll has returned"
            )

    def log_rest(self) -> None:
        """Log the number of records skipped since the last log line."""
        self._repeated.log_rest()

    def forget_calls(self) -> None:
        self._is_reading = False

    def _reader(self, deserializer: RecordDeserializer | None) -> Read | None:
        if deserializer is None:
            return None
        apply = deserializer.apply

        def read(assigned: AssignedPartition, span: RecordSpan) -> RecordSpan:
            self._is_reading = True
            try:
                return self._deserialize_unlocked(apply, assigned, span)
            finally:
                self._is_reading = False

        return read

    def _past_bad(self, take: Callable[[], T], is_over: Callable[[], bool]) -> T | None:
        while True:
            try:
                return take()
            except (CorruptRecordError, RecordDeserializationError) as error:
                if self._raises or not self._passes_over(error):
                    self._note_raised(error)
                    raise
            if is_over():
                return None

    def _note_raised(self, error: BadRecord) -> None:
        assigned = self._assigned_of(error)
        if assigned is not None:
            self._raised = {a: at for a, at in self._raised.items() if a.is_assigned}
            self._raised[assigned] = assigned.offset

    def _assigned_of(self, error: BadRecord) -> AssignedPartition | None:
        assert error.topic is not None
        assert error.partition is not None
        return self._subscription.find(TopicPartition(error.topic, error.partition))

    def _passes_over(self, error: BadRecord) -> bool:
        """Skip a bad record and return True; return False if it cannot be skipped."""
        assigned = self._assigned_of(error)
        if assigned is None or error.next_offset is None or error.next_offset <= assigned.offset:
            return False
        if isinstance(error, CorruptRecordError):
            if self._damaged.get(assigned) != error.offset:
                assert error.offset is not None
                self._damaged = {a: at for a, at in self._damaged.items() if a.is_assigned}
                self._damaged[assigned] = error.offset
                return True
            del self._damaged[assigned]
        before = (assigned.epoch, assigned.offset)
        if self._function is None:
            assert error.__cause__ is not None
            self._repeated.log(
                logging.WARNING,
                self._clock_ms(),
                (assigned.partition, type(error.__cause__)),
                "%s: skipped bad data from offset %d to %d: %s",
                assigned.partition,
                max(error.offset or 0, assigned.offset),
                error.next_offset - 1,
                describe_cause(error.__cause__),
            )
        else:
            self._note_raised(error)
            self._call_unlocked(self._function, error)
        # The function may have moved or unassigned the partition.
        if assigned.is_assigned and (assigned.epoch, assigned.offset) == before:
            self._metrics.on_skipped()
            self._skip_to(assigned, error.next_offset)
        return True

    def _skip_to(self, assigned: AssignedPartition, offset: int) -> None:
        if not self._buffer.can_skip_to(assigned, offset):
            self._buffer.drop(assigned)
        if assigned.state is PositionState.FETCHING:
            self._subscription.skip_to(assigned, offset)
        self._buffer.forgive(assigned)


def _function(policy: object) -> Callable[[BadRecord], object]:
    function = resolve_class_setting("on_record_error", policy)
    if not callable(function):
        raise ConfigError(
            f"on_record_error is {function!r:.100}, which is not callable; use {RAISE!r}, "
            f"{SKIP!r}, or a function that takes the error"
        )
    return cast("Callable[[BadRecord], object]", function)
