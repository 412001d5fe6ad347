"""Committed offsets of a group, and those of open transactions.

An offset in a transaction is *pending* until the transaction ends; then it is committed or
discarded. If it was also committed outside the transaction meanwhile, the later record in the log
wins, as it does for a coordinator that reads the log. Offsets outlive the group's members, until
they expire.

Times are the cluster's, in ms.

Owner: the group's registry.
Source: KIP-98, KIP-320 (leader epochs), KIP-447 (pending offsets); Java class
``OffsetMetadataManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.types import TopicPartition

    OnCommitted = Callable[[TopicPartition, "CommittedOffset | None"], None]

NO_EPOCH = -1
NEVER = 2**63 - 1
"""Commit time of an offset that does not expire."""
NOWHERE = -1
"""Log offset of a record older than the log."""


class Commit(NamedTuple):
    """Commit time of an offset and its expiry; None for the brokers' retention."""

    now_ms: int
    expires_ms: int | None = None


class CommittedOffset(NamedTuple):
    """A committed offset; `leader_epoch` is -1 if the client did not send it."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""


class _Pending(NamedTuple):
    """An offset in an open transaction, with its commit time and log offset."""

    committed: CommittedOffset
    now_ms: int
    log_offset: int


class GroupOffsets:
    """The offsets of a group; `on_committed` is called for each change, with None on removal.

    A `log_offset` is the place of an offset's record in the group's partition.
    """

    def __init__(self, on_committed: OnCommitted = lambda *_: None) -> None:
        self._on_committed = on_committed
        self._committed: dict[TopicPartition, CommittedOffset] = {}
        self._commits: dict[TopicPartition, Commit] = {}
        self._log_offsets: dict[TopicPartition, int] = {}
        """Log offsets of committed offsets."""
        self._pending: dict[int, dict[TopicPartition, _Pending]] = {}
        """Pending offsets by producer id."""

    def get(self, name: TopicPartition) -> CommittedOffset | None:
        """Return the committed offset, or None."""
        return self._committed.get(name)

    def all(self) -> dict[TopicPartition, CommittedOffset]:
        """Return all committed offsets, in order of first commit."""
        return dict(self._committed)

    def names(self) -> dict[TopicPartition, None]:
        """Return all partitions with committed or pending offsets, in a fixed order."""
        pending = (name for each in self._pending.values() for name in each)
        return dict.fromkeys((*self._committed, *pending))

    def commit(
        self,
        name: TopicPartition,
        committed: CommittedOffset,
        now_ms: int = NEVER,
        *,
        log_offset: int = NOWHERE,
        expires_ms: int | None = None,
    ) -> None:
        """Commit an offset."""
        self._committed[name] = committed
        self._commits[name] = Commit(now_ms, expires_ms)
        self._log_offsets[name] = log_offset
        self._on_committed(name, committed)

    def place(self, name: TopicPartition, log_offset: int) -> None:
        """Set a committed offset's place in the log; no effect without a committed offset."""
        if name in self._committed:
            self._log_offsets[name] = log_offset

    def remove(self, name: TopicPartition) -> None:
        """Remove a partition's offsets, also pending ones; no effect if there are none."""
        if self._committed.pop(name, None) is not None:
            del self._commits[name], self._log_offsets[name]
            self._on_committed(name, None)
        for pending in self._pending.values():
            pending.pop(name, None)

    def remove_topic(self, topic: str) -> None:
        """Remove all offsets of a deleted topic."""
        for name in self.names():
            if name.topic == topic:
                self.remove(name)

    def commits(self) -> dict[TopicPartition, Commit]:
        """Return commit times, without those of partitions with pending offsets."""
        return {
            name: commit for name, commit in self._commits.items() if not self.is_unstable(name)
        }

    @property
    def is_blank(self) -> bool:
        """True if there are no committed or pending offsets."""
        return not self.names()

    # Transactions.

    def hold(
        self,
        producer_id: int,
        name: TopicPartition,
        committed: CommittedOffset,
        now_ms: int = NEVER,
        *,
        log_offset: int,
    ) -> None:
        """Add a pending offset of an open transaction."""
        self._pending.setdefault(producer_id, {})[name] = _Pending(committed, now_ms, log_offset)

    def commit_held(self, producer_id: int) -> None:
        """Commit the producer's pending offsets, except where a later record exists."""
        for name, pending in self._pending.pop(producer_id, {}).items():
            if pending.log_offset >= self._log_offsets.get(name, NOWHERE):
                committed, now_ms, log_offset = pending
                self.commit(name, committed, now_ms, log_offset=log_offset)

    def drop_held(self, producer_id: int) -> None:
        """Discard the producer's pending offsets."""
        self._pending.pop(producer_id, None)

    def is_unstable(self, name: TopicPartition) -> bool:
        """Return whether an open transaction has a pending offset for the partition."""
        return any(name in pending for pending in self._pending.values())
