"""CommitCalls: the calls of a consumer about what its group has committed.

They take nothing from the records that are fetched meanwhile.

Owner: the thread guard.
Source: the methods of Java's ``KafkaConsumer`` named alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.consumer.subscription import describe_partitions
from pykclient.network.drive import Until, now_ms
from pykclient.network.manager import NEVER_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pykclient.consumer.offsets.commit import Commits
    from pykclient.consumer.offsets.committed import CommittedOffsets
    from pykclient.consumer.waiting import Waiting
    from pykclient.errors import KafkaError
    from pykclient.network.drive import Decisions
    from pykclient.types import OffsetAndMetadata, TopicPartition

    Offsets = dict[TopicPartition, OffsetAndMetadata]
    CommitCallback = Callable[[Offsets, KafkaError | None], object]

__all__ = ["CommitCalls"]


class CommitCalls:
    """How far the group has come. None for offsets means the positions."""

    def __init__(
        self,
        commits: Commits,
        committed: CommittedOffsets,
        *,
        waiting: Waiting,
        default_api_timeout_ms: int,
    ) -> None:
        self._commits = commits
        self._committed = committed
        self._waiting = waiting
        self._default_api_timeout_ms = default_api_timeout_ms

    def commit(self, offsets: Offsets | None, timeout_ms: int) -> Decisions[None]:
        """Commit, trying again where that may help, until there is a response."""
        checked = self._commits.consumed() if offsets is None else offsets
        commit = self._commits.commit(checked, NEVER_MS)  # given up below
        try:
            yield from self._waiting.until(
                lambda: commit.operation.is_done,
                timeout_ms,
                lambda: f"the commit of {describe_partitions(checked)}",
                lambda: commit.attempt.last_error,
            )
        finally:
            self._commits.cancel(commit)
        commit.operation.result()

    def commit_async(
        self, offsets: Offsets | None, callback: CommitCallback | None
    ) -> Decisions[None]:
        """Commit once; a later call makes the call of `callback`."""
        checked = self._commits.consumed() if offsets is None else offsets
        deadline_ms = now_ms() + self._default_api_timeout_ms
        self._commits.commit_async(checked, deadline_ms, callback)
        yield from self._send_at_once()

    def commit_if_due(self) -> Decisions[None]:
        """Commit before partitions are dropped of which nothing is committed later."""
        started_ms = now_ms()
        if self._commits.commit_if_due(started_ms, started_ms + self._default_api_timeout_ms):
            yield from self._send_at_once()

    def committed(
        self, partitions: Sequence[TopicPartition], timeout_ms: int
    ) -> Decisions[dict[TopicPartition, OffsetAndMetadata | None]]:
        """Return what the group has committed, None where that is nothing."""
        lookup = self._committed.start(partitions)
        try:
            yield from self._waiting.until(
                lambda: lookup.operation.is_done,
                timeout_ms,
                lambda: f"the committed offsets of {describe_partitions(partitions)}",
                lambda: lookup.attempt.last_error,
            )
            return lookup.operation.result()
        finally:
            self._committed.cancel(lookup)

    def _send_at_once(self) -> Decisions[None]:
        """Have it on its way when the application works on, as far as that takes no waiting."""
        yield Until(lambda: True, now_ms())
