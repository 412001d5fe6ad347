"""FetchTroubles: what keeps partitions from being read, and since when.

A trouble is noted by whoever meets it, is *told* after a time by `Silence`, and *over* when a
broker says something good of the partition, or when nobody reads it any more. It asks nobody.

Owner: the core lock.
Source: ours. Java's consumer retries without a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pykclient.consumer.subscription import AssignedPartition

__all__ = ["FetchTroubles", "Trouble"]


class Trouble(NamedTuple):
    """Why a partition is not read: the newest reason, and when the first one came."""

    reason: object
    since_ms: int


class FetchTroubles:
    """The troubles of all partitions that have one."""

    def __init__(self) -> None:
        self._troubles: dict[AssignedPartition, Trouble] = {}

    def __len__(self) -> int:
        return len(self._troubles)

    def note(self, assigned: AssignedPartition, reason: object, now_ms: int) -> None:
        """Note why a partition cannot be read, an error or a text; it is not the first reason."""
        known = self._troubles.get(assigned)
        self._troubles[assigned] = Trouble(reason, now_ms if known is None else known.since_ms)

    def end(self, partitions: Iterable[AssignedPartition]) -> None:
        """Note that partitions are read. Costs nothing where there is no trouble."""
        if self._troubles:
            for assigned in partitions:
                self._troubles.pop(assigned, None)
            # While all polls find records, nobody asks for the oldest.
            self._forget([each for each in self._troubles if not each.is_assigned])

    def oldest(self) -> tuple[AssignedPartition, Trouble] | None:
        """Return the trouble that is there for longest, of partitions that are to be read."""
        self._forget([each for each in self._troubles if not _is_to_be_read(each)])
        if not self._troubles:
            return None
        return min(self._troubles.items(), key=lambda item: item[1].since_ms)

    def tell_again(self, now_ms: int) -> None:
        """Count the time of all troubles anew: the application has heard of them."""
        for assigned, trouble in self._troubles.items():
            self._troubles[assigned] = trouble._replace(since_ms=now_ms)

    def excuse(self, later: Callable[[int], int]) -> None:
        """Move the times since when troubles count, each to what `later` makes of it."""
        for assigned, trouble in self._troubles.items():
            self._troubles[assigned] = trouble._replace(since_ms=later(trouble.since_ms))

    def _forget(self, partitions: Iterable[AssignedPartition]) -> None:
        for assigned in partitions:
            del self._troubles[assigned]


def _is_to_be_read(assigned: AssignedPartition) -> bool:
    is_stopped = assigned.is_paused or assigned.is_held or assigned.has_reached_limit
    return assigned.is_assigned and not is_stopped
