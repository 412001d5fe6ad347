"""RecordErrors: takes records out of the buffer, and knows what to do about those that are bad.

A record that its deserializer cannot read, or a batch that is damaged, is *raised* (the position
stays) or *passed over*, as `on_record_error` says: always, never, or when the user's function has
returned. A damaged batch is fetched anew first: it may have been damaged on its way. One whose end
nobody knows cannot be passed over, and is raised.

Owner: the thread that polls. The user's function is called in it, and may call the consumer.
Source: ours; Java's consumer raises, and leaves it to the application to seek (KIP-334).
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Final, TypeVar, cast

from pykclient.consumer.subscription import PositionState
from pykclient.errors import ConfigError, CorruptRecordError, RecordDeserializationError
from pykclient.network.client_log import ClientLog
from pykclient.setting import resolve_class_setting
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.consumer.consumer_metrics import ConsumerMetrics
    from pykclient.consumer.fetch_buffer import FetchBuffer
    from pykclient.consumer.record import RecordRun
    from pykclient.consumer.subscription import AssignedPartition, SubscriptionState

__all__ = ["RAISE", "SKIP", "BadRecord", "RecordErrors"]

RAISE: Final = "raise"
SKIP: Final = "skip"

BadRecord = CorruptRecordError | RecordDeserializationError
"""What a function for `on_record_error` is called with."""

T = TypeVar("T")


class RecordErrors:
    """The way from the buffer to the application. `policy` is the value of `on_record_error`.

    `lend` calls the user's function without the core lock.
    """

    def __init__(
        self,
        buffer: FetchBuffer,
        subscription: SubscriptionState,
        policy: object,
        *,
        metrics: ConsumerMetrics,
        lend: Callable[..., object] = operator.call,
        client_id: str = "",
    ) -> None:
        self._buffer = buffer
        self._subscription = subscription
        self._metrics = metrics
        self._lend = lend
        self._raises = policy == RAISE
        self._function = None if policy in (RAISE, SKIP) else _function(policy)
        self._log = ClientLog("pykclient.consumer", client_id)
        self._damaged: dict[AssignedPartition, int] = {}
        """Where a batch was damaged, which is being fetched anew."""

    def take(
        self, count_max: int, now_ms: int, *, is_over: Callable[[], bool], is_raw: bool = False
    ) -> list[RecordRun]:
        """Take records as `FetchBuffer.take`; raises what it does, and what the function raises.

        `is_over` tells when to give up where one bad record follows another.
        """
        runs = self._past_bad(lambda: self._buffer.take(count_max, now_ms, is_raw=is_raw), is_over)
        return runs or []

    def next_run(
        self, count_max: int, now_ms: int, *, is_over: Callable[[], bool]
    ) -> tuple[AssignedPartition, RecordRun] | None:
        """Return records as `FetchBuffer.next_run`; otherwise as `take`."""
        return self._past_bad(lambda: self._buffer.next_run(count_max, now_ms), is_over)

    def _past_bad(self, take: Callable[[], T], is_over: Callable[[], bool]) -> T | None:
        while True:
            try:
                return take()
            except (CorruptRecordError, RecordDeserializationError) as error:
                if self._raises or not self._passes_over(error):
                    raise
            if is_over():
                return None

    def _passes_over(self, error: BadRecord) -> bool:
        """Go on, and return True; or return False where that cannot be."""
        assert error.topic is not None
        assert error.partition is not None
        assigned = self._subscription.find(TopicPartition(error.topic, error.partition))
        if assigned is None or error.next_offset is None or error.next_offset <= assigned.offset:
            return False
        if isinstance(error, CorruptRecordError):
            if self._damaged.get(assigned) != error.offset:
                assert error.offset is not None
                self._damaged[assigned] = error.offset
                return True
            del self._damaged[assigned]
        before = (assigned.epoch, assigned.offset)
        if self._function is None:
            self._log.warning(
                "%s: skipped what is bad from offset %d to %d: %r",
                assigned.partition,
                error.offset,
                error.next_offset - 1,
                error.__cause__,
            )
        else:
            self._lend(self._function, error)
        # The function may have sought elsewhere, or given the partition up.
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
            f"on_record_error has {function!r:.100}, which cannot be called; give {RAISE!r}, "
            f"{SKIP!r}, or a function that takes the error"
        )
    return cast("Callable[[BadRecord], object]", function)
