"""Waiting: how calls of a consumer wait for brokers, and what ends a wait too early.

That is `wakeup`, a `close` on top of the call, and what every address of the cluster refuses.

Owner: the thread guard; `is_woken` alone may be set from any thread.
Source: the timers and the ``wakeup`` of Java's ``ConsumerNetworkClient``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.consumer.fetch.stalls import unknown_partition
from pykclient.consumer.partition_list import describe_partitions
from pykclient.errors import ClosedError, KafkaTimeoutError, WakeupError
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

__all__ = ["Waiting"]

UNKNOWN_TOPIC_WAIT_MS: Final = 5_000
"""How long a call about a topic waits for brokers to know it; a typing error shows before that of a
`default_api_timeout_ms` of a minute."""

CLOSED_BY_HANDLER: Final = (
    "this consumer was closed by a signal handler, or the like, during this call; what the call "
    "was about to return is read again by the next consumer"
)


class Waiting:
    """The waits of one consumer."""

    def __init__(self, metadata: Metadata, client: NetworkClient, log: ClientLog) -> None:
        self.is_woken = False
        self.close_request: tuple[float | None, str] | None = None
        """With what `close` was called on top of the call under way."""
        self._metadata = metadata
        self._client = client
        self._long_waits = LongWaits(log)

    @property
    def is_interrupted(self) -> bool:
        """Whether a wait must end, whatever it waits for."""
        return (
            self.is_woken
            or self.close_request is not None
            or self._metadata.fatal_error is not None
        )

    def raise_interruption(self) -> None:
        """Raise what ended a wait; return when nothing did."""
        self.raise_if_closed()
        fatal_error = self._metadata.take_fatal_error()
        if fatal_error is not None:
            raise fatal_error
        if self.is_woken:
            self.is_woken = False
            raise WakeupError("Consumer.wakeup() was called")

    def raise_if_closed(self) -> None:
        """Raise `ClosedError` where `close` was called on top of the call under way."""
        if self.close_request is not None:
            raise ClosedError(CLOSED_BY_HANDLER)

    def until(
        self,
        is_ready: Callable[[], bool],
        timeout_ms: int,
        about: Sequence[TopicPartition] = (),
        *,
        what: str = "",
    ) -> Decisions[bool]:
        """Wait until `is_ready` or the time is up; return which.

        `what` is waited for, for the log; by default the partitions that this is `about`.

        Raises `WakeupError`, what is fatal, and `UnknownTopicOrPartitionError` when brokers do not
        know one of the partitions that this is `about`.
        """
        started_ms = now_ms()
        deadline_ms = started_ms + timeout_ms
        if (yield from self._until(is_ready, min(deadline_ms, started_ms + UNKNOWN_TOPIC_WAIT_MS))):
            return True
        for partition in about:
            error = unknown_partition(self._metadata.cluster, partition)
            if error is not None:
                raise error
        wait = self._long_waits.begin(
            what or describe_partitions(about), self._client.describe_failures, started_ms
        )
        for until_ms in dict.fromkeys((wait.until_ms(deadline_ms), deadline_ms)):
            if (yield from self._until(is_ready, until_ms)):
                return True
            wait.look(now_ms())
        return False

    def timed_out(
        self, what: str, timeout_ms: int, last_error: KafkaError | None = None
    ) -> KafkaTimeoutError:
        """Return what to raise when `what` has not come in time."""
        reasons = [str(last_error)] if last_error is not None else []
        failures = self._client.describe_failures()
        if failures:
            reasons.append(failures)
        why = "; ".join(reasons) or "the brokers did not respond"
        error = KafkaTimeoutError(f"waited {timeout_ms} ms for {what}: {why}")
        error.__cause__ = last_error
        return error

    def _until(self, is_ready: Callable[[], bool], deadline_ms: int) -> Decisions[bool]:
        yield Until(lambda: is_ready() or self.is_interrupted, deadline_ms)
        if is_ready():
            return True
        self.raise_interruption()
        return False
