"""Prepared transactions: the handler that ends them from any process.

A transaction is ended by its transactional id, producer id and epoch, whoever sends them. EndTxn
may be repeated until another producer has the transactional id.

Source: the EndTxn API; KIP-98, KIP-890 (version 2), KIP-939 (two-phase commit).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.admin.call import AdminHandler, Receiver
from pykclient.arguments import check_number, check_text, shown_argument, value_list
from pykclient.errors import (
    BrokerError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionalIdAuthorizationFailedError,
    UsageError,
    error_for_code,
)
from pykclient.network.coordinators import CoordinatorType
from pykclient.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from pykclient.types import PreparedTransaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pykclient.admin.call import Results
    from pykclient.errors import KafkaError
    from pykclient.protocol.message import Message

VERSION_2: Final = 2
"""Version of transactions that have one epoch each (KIP-890)."""

END_TXN_MAX_OF_VERSION_1: Final = 4
EPOCH_MAX: Final = 2**15 - 1
INT64_MAX: Final = 2**63 - 1
_EACH: Final = "what prepare_transaction() of a producer returned"


def prepared_by_id(
    prepared: Iterable[PreparedTransaction], call: str
) -> dict[str, PreparedTransaction]:
    """Return transactions by their ids.

    Raises:
        UsageError: one is not a prepared transaction, or two have the same id.
    """
    if isinstance(prepared, PreparedTransaction):
        raise UsageError(f"{call}: give a list of transactions, each {_EACH}")
    found: dict[str, PreparedTransaction] = {}
    for each in value_list(prepared, f"{call}: prepared", _EACH):
        _check(each, call)
        if found.setdefault(each.transactional_id, each) != each:
            raise UsageError(
                f"{call}: two transactions of {each.transactional_id!r} are given, of which one "
                f"at most is open: the one with the higher epoch, {found[each.transactional_id]} "
                f"or {each}"
            )
    return found


class EndTransactions(AdminHandler[str, str]):
    """Commits or aborts transactions, each at the coordinator of its id."""

    receiver = Receiver.COORDINATOR
    coordinator_type = CoordinatorType.TRANSACTION
    keys_per_request_max = 1
    stale_errors = (
        InvalidProducerEpochError,
        InvalidProducerIdMappingError,
        InvalidTxnStateError,
        ProducerFencedError,
    )

    def __init__(self, prepared: Mapping[str, PreparedTransaction], *, is_commit: bool) -> None:
        self._prepared = prepared
        self._is_commit = is_commit

    def version_max(self, keys: Sequence[str]) -> int | None:
        (key,) = keys
        is_v2 = self._prepared[key].transaction_version >= VERSION_2
        return None if is_v2 else END_TXN_MAX_OF_VERSION_1

    def request(self, keys: Sequence[str], timeout_ms: int) -> EndTxnRequest:
        del timeout_ms  # the coordinator responds as soon as it has decided
        (key,) = keys
        each = self._prepared[key]
        return EndTxnRequest(key, each.producer_id, each.producer_epoch, self._is_commit)

    def results(self, message: Message, keys: Sequence[str]) -> Results[str, str]:
        assert isinstance(message, EndTxnResponse)
        (key,) = keys
        if message.error_code == 0:
            yield key, key
        else:
            error = error_for_code(message.error_code, f"transactional_id {key!r}: EndTxn")
            yield key, _explained(error, self._prepared[key], is_commit=self._is_commit)


def _explained(error: KafkaError, prepared: PreparedTransaction, *, is_commit: bool) -> KafkaError:
    """Return a final error with an explanation."""
    why = ""
    if isinstance(error, (ProducerFencedError, InvalidProducerEpochError)):
        why = (
            "a producer has called init_transactions() with this id since, or the coordinator has "
            "aborted the transaction after its transaction_timeout_ms"
        )
    elif isinstance(error, InvalidTxnStateError):
        why = (
            f"it is not open. It was {'aborted' if is_commit else 'committed'} before, or the "
            f"coordinator has aborted it after its transaction_timeout_ms"
        )
    elif isinstance(error, InvalidProducerIdMappingError):
        why = (
            "the coordinator does not know this id, or not with this producer id: the id was not "
            "used for so long that it was dropped, or a producer has taken it since"
        )
    if why:
        text = (
            f"the transaction of transactional_id {prepared.transactional_id!r} (producer id "
            f"{prepared.producer_id}, epoch {prepared.producer_epoch}) cannot be "
            f"{'committed' if is_commit else 'aborted'}: {why}. Unless it was committed earlier, "
            f"its records are not visible and will not be"
            + ("; write them again, in another transaction" if is_commit else "")
        )
    elif isinstance(error, TransactionalIdAuthorizationFailedError):
        text = f"{error}: have an ACL allow this client WRITE on the transactional id"
    else:
        return error
    assert isinstance(error, BrokerError)
    explained = type(error)(text)
    explained.__cause__ = error
    return explained


def _check(prepared: object, call: str) -> None:
    if not isinstance(prepared, PreparedTransaction):
        raise UsageError(
            f"{call}: {shown_argument(prepared)} is not a prepared transaction; give {_EACH}"
        )
    name = prepared.transactional_id
    if not isinstance(name, str) or not name:
        raise UsageError(f"{call}: transactional_id is {shown_argument(name)}; give the producer's")
    check_text(name, "transactional_id", call)
    where = f"{call}: transactional_id {name!r}"
    check_number(prepared.producer_id, f"{where}: producer_id", 0, INT64_MAX)
    check_number(prepared.producer_epoch, f"{where}: producer_epoch", 0, EPOCH_MAX)
    check_number(prepared.transaction_version, f"{where}: transaction_version", 1, VERSION_2)
