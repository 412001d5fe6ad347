"""Waiting: how consumer calls wait for brokers, and what interrupts a wait.

Interruptions are `wakeup`, a `close` on top of the call, and errors that end the client.

Owner: the thread guard; `wakeup` may come from any thread, `request_close` from a signal handler.
Source: the timers and the ``wakeup`` of Java's ``ConsumerNetworkClient``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.consumer.fetch.stalls import unknown_partition
from pykclient.errors import ClosedError, KafkaTimeoutError, WakeupError
from pykclient.network.broker.errors import both
from pykclient.network.drive import Until, now_ms
from pykclient.network.log import LongWaits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pykclient.errors import KafkaError
    from pykclient.network.broker.client import NetworkClient
    from pykclient.network.cluster.metadata import Metadata
    from pykclient.network.drive import Decisions
    from pykclient.network.log import ClientLog
    from pykclient.types import TopicPartition

UNKNOWN_TOPIC_WAIT_MS: Final = 5_000
"""Maximum time that a call about a topic waits for brokers to know it. A misspelled name is then
reported earlier than after a `default_api_timeout_ms` of a minute."""

CLOSED_BY_HANDLER: Final = (
    "this consumer was closed by a signal handler or the like during this call; records that the "
    "call was about to return are read again by the next consumer"
)


class Waiting:
    """See the module."""

    def __init__(self, metadata: Metadata, client: NetworkClient, log: ClientLog) -> None:
        self.close_request: tuple[float | None, str] | None = None
        """Arguments of a `close` on top of the call under way."""
        self._is_woken = False
        self._metadata = metadata
        self._client = client
        self._long_waits = LongWaits(log)

    def wakeup(self) -> None:
        """Make the wait under way, or else the next one, raise `WakeupError`, once.

        `poll`, `poll_arrow` and an iteration check for it before they take records, and while they
        wait. `commit`, `committed`, `position`, and calls about offsets and topics check for it
        only if they have to wait. `assign`, `commit_async`, `unsubscribe` and `close` do not: the
        next of the other calls raises it.
        """
        self._is_woken = True
        self._client.wakeup()

    def request_close(self, timeout: float | None, group_membership: str) -> None:
        """End the call under way, so that the consumer is closed after it."""
        self.close_request = (timeout, group_membership)
        self._client.wakeup()

    @property
    def is_interrupted(self) -> bool:
        """True if every wait must end now."""
        return (
            self._is_woken
            or self.close_request is not None
            or self._metadata.fatal_error is not None
        )

    def raise_interruption(self) -> None:
        """Raise the interruption of a wait, if there is one."""
        self.raise_if_closed()
        fatal_error = self._metadata.take_fatal_error()
        if fatal_error is not None:
            raise fatal_error
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("Consumer.wakeup() was called")

    def raise_if_closed(self) -> None:
        """Raise `ClosedError` if `close` was called on top of the call under way."""
        if self.close_request is not None:
            raise ClosedError(CLOSED_BY_HANDLER)

    def until(
        self,
        is_ready: Callable[[], bool],
        timeout_ms: int,
        what: Callable[[], str],
        last_error: Callable[[], KafkaError | None],
        *,
        about: Sequence[TopicPartition] = (),
    ) -> Decisions[None]:
        """Wait until `is_ready`.

        `what` describes it for messages, and `last_error` returns the brokers' last error about it.

        Raises:
            WakeupError: `wakeup` was called; also `ClosedError`, and errors that end the client.
            UnknownTopicOrPartitionError: brokers do not know one of the partitions in `about`.
            KafkaTimeoutError: the time-out is over.
        """
        started_ms = now_ms()
        deadline_ms = started_ms + timeout_ms
        if (yield from self._until(is_ready, min(deadline_ms, started_ms + UNKNOWN_TOPIC_WAIT_MS))):
            return
        for partition in about:
            error = unknown_partition(self._metadata.cluster, partition)
            if error is not None:
                raise error
        wait = self._long_waits.begin(what(), lambda: self._why(last_error()), started_ms)
        for until_ms in dict.fromkeys((wait.until_ms(deadline_ms), deadline_ms)):
            if (yield from self._until(is_ready, until_ms)):
                return
            wait.look(now_ms())
        cause = last_error()
        why = self._why(cause) or "no response has come"
        raise KafkaTimeoutError(f"waited {timeout_ms} ms for {what()}: {why}") from cause

    def _until(self, is_ready: Callable[[], bool], deadline_ms: int) -> Decisions[bool]:
        yield Until(lambda: is_ready() or self.is_interrupted, deadline_ms)
        if is_ready():
            return True
        self.raise_interruption()
        return False

    def _why(self, error: KafkaError | None) -> str:
        return both("" if error is None else str(error), self._client.describe_failures())
