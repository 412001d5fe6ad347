"""What one group has committed: offsets with notes, and those of transactions that are still open.

An offset of a transaction is *pending* until the transaction ends: committed then, or forgotten.
But what was committed without a transaction meanwhile stays: the later of two records in the log
counts, since whoever reads the log anew finds it so. Offsets are no state of the group's members,
and outlive them all, until nothing has used them for long.

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
"""The time of an offset that does not expire."""
NOWHERE = -1
"""Where an offset stands in the log that is older than all of the log."""


class Commit(NamedTuple):
    """When an offset was committed, and when it goes; None: once the brokers' retention is over."""

    now_ms: int
    expires_ms: int | None = None


class CommittedOffset(NamedTuple):
    """One committed offset; `leader_epoch` is -1 when the client did not send it."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""


class _Pending(NamedTuple):
    """An offset of an open transaction, its time, and where it stands in the log."""

    committed: CommittedOffset
    now_ms: int
    log_offset: int


class GroupOffsets:
    """The offsets of one group; `on_committed` gets each that changes, None for one that goes.

    A `log_offset` is where the record of an offset stands in the group's partition.
    """

    def __init__(self, on_committed: OnCommitted = lambda *_: None) -> None:
        self._on_committed = on_committed
        self._committed: dict[TopicPartition, CommittedOffset] = {}
        self._commits: dict[TopicPartition, Commit] = {}
        self._log_offsets: dict[TopicPartition, int] = {}
        """Of each that was committed."""
        self._pending: dict[int, dict[TopicPartition, _Pending]] = {}
        """By producer id."""

    def get(self, name: TopicPartition) -> CommittedOffset | None:
        """The committed offset, None when there is none."""
        return self._committed.get(name)

    def all(self) -> dict[TopicPartition, CommittedOffset]:
        """All that is committed, in the order in which partitions were first committed."""
        return dict(self._committed)

    def names(self) -> dict[TopicPartition, None]:
        """The partitions of which something is committed, or may yet be, in a fixed order."""
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
        """Take an offset; it stands at once."""
        self._committed[name] = committed
        self._commits[name] = Commit(now_ms, expires_ms)
        self._log_offsets[name] = log_offset
        self._on_committed(name, committed)

    def place(self, name: TopicPartition, log_offset: int) -> None:
        """Where a committed offset stands in the log; no effect where nothing is committed."""
        if name in self._committed:
            self._log_offsets[name] = log_offset

    def remove(self, name: TopicPartition) -> None:
        """Forget a partition, pending offsets too; no effect when nothing is committed."""
        if self._committed.pop(name, None) is not None:
            del self._commits[name], self._log_offsets[name]
            self._on_committed(name, None)
        for pending in self._pending.values():
            pending.pop(name, None)

    def remove_topic(self, topic: str) -> None:
        """Forget all partitions of a topic that was deleted."""
        for name in self.names():
            if name.topic == topic:
                self.remove(name)

    def commits(self) -> dict[TopicPartition, Commit]:
        """When each was committed; those that a transaction may yet change are left out."""
        return {
            name: commit for name, commit in self._commits.items() if not self.is_unstable(name)
        }

    @property
    def is_blank(self) -> bool:
        """Whether nothing is committed, and nothing may yet be."""
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
        """Take an offset of an open transaction."""
        self._pending.setdefault(producer_id, {})[name] = _Pending(committed, now_ms, log_offset)

    def commit_held(self, producer_id: int) -> None:
        """The producer's transaction was committed: its offsets stand, if no later one does."""
        for name, pending in self._pending.pop(producer_id, {}).items():
            if pending.log_offset >= self._log_offsets.get(name, NOWHERE):
                committed, now_ms, log_offset = pending
                self.commit(name, committed, now_ms, log_offset=log_offset)

    def drop_held(self, producer_id: int) -> None:
        """The producer's transaction was aborted: its offsets never were."""
        self._pending.pop(producer_id, None)

    def is_unstable(self, name: TopicPartition) -> bool:
        """Whether a transaction that is open may yet change the partition's offset."""
        return any(name in pending for pending in self._pending.values())
