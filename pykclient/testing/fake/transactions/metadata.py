"""State of a transactional id: its transaction, its partitions, and its producer's epochs.

A transaction is *ongoing* from its first partition on. Its end is first *prepared*, which decides
between commit and abort, and *complete* once every partition has its marker. With transaction
version 2 (KIP-890) each end begins a new producer epoch for the next transaction.

Times are ``wall_ms``, in ms since 1970. A refusal is returned as the error class.

Owner: the coordinator.
Source: KIP-98, KIP-360 (expected epochs), KIP-588 (fencing), KIP-890; Java classes
``TransactionMetadata``, ``TransactionState``, ``TransactionCoordinator``.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.errors.broker import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pykclient.errors.base import BrokerError
    from pykclient.types import TopicPartition

    Refusal = type[BrokerError]

EPOCH_MAX: Final = 2**15 - 2
"""Last usable epoch of a producer id; the one above is reserved for fencing."""
NO_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
NO_TIME_OUT_MS: Final = 2**31 - 1
"""Timeout value of a transaction without a timeout, as in two-phase commits."""
BUMPING_VERSION: Final = 2
"""First transaction version in which each end begins a new epoch."""


class TransactionState(Enum):
    """States of a transactional id; the values are Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"

    @property
    def number(self) -> int:
        """Number of the state in the transaction log."""
        return list(TransactionState).index(self)


_EMPTY, _ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
_PREPARED = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}
_COMPLETE = frozenset(_PREPARED.values())

NEXT: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    TransactionState.EMPTY: frozenset(
        {_EMPTY, _ONGOING, TransactionState.PREPARE_ABORT, TransactionState.DEAD}
    ),
    TransactionState.ONGOING: frozenset({_ONGOING, *_PREPARED}),
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.COMPLETE_COMMIT}),
    TransactionState.PREPARE_ABORT: frozenset({TransactionState.COMPLETE_ABORT}),
    TransactionState.COMPLETE_COMMIT: frozenset(
        {_EMPTY, _ONGOING, TransactionState.PREPARE_ABORT, TransactionState.DEAD}
    ),
    TransactionState.COMPLETE_ABORT: frozenset(
        {_EMPTY, _ONGOING, TransactionState.PREPARE_ABORT, TransactionState.DEAD}
    ),
    TransactionState.DEAD: frozenset(),
}
"""With KIP-890 a producer may abort a transaction that never began, to get a new epoch."""


class ProducerIdentity(NamedTuple):
    """A producer id and epoch."""

    producer_id: int
    epoch: int


NO_PRODUCER: Final = ProducerIdentity(NO_ID, NO_EPOCH)


class TransactionMetadata:
    """A transactional id; `new_producer_id` is called when an id's epochs are used up."""

    def __init__(
        self, transactional_id: str, new_producer_id: Callable[[], int], wall_ms: int
    ) -> None:
        self.transactional_id = transactional_id
        self.state = TransactionState.EMPTY
        self.producer = ProducerIdentity(new_producer_id(), NO_EPOCH)
        self.last_epoch = NO_EPOCH
        """Previous epoch, used to recognise a retried request."""
        self.previous_producer_id = NO_ID
        self.next_producer_id = NO_ID
        """Producer id after the transaction is complete; -1 for no change."""
        self.timeout_ms = 0
        self.partitions: dict[TopicPartition, None] = {}
        """Partitions without a marker, in order of arrival."""
        self.started_ms = NO_TIME
        self.updated_ms = wall_ms
        self.version = 0
        """Transaction version that the client last used, as far as known."""
        self.new_producer_id = new_producer_id

    @property
    def is_prepared(self) -> bool:
        """True if the end is decided and markers remain to be written."""
        return self.state in _PREPARED

    @property
    def is_commit(self) -> bool:
        """True if the prepared end is a commit."""
        return self.state is TransactionState.PREPARE_COMMIT

    @property
    def has_time_out(self) -> bool:
        """True if its transactions time out."""
        return self.timeout_ms != NO_TIME_OUT_MS

    @property
    def may_expire(self) -> bool:
        """True if expiry would lose nothing but epochs."""
        return TransactionState.DEAD in NEXT[self.state]

    def to(self, state: TransactionState, wall_ms: int) -> None:
        """Change the state."""
        assert state in NEXT[self.state], f"{self.state} does not go to {state}"
        self.state = state
        self.updated_ms = wall_ms

    # InitProducerId.

    def initialize(
        self, expected: ProducerIdentity | None, timeout_ms: int, wall_ms: int
    ) -> Refusal | None:
        """Begin a new epoch; `expected` is the identity of a producer that recovers.

        An ongoing transaction must be fenced first.
        """
        refusal = self.check_initialize(expected)
        if refusal is not None:
            return refusal
        id_, epoch = self.producer
        is_recovery = expected is not None
        has_current = expected is None or expected.epoch == epoch
        if epoch >= EPOCH_MAX and has_current:
            self.previous_producer_id = id_
            self.producer = ProducerIdentity(self.new_producer_id(), 0)
            self.last_epoch = epoch if is_recovery else NO_EPOCH
        elif epoch == NO_EPOCH or has_current:
            self.previous_producer_id = id_
            self.producer = ProducerIdentity(id_, epoch + 1)
            self.last_epoch = epoch if is_recovery else NO_EPOCH
        elif expected is not None and expected.epoch != self.last_epoch:
            return ProducerFencedError  # otherwise its response was lost, and is repeated
        self.timeout_ms = timeout_ms
        self.partitions.clear()
        self.started_ms = NO_TIME
        self.to(_EMPTY, wall_ms)
        return None

    def check_initialize(self, expected: ProducerIdentity | None) -> Refusal | None:
        """Return why this producer may not begin now, None if it may."""
        if self.is_prepared:
            return ConcurrentTransactionsError
        if expected is None or self.producer.epoch == NO_EPOCH:
            return None
        is_own = expected.producer_id == self.producer.producer_id
        is_last = expected.producer_id == self.previous_producer_id and expected.epoch >= EPOCH_MAX
        return None if is_own or is_last else ProducerFencedError

    # AddPartitionsToTxn, AddOffsetsToTxn.

    def check_producer(self, producer: ProducerIdentity) -> Refusal | None:
        """Return why this producer may not write now, None if it may."""
        if self.is_prepared:
            return ConcurrentTransactionsError
        if producer.producer_id != self.producer.producer_id:
            return InvalidProducerIdMappingError
        return None if producer.epoch == self.producer.epoch else ProducerFencedError

    def add(self, partitions: Iterable[TopicPartition], version: int, wall_ms: int) -> bool:
        """Add partitions; return whether anything changed."""
        added = [each for each in partitions if each not in self.partitions]
        if self.state is _ONGOING and not added:
            return False
        if self.state is not _ONGOING:
            self.started_ms = wall_ms
        self.partitions.update(dict.fromkeys(added))
        self.version = version
        self.to(_ONGOING, wall_ms)
        return True

    # EndTxn.

    def check_end(
        self, producer: ProducerIdentity, version: int, *, is_commit: bool
    ) -> Refusal | bool:
        """Return whether to end the transaction, False if it has ended so already, or an error."""
        is_retry = version >= BUMPING_VERSION and self._is_retry(producer)
        if producer.producer_id != self.producer.producer_id and not is_retry:
            return InvalidProducerIdMappingError
        if not is_retry and (
            producer.epoch != self.producer.epoch
            or (version >= BUMPING_VERSION and self.is_prepared)
        ):
            return ProducerFencedError
        if self.is_prepared:
            return ConcurrentTransactionsError
        if self.state is _ONGOING:
            return True
        if version >= BUMPING_VERSION and not is_retry:
            return InvalidTxnStateError if is_commit else True
        was_commit = self.state is TransactionState.COMPLETE_COMMIT
        is_same = self.state in _COMPLETE and was_commit is is_commit
        return False if is_same else InvalidTxnStateError

    def _is_retry(self, producer: ProducerIdentity) -> bool:
        """Return whether the producer missed the response with its current epoch."""
        if self.version < BUMPING_VERSION or self.state not in {*_PREPARED, *_COMPLETE}:
            return False
        if producer.producer_id == self.producer.producer_id:
            return self.producer.epoch == producer.epoch + 1
        return (
            producer == (self.previous_producer_id, EPOCH_MAX)
            and self.producer.epoch == 0
            and self.state in _COMPLETE
        )

    def prepare_end(self, version: int, wall_ms: int, *, is_commit: bool) -> None:
        """Decide how the transaction ends; from version 2 on, in a new producer epoch."""
        self.version = version
        if version >= BUMPING_VERSION:
            self._bump_or_follow()
        if self.state is not _ONGOING:
            self.started_ms = wall_ms
        prepared = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
        self.to(prepared, wall_ms)

    def fence(self, version: int, wall_ms: int) -> None:
        """Abort the transaction in a new epoch, which fences its producer."""
        self.version = version
        if version >= BUMPING_VERSION:
            self._bump_or_follow()
        else:
            self._bump()
            self.last_epoch = NO_EPOCH
        self.to(TransactionState.PREPARE_ABORT, wall_ms)

    def _bump_or_follow(self) -> None:
        """Begin a new epoch; after the last one, a new id follows when the end is complete."""
        if self.producer.epoch >= EPOCH_MAX:
            self.next_producer_id = self.new_producer_id()
        self._bump()

    def _bump(self) -> None:
        id_, epoch = self.producer
        self.producer, self.last_epoch = ProducerIdentity(id_, epoch + 1), epoch

    @property
    def next_producer(self) -> ProducerIdentity:
        """Identity that the producer uses next."""
        return (
            self.producer
            if self.next_producer_id == NO_ID
            else ProducerIdentity(self.next_producer_id, 0)
        )

    def complete(self, wall_ms: int) -> None:
        """Complete the transaction; every partition must have its marker."""
        assert not self.partitions
        if self.next_producer_id != NO_ID:
            self.previous_producer_id = self.producer.producer_id
            self.producer = self.next_producer
            self.next_producer_id = NO_ID
        self.to(_PREPARED[self.state], wall_ms)
