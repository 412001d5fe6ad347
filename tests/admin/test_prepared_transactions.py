"""EndTransactions: what an admin client requests to end transactions, and what refusals say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.admin.prepared_transactions import EndTransactions, prepared_by_id
from pykclient.errors import (
    ConcurrentTransactionsError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaError,
    NotCoordinatorError,
    ProducerFencedError,
    TransactionalIdAuthorizationFailedError,
    UsageError,
)
from pykclient.protocol.messages.end_txn import EndTxnResponse
from pykclient.types import PreparedTransaction

if TYPE_CHECKING:
    from pykclient.errors import BrokerError

FIRST = PreparedTransaction("a", 7, 3, 1)
SECOND = PreparedTransaction("b", 2**63 - 1, 2**15 - 1, 2)


def refusal(error: type[BrokerError], *, is_commit: bool = True) -> KafkaError:
    handler = EndTransactions({"a": FIRST}, is_commit=is_commit)
    ((key, result),) = handler.results(EndTxnResponse(error_code=error.code), ["a"])
    assert key == "a"
    assert type(result) is error
    return result


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_is_ended_as_what_it_is(is_commit: bool) -> None:
    handler = EndTransactions(prepared_by_id([FIRST, SECOND], "call"), is_commit=is_commit)
    for prepared, newest in ((FIRST, 4), (SECOND, None)):
        key = prepared.transactional_id
        message = handler.request([key], 1_000)
        assert (message.transactional_id, message.committed) == (key, is_commit)
        assert message.producer_id == prepared.producer_id
        assert message.producer_epoch == prepared.producer_epoch
        # A newer EndTxn would begin another epoch, which transactions of version 1 have not.
        assert handler.version_max([key]) == newest
        assert list(handler.results(EndTxnResponse(), [key])) == [(key, key)]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ProducerFencedError, "has called init_transactions() with this id since, or the"),
        (InvalidProducerEpochError, "has called init_transactions() with this id since, or the"),
        (InvalidTxnStateError, "it is not open. It was aborted before, or the coordinator has"),
        (InvalidProducerIdMappingError, "was not used for so long that it was dropped, or a"),
    ],
)
def test_a_refusal_says_what_has_happened_and_what_follows(
    error: type[BrokerError], text: str
) -> None:
    refused = str(refusal(error))
    assert "of transactional_id 'a' (producer id 7, epoch 3) cannot be committed: " in refused
    assert text in refused
    assert refused.endswith("will not be; write them again, in another transaction")
    refused = str(refusal(error, is_commit=False))
    assert "(producer id 7, epoch 3) cannot be aborted: " in refused
    assert refused.endswith("its records are not visible and will not be")


def test_a_refusal_has_its_cause() -> None:
    refused = refusal(InvalidTxnStateError, is_commit=False)
    assert "It was committed before, or the coordinator has aborted it" in str(refused)
    assert isinstance(refused.__cause__, InvalidTxnStateError)
    assert not refused.retriable


def test_what_an_acl_forbids_is_said() -> None:
    assert "allow this client WRITE" in str(refusal(TransactionalIdAuthorizationFailedError))


@pytest.mark.parametrize("error", [ConcurrentTransactionsError, NotCoordinatorError])
def test_what_passes_is_tried_again(error: type[BrokerError]) -> None:
    assert refusal(error).retriable


def test_what_is_given_twice_is_ended_once() -> None:
    given = iter([FIRST, SECOND, FIRST])
    assert prepared_by_id(given, "call") == {"a": FIRST, "b": SECOND}
    assert prepared_by_id([], "call") == {}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (FIRST, "give a list of transactions, each what prepare_transaction"),
        (None, "prepared is None; give a list"),
        ([None], "None is not a prepared transaction; give what prepare_transaction"),
        ([tuple(FIRST)], "of type tuple is not a prepared transaction"),
        ([FIRST._replace(transactional_id="")], "transactional_id is ''; give the producer's"),
        ([FIRST._replace(producer_id=-1)], "'a': producer_id is -1; give a number from 0"),
        ([FIRST._replace(producer_epoch=2**15)], "producer_epoch is 32768; give a number from 0"),
        ([FIRST._replace(transaction_version=0)], "transaction_version is 0; give a number from 1"),
        ([FIRST, FIRST._replace(producer_epoch=4)], "two transactions of 'a' are given"),
    ],
)
def test_what_is_no_prepared_transaction_is_refused(given: object, text: str) -> None:
    with pytest.raises(UsageError, match="call: ") as caught:
        prepared_by_id(given, "call")  # type: ignore[arg-type]
    assert text in str(caught.value)
