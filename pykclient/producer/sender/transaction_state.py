"""States of transactions, and the errors of calls in each state.

Owner: none; it holds no state.
Source: Java class ``TransactionManager``; KIP-98, KIP-588 (fencing), KIP-1050 (kinds of errors).
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final

from pykclient.errors import (
    ClosedError,
    ClusterAuthorizationFailedError,
    CommitFailedError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    KafkaError,
    ProducerFencedError,
    RequestTimedOutError,
    StaleMemberEpochError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
    TransactionStateError,
    UnknownMemberIdError,
    UnsupportedVersionError,
)

if TYPE_CHECKING:
    from pykclient.producer.accumulator.batch import ProducerIdentity
    from pykclient.types import GroupMetadata

INIT: Final = "init_transactions"
BEGIN: Final = "begin_transaction"
PREPARE: Final = "prepare_transaction"
COMMIT: Final = "commit_transaction"
ABORT: Final = "abort_transaction"
SEND_OFFSETS: Final = "send_offsets_to_transaction"

FENCED_ERRORS: Final = (ProducerFencedError, InvalidProducerEpochError)
"""Errors of a coordinator that mean another producer, or a time-out, has fenced this one."""

STALE_ERRORS: Final = (*FENCED_ERRORS, InvalidTxnStateError)
"""Errors of a broker that hung and does not know yet that another one is the coordinator: it knows
an older epoch, or no transaction."""

UNCERTAIN_ERRORS: Final = (CoordinatorNotAvailableError, RequestTimedOutError)
"""Errors of a coordinator for an EndTxn that may take effect nevertheless."""

FATAL_ERRORS: Final = (
    ProducerFencedError,
    ClusterAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    UnsupportedVersionError,
)
"""Errors that end the producer, whichever request they come from."""

MEMBERSHIP_ERRORS: Final = (
    UnknownMemberIdError,
    IllegalGenerationError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    StaleMemberEpochError,
)
"""Errors of a group for offsets of a producer whose consumer is no longer a member."""


class TransactionState(Enum):
    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    PREPARING = "preparing"
    PREPARED = "prepared"
    COMMITTING = "committing"
    COMMIT_REQUESTED = "commit requested"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "abortable error"
    FATAL_ERROR = "fatal error"


class NewEpoch(IntEnum):
    """Reasons why the next transaction needs another identity; the highest counts."""

    NOT_NEEDED = 0
    LATE_REQUEST = 1
    """A request without a response may be handled late (version 1)."""
    PREPARED = 2
    """Another process may end the prepared transaction again."""
    GAP = 3
    """A sequence has ended in the middle."""


_S = TransactionState
NEXT: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    _S.UNINITIALIZED: frozenset({_S.INITIALIZING, _S.FATAL_ERROR}),
    _S.INITIALIZING: frozenset({_S.READY, _S.FATAL_ERROR}),
    _S.READY: frozenset({_S.IN_TRANSACTION, _S.FATAL_ERROR}),
    _S.IN_TRANSACTION: frozenset(
        {_S.PREPARING, _S.COMMITTING, _S.ABORTING, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}
    ),
    _S.PREPARING: frozenset(
        {_S.PREPARED, _S.READY, _S.ABORTING, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}
    ),
    _S.PREPARED: frozenset({_S.COMMIT_REQUESTED, _S.ABORTING, _S.INITIALIZING, _S.FATAL_ERROR}),
    _S.COMMITTING: frozenset({_S.COMMIT_REQUESTED, _S.READY, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}),
    _S.COMMIT_REQUESTED: frozenset({_S.READY, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}),
    _S.ABORTING: frozenset({_S.READY, _S.FATAL_ERROR}),
    _S.ABORTABLE_ERROR: frozenset({_S.ABORTING, _S.FATAL_ERROR}),
    _S.FATAL_ERROR: frozenset(),
}

SENDING: Final = frozenset({_S.IN_TRANSACTION, _S.PREPARING, _S.COMMITTING})
"""States in which batches and offsets are sent."""

ABORTING_FROM: Final = frozenset({_S.IN_TRANSACTION, _S.PREPARING, _S.PREPARED, _S.ABORTABLE_ERROR})
"""States in which `abort_transaction` may begin."""

DROPPING: Final = frozenset({_S.ABORTABLE_ERROR, _S.ABORTING})
"""States in which batches that no request carries are dropped."""

OPEN: Final = SENDING | DROPPING | {_S.COMMIT_REQUESTED}
"""States in which the coordinator may have an open transaction that this producer must end. A
prepared one belongs to the holder of its `PreparedTransaction`."""

ENDING: Final = frozenset({_S.READY, _S.COMMITTING, _S.COMMIT_REQUESTED, _S.ABORTING})
"""States after a call that ends a transaction."""


def refusal(
    call: str, state: TransactionState, *, cause: KafkaError | None, is_commit_unseen: bool = False
) -> KafkaError:
    """Return the error of a call that is not allowed in a state, with what to call instead.

    `cause` is why the transaction must be aborted, or why the producer can no longer be used.
    """
    if state is _S.FATAL_ERROR:
        assert cause is not None
        return cause
    if state is _S.ABORTABLE_ERROR:
        error = TransactionAbortableError(
            f"{call}: the transaction cannot be committed: {cause}. Call {ABORT}(), then do the "
            f"transaction again with this producer"
        )
        error.__cause__ = cause
        return error
    if state is _S.READY and is_commit_unseen:
        why = f"the last {COMMIT}() was interrupted or timed out; call it again to see how it ended"
    else:
        why = _REFUSALS[state]
    return TransactionStateError(f"{call}: {why}")


_REFUSALS: Final = {
    _S.UNINITIALIZED: f"call {INIT}() first, once per producer",
    _S.INITIALIZING: f"{INIT}() has not ended; call it again to wait for it",
    _S.READY: f"no transaction is open; call {BEGIN}() first",
    _S.IN_TRANSACTION: f"a transaction is open; {COMMIT}() or {ABORT}() ends it",
    _S.PREPARING: f"{PREPARE}() has not ended; call it again to wait for it, or {ABORT}()",
    _S.PREPARED: (
        f"the transaction is prepared, and accepts no more; {COMMIT}() or {ABORT}() ends it. If it "
        f"is ended elsewhere, or abandoned, call {INIT}() again"
    ),
    _S.COMMITTING: f"{COMMIT}() has not ended; call it again to wait for it",
    _S.COMMIT_REQUESTED: f"{COMMIT}() has not ended; call it again to wait for it",
    _S.ABORTING: f"{ABORT}() has not ended; call it again to wait for it",
}


def of_late_commit(error: KafkaError) -> KafkaError:
    """Return the meaning of an EndTxn error (version 2) for a commit.

    A coordinator that aborted the transaction itself still knows the epoch, as that of a lost
    response, and answers INVALID_TXN_STATE. In version 1 it no longer knows it.
    """
    if not isinstance(error, InvalidTxnStateError):
        return error
    fenced = ProducerFencedError(str(error))
    fenced.__cause__ = error
    return fenced


def left_group(group: GroupMetadata, error: KafkaError) -> CommitFailedError:
    """Return the error of a group that refuses offsets because the member has left it."""
    refused = CommitFailedError(
        f"group {group.group_id!r} did not accept the offsets of member {group.member_id!r}, "
        f"generation {group.generation}: {error}. Other members may have read its partitions "
        f"since, so this transaction must not commit; after {ABORT}(), poll joins again"
    )
    refused.__cause__ = error
    return refused


UNCERTAIN: Final = (
    ". It is not known whether its last transaction was committed: a consumer with "
    "isolation_level=read_committed sees all of it or nothing"
)


def is_uncertain_end(error: KafkaError | None) -> bool:
    """Return whether an error is that of a producer that ended with an unknown commit."""
    return UNCERTAIN in str(error)


def of_uncertain_end(error: KafkaError) -> KafkaError:
    """Return the error of a producer that ended after it requested a commit with unknown result."""
    if is_uncertain_end(error):
        return error
    kind = ClosedError if isinstance(error, ClosedError) else KafkaError
    unknown = kind(f"{error}{UNCERTAIN}")
    unknown.__cause__ = error
    return unknown


def explained(
    error: KafkaError,
    transactional_id: str,
    identity: ProducerIdentity,
    *,
    timeout_ms: int,
    open_ms: int,
    is_uncertain: bool,
    was_prepared: bool,
    is_two_phase: bool,
) -> KafkaError:
    """Return a fatal error with what happened and how to recover.

    `timeout_ms` is `transaction_timeout_ms`; `open_ms` is how long the transaction was open, 0 if
    none was. `is_uncertain`: the commit that it ends may have succeeded. `was_prepared`: another
    process could end the transaction. `is_two_phase` is `transaction_two_phase_commit_enable`.
    """
    uncertain = UNCERTAIN if is_uncertain else ""
    if isinstance(error, FENCED_ERRORS):
        who = (
            f"another producer with the same transactional_id has called {INIT}() since. Create a "
            f"new producer if that one is gone, else stop: each running producer needs its own id"
        )
        if open_ms >= timeout_ms:
            who = (
                f"its transaction was open for {open_ms} ms, and the coordinator aborts one that "
                f"exceeds transaction_timeout_ms={timeout_ms}. Create a new producer and do the "
                f"transaction again, in less time or with a longer time-out"
            )
        fenced = ProducerFencedError(
            f"transactional_id {transactional_id!r}: this producer (producer id "
            f"{identity.producer_id}, epoch {identity.epoch}) was fenced: {who}{uncertain}"
        )
        fenced.__cause__ = error
        return fenced
    cure = "close it, and create a new producer"
    if isinstance(error, InvalidTransactionTimeoutError):
        cure = (
            f"transaction_timeout_ms={timeout_ms} exceeds the brokers' "
            f"transaction.max.timeout.ms; create a new producer with less"
        )
    elif isinstance(error, TransactionalIdAuthorizationFailedError):
        cure = "have an ACL allow it WRITE on the transactional id, and create a new producer"
        if is_two_phase:
            cure = (
                "set transaction.two.phase.commit.enable=true for the brokers, and have ACLs "
                "allow it WRITE and TWO_PHASE_COMMIT on the transactional id; then create a new "
                "producer"
            )
    elif was_prepared and isinstance(error, InvalidTxnStateError):
        cure = (
            f"the transaction was prepared, and was ended elsewhere since, differently or by its "
            f"time-out; close it, and create a new producer. If another process ends a "
            f"transaction, call {INIT}() after {PREPARE}()"
        )
    fatal = type(error)(f"{error}: this producer can no longer be used: {cure}{uncertain}")
    fatal.__cause__ = error
    return fatal
