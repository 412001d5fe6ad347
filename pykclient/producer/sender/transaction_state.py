"""The states of transactions, and what calls and errors say of them.

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
"""What a coordinator responds with to a producer that another one, or a time-out, has fenced."""

STALE_ERRORS: Final = (*FENCED_ERRORS, InvalidTxnStateError)
"""What a broker that hung responds with before it finds out that another one is the coordinator:
it knows an older epoch, or no transaction."""

UNCERTAIN_ERRORS: Final = (CoordinatorNotAvailableError, RequestTimedOutError)
"""What a coordinator may respond with to an EndTxn that takes effect all the same."""

FATAL_ERRORS: Final = (
    ProducerFencedError,
    ClusterAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    UnsupportedVersionError,
)
"""After these the producer can do no more, whichever request had them."""

MEMBERSHIP_ERRORS: Final = (
    UnknownMemberIdError,
    IllegalGenerationError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    StaleMemberEpochError,
)
"""What a group responds with to the offsets of one that is no member of it any more."""


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
    """Reasons why another transaction must not have the identity of the last one; the highest
    counts."""

    NOT_NEEDED = 0
    LATE_REQUEST = 1
    """A request that ended without a response may be handled late (version 1)."""
    PREPARED = 2
    """Others may end the transaction again that was prepared under it."""
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
"""States in which batches and offsets go out."""

ABORTING_FROM: Final = frozenset({_S.IN_TRANSACTION, _S.PREPARING, _S.PREPARED, _S.ABORTABLE_ERROR})
"""States in which `abort_transaction` begins."""

DROPPING: Final = frozenset({_S.ABORTABLE_ERROR, _S.ABORTING})
"""States in which what no request carries yet is dropped."""

OPEN: Final = SENDING | DROPPING | {_S.COMMIT_REQUESTED}
"""States in which the coordinator may have a transaction open that this producer is to end. One
that is prepared belongs to whoever has its `PreparedTransaction`."""

ENDING: Final = frozenset({_S.READY, _S.COMMITTING, _S.COMMIT_REQUESTED, _S.ABORTING})
"""States after a call that ends a transaction."""


def refusal(
    call: str, state: TransactionState, *, cause: KafkaError | None, is_commit_unseen: bool = False
) -> KafkaError:
    """Return why a call cannot be made in a state, and what can.

    `cause` is why the transaction has to be aborted, or the producer can do no more.
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
        why = f"the last {COMMIT}() was left before its end; call it again to see how it ended"
    else:
        why = _REFUSALS[state]
    return TransactionStateError(f"{call}: {why}")


_REFUSALS: Final = {
    _S.UNINITIALIZED: f"call {INIT}() first, once for a producer",
    _S.INITIALIZING: f"{INIT}() has not ended; call it again to wait for it",
    _S.READY: f"no transaction is open; call {BEGIN}() first",
    _S.IN_TRANSACTION: f"a transaction is open; {COMMIT}() or {ABORT}() ends it",
    _S.PREPARING: f"{PREPARE}() has not ended; call it again to wait for it, or {ABORT}()",
    _S.PREPARED: (
        f"the transaction is prepared, and takes nothing more; {COMMIT}() or {ABORT}() ends it. If "
        f"it is ended elsewhere, or given up, call {INIT}() again"
    ),
    _S.COMMITTING: f"{COMMIT}() has not ended; call it again to wait for it",
    _S.COMMIT_REQUESTED: f"{COMMIT}() has not ended; call it again to wait for it",
    _S.ABORTING: f"{ABORT}() has not ended; call it again to wait for it",
}


def of_late_commit(error: KafkaError) -> KafkaError:
    """Return what an EndTxn's error means, of version 2, to a commit.

    A coordinator that has aborted the transaction by itself knows its epoch still, as that of a
    response that was lost, and refuses the end that it was not. In version 1 it knows it no more.
    """
    if not isinstance(error, InvalidTxnStateError):
        return error
    fenced = ProducerFencedError(str(error))
    fenced.__cause__ = error
    return fenced


def left_group(group: GroupMetadata, error: KafkaError) -> CommitFailedError:
    """Return why a group takes no offsets of one that is no member of it any more."""
    refused = CommitFailedError(
        f"group {group.group_id!r} did not take the offsets of member {group.member_id!r}, "
        f"generation {group.generation}: {error}. Its partitions may be read by others since: what "
        f"they read, this transaction must not commit; after {ABORT}(), poll joins again"
    )
    refused.__cause__ = error
    return refused


UNCERTAIN: Final = (
    ". It is not known whether its last transaction was committed: a consumer with "
    "isolation_level=read_committed sees all of it or nothing"
)


def of_uncertain_end(error: KafkaError) -> KafkaError:
    """Return why a producer has ended that has requested a commit, and does not know its end."""
    if UNCERTAIN in str(error):
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
    """Return a fatal error with what happened and what cures it.

    `timeout_ms` is `transaction_timeout_ms`, `open_ms` how long the transaction was open, 0 if none
    was. `is_uncertain` is whether the commit that it ends may have been done; `was_prepared`
    whether others could end the transaction; `is_two_phase` is
    `transaction_two_phase_commit_enable`.
    """
    uncertain = UNCERTAIN if is_uncertain else ""
    if isinstance(error, FENCED_ERRORS):
        who = (
            f"another producer with the same transactional_id has called {INIT}() since. Make a "
            f"new producer if that one is gone, else stop: each producer that runs needs an id of "
            f"its own"
        )
        if open_ms >= timeout_ms:
            who = (
                f"its transaction was open for {open_ms} ms, and the coordinator aborts what "
                f"exceeds transaction_timeout_ms={timeout_ms}. Make a new producer and do the "
                f"transaction again, in less time or with a higher time-out"
            )
        fenced = ProducerFencedError(
            f"transactional_id {transactional_id!r}: this producer (producer id "
            f"{identity.producer_id}, epoch {identity.epoch}) was fenced: {who}{uncertain}"
        )
        fenced.__cause__ = error
        return fenced
    cure = "close it, and make a new producer"
    if isinstance(error, InvalidTransactionTimeoutError):
        cure = (
            f"transaction_timeout_ms={timeout_ms} exceeds the brokers' "
            f"transaction.max.timeout.ms; make a new producer with less"
        )
    elif isinstance(error, TransactionalIdAuthorizationFailedError):
        cure = "have an ACL allow it WRITE on the transactional id, and make a new producer"
        if is_two_phase:
            cure = (
                "set transaction.two.phase.commit.enable=true for the brokers, and have ACLs "
                "allow it WRITE and TWO_PHASE_COMMIT on the transactional id; then make a new "
                "producer"
            )
    elif was_prepared and isinstance(error, InvalidTxnStateError):
        cure = (
            f"the transaction was prepared, and has been ended elsewhere since, the other way or "
            f"by its time-out; close it, and make a new producer. Where a transaction is ended "
            f"elsewhere, {INIT}() comes after {PREPARE}()"
        )
    fatal = type(error)(f"{error}: this producer can do no more: {cure}{uncertain}")
    fatal.__cause__ = error
    return fatal
