"""Transactions that are prepared and ended elsewhere: each rule, on the bench."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from pykclient import PreparedTransaction
from pykclient.errors import (
    InvalidTxnStateError,
    KafkaError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
    TransactionStateError,
    UnsupportedVersionError,
)
from pykclient.network.manager import Operation
from pykclient.producer.sender.transaction_state import PREPARE, TransactionState
from pykclient.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from pykclient.protocol.messages.end_txn import EndTxnRequest
from pykclient.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.producer.sender_bench import PRODUCER_ID
from tests.producer.test_transactions import (
    INVALID_PRODUCER_EPOCH,
    NOT_COORDINATOR,
    OUT_OF_ORDER,
    PRODUCER_FENCED,
    Bench,
    sequence_of,
)

if TYPE_CHECKING:
    from pykclient.producer.sender.call_under_way import CallOperation

INVALID_TXN_STATE = 48
PREPARED = PreparedTransaction("x", PRODUCER_ID, 3, 2)


def write(bench: Bench, version: int = 2) -> None:
    """Write a record in the transaction."""
    bench.send_batch()
    bench.turn()
    if version == 1:
        bench.added()
    bench.written()


def prepared_bench(version: int = 2) -> Bench:
    bench = Bench(version)
    write(bench, version)
    bench.call(bench.manager.prepare).result()
    return bench


def close(bench: Bench) -> None:
    bench.sender.close(KafkaError("closed"), bench.now_ms, bench.now_ms + 5_000)
    bench.turn()


def leave(bench: Bench, operation: CallOperation) -> None:
    """Interrupt a call, as Ctrl-C or a timeout does."""
    bench.manager.forget(PREPARE, operation, bench.now_ms)


def state(bench: Bench) -> TransactionState:
    return bench.manager.state


@pytest.mark.parametrize("version", [1, 2])
def test_what_is_prepared_is_certain_and_named(version: int) -> None:
    bench = Bench(version)
    first = bench.send_batch()
    bench.turn()
    if version == 1:
        bench.added()
    second = bench.send_batch()
    prepare = bench.call(bench.manager.prepare)
    bench.written()
    assert not prepare.is_done, "a batch is in flight"
    bench.written()
    assert first.done()
    assert second.done()
    assert prepare.result() == PREPARED._replace(transaction_version=version)
    assert not bench.requests
    assert pickle.loads(pickle.dumps(prepare.result())) == prepare.result()


def test_what_waits_to_be_filled_is_sent_at_once() -> None:
    bench = Bench(linger_ms=10_000)
    bench.send(partition=0)
    bench.turn()
    assert not bench.requests
    prepare = bench.call(bench.manager.prepare)
    bench.written()
    assert prepare.result() == PREPARED


def test_offsets_are_taken_before_a_transaction_is_prepared() -> None:
    bench = Bench()
    sent = bench.send_offsets()
    prepare = bench.call(bench.manager.prepare)
    bench.offsets_taken(NOT_COORDINATOR)
    bench.turn(2_000)
    assert not prepare.is_done
    bench.offsets_taken()
    sent.result()
    assert prepare.result() == PREPARED


def test_a_transaction_with_nothing_in_it_ends_instead() -> None:
    bench = Bench()
    prepare = bench.call(bench.manager.prepare)
    assert prepare.result() is None
    assert state(bench) is TransactionState.READY
    leave(bench, prepare)
    assert bench.call(bench.manager.prepare).result() is None
    assert isinstance(bench.call(bench.manager.prepare).error, TransactionStateError)
    bench.call(bench.manager.begin).result()
    assert not bench.requests


def test_what_was_not_written_has_the_transaction_aborted() -> None:
    bench = Bench()
    bench.send_batch()
    prepare = bench.call(bench.manager.prepare)
    bench.written(OUT_OF_ORDER)
    assert isinstance(prepare.error, TransactionAbortableError)
    assert str(prepare.error).startswith("prepare_transaction: the transaction cannot be")
    again = bench.call(bench.manager.prepare).error
    assert isinstance(again, TransactionAbortableError)
    abort = bench.call(bench.manager.abort)
    bench.ended(epoch=4)
    abort.result()


@pytest.mark.parametrize("error_code", [INVALID_PRODUCER_EPOCH, PRODUCER_FENCED])
def test_a_producer_that_is_fenced_prepares_nothing(error_code: int) -> None:
    bench = Bench(version=1)
    bench.send_batch()
    prepare = bench.call(bench.manager.prepare)
    bench.added(error_code)
    bench.turn(2_000)
    bench.added(error_code)
    assert isinstance(prepare.error, ProducerFencedError)
    assert bench.call(bench.manager.prepare).error is prepare.error


def test_nothing_is_taken_while_it_is_prepared_or_after() -> None:
    bench = Bench()
    bench.send_batch()
    bench.call(bench.manager.prepare)
    for text in ("prepare_transaction() has not ended", "the transaction is prepared"):
        assert not bench.fast_topics
        assert text in str(bench.refusal())
        assert text in str(bench.send_offsets().error)
        assert text in str(bench.call(bench.manager.begin).error)
        if state(bench) is TransactionState.PREPARING:
            for call in (bench.manager.commit, bench.manager.initialize):
                assert isinstance(bench.call(call).error, TransactionStateError)
            bench.written()
    assert state(bench) is TransactionState.PREPARED


def test_only_an_open_transaction_is_prepared() -> None:
    bench = Bench(is_open=False)
    assert "call init_transactions() first" in str(bench.call(bench.manager.prepare).error)
    bench.call(bench.manager.initialize)
    assert "init_transactions() has not ended" in str(bench.call(bench.manager.prepare).error)
    bench.identify(3)
    assert "call begin_transaction() first" in str(bench.call(bench.manager.prepare).error)
    for call, name in ((bench.manager.commit, "commit"), (bench.manager.abort, "abort")):
        bench.call(bench.manager.begin).result()
        write(bench)
        bench.call(call)
        refused = bench.call(bench.manager.prepare).error
        assert isinstance(refused, TransactionStateError)
        assert f"{name}_transaction() has not ended" in str(refused)
        bench.ended(epoch=3)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_commit", [True, False])
def test_the_producer_may_end_what_it_has_prepared(version: int, is_commit: bool) -> None:
    bench = prepared_bench(version)
    manager = bench.manager
    end = bench.call(manager.commit if is_commit else manager.abort)
    message = bench.the(EndTxnRequest)
    assert (message.producer_epoch, message.committed) == (3, is_commit)
    bench.ended(epoch=4 if version == 2 else -1)
    end.result()
    bench.call(manager.begin).result()


@pytest.mark.parametrize("version", [1, 2])
def test_the_next_transaction_has_an_identity_that_fences_the_last(version: int) -> None:
    bench = prepared_bench(version)
    initialized = bench.call(bench.manager.initialize)
    message = bench.the(InitProducerIdRequest)
    # As for a new producer: an open transaction is aborted.
    assert (message.producer_id, message.producer_epoch) == (-1, -1)
    assert "init_transactions() has not ended" in str(bench.refusal())
    bench.identify(7)
    initialized.result()
    bench.call(bench.manager.begin).result()
    assert bench.call(bench.manager.prepare).result() is None, "it was begun by the last one"
    bench.call(bench.manager.begin).result()
    bench.send_batch()
    bench.turn()
    if version == 1:
        bench.the(AddPartitionsToTxnRequest)
        bench.added()
    assert sequence_of(bench.requests[0]) == (PRODUCER_ID, 7, 0)
    prepare = bench.call(bench.manager.prepare)
    bench.written()
    assert prepare.result() == PreparedTransaction("x", PRODUCER_ID, 7, version)


def test_a_new_epoch_that_is_due_comes_before_what_is_prepared() -> None:
    bench = Bench(version=1)
    bench.send_batch()
    bench.turn()
    bench.added()
    bench.written()
    commit = bench.call(bench.manager.commit)
    bench.drop()
    bench.turn(200)
    bench.ended()
    commit.result()
    bench.call(bench.manager.begin).result()
    bench.send(partition=0)
    operation: CallOperation = Operation()
    bench.manager.prepare(operation, bench.now_ms)
    bench.identify(-1, NOT_COORDINATOR)
    bench.turn(2_000)
    assert bench.the(InitProducerIdRequest).producer_epoch == 3
    bench.identify(4)
    bench.added()
    bench.written()
    assert operation.result() == PreparedTransaction("x", PRODUCER_ID, 4, 1)


def test_it_is_made_again_to_see_how_it_ended() -> None:
    bench = Bench()
    bench.send_batch()
    left = bench.call(bench.manager.prepare)
    leave(bench, left)
    second, third = bench.call(bench.manager.prepare), bench.call(bench.manager.prepare)
    bench.written()
    assert not left.is_done
    for prepare in (second, third, bench.call(bench.manager.prepare)):
        assert prepare.result() == PREPARED


def test_an_abort_ends_what_is_being_prepared() -> None:
    bench = Bench()
    bench.send_batch()
    prepare = bench.call(bench.manager.prepare)
    abort = bench.call(bench.manager.abort)
    assert "abort_transaction() has not ended" in str(prepare.error)
    assert not bench.of(EndTxnRequest)
    bench.written()
    assert not bench.the(EndTxnRequest).committed
    bench.ended(epoch=4)
    abort.result()


def test_close_leaves_open_what_was_prepared_for_someone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = prepared_bench()
    close(bench)
    bench.turn(5_000)
    assert bench.is_settled()
    assert not bench.requests
    assert not caplog.records


def test_close_waits_for_what_a_call_prepares() -> None:
    bench = Bench()
    bench.send_batch()
    prepare = bench.call(bench.manager.prepare)
    close(bench)
    assert not bench.is_settled()
    bench.written()
    assert prepare.result() == PREPARED
    assert bench.is_settled()
    assert not bench.requests


@pytest.mark.parametrize("is_closed_first", [False, True])
def test_close_aborts_what_no_call_waits_for(is_closed_first: bool) -> None:
    bench = Bench()
    bench.send_batch()
    prepare = bench.call(bench.manager.prepare)
    if is_closed_first:
        close(bench)
    leave(bench, prepare)
    if not is_closed_first:
        close(bench)
    bench.turn()
    assert state(bench) is TransactionState.ABORTING
    bench.written()
    assert not bench.the(EndTxnRequest).committed
    bench.ended(epoch=4)
    assert bench.is_settled()


def test_close_aborts_what_no_call_has_returned() -> None:
    bench = Bench()
    bench.send_batch()
    prepare = bench.call(bench.manager.prepare)
    bench.written()
    leave(bench, prepare)  # interrupted between its end and its return
    close(bench)
    assert not bench.the(EndTxnRequest).committed
    bench.ended(epoch=4)
    assert bench.is_settled()


@pytest.mark.parametrize("is_called_before", [True, False])
def test_close_leaves_open_what_one_of_two_calls_has_returned(is_called_before: bool) -> None:
    bench = Bench()
    bench.send_batch()
    first = bench.call(bench.manager.prepare)
    if is_called_before:
        bench.call(bench.manager.prepare)
    bench.written()
    leave(bench, first)
    if not is_called_before:
        bench.call(bench.manager.prepare).result()
    close(bench)
    assert bench.is_settled()
    assert not bench.requests


def test_close_gives_up_what_is_not_prepared_in_its_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for is_two_phase in (False, True):
        bench = Bench(transaction_two_phase_commit_enable=is_two_phase)
        bench.send_batch()
        bench.call(bench.manager.prepare)
        close(bench)
        bench.turn(5_000)
        assert bench.is_settled()
    texts = (record.getMessage() for record in caplog.records)
    first, second = (text for text in texts if "has not ended in time" in text)
    assert "aborts it after transaction_timeout_ms=60000" in first
    assert "it stays open until a producer with the id calls init_transactions()" in second


def test_what_was_ended_elsewhere_the_other_way_is_said() -> None:
    bench = prepared_bench()
    commit = bench.call(bench.manager.commit)
    bench.fenced(INVALID_TXN_STATE)
    assert isinstance(commit.error, InvalidTxnStateError)
    assert "was prepared, and was ended elsewhere since" in str(commit.error)
    bench = Bench()
    write(bench)
    commit = bench.call(bench.manager.commit)
    bench.fenced(INVALID_TXN_STATE)
    assert "elsewhere" not in str(commit.error)


def test_what_was_prepared_is_not_said_of_the_next_transaction() -> None:
    bench = prepared_bench()
    bench.call(bench.manager.initialize)
    bench.identify(7)
    bench.call(bench.manager.begin).result()
    write(bench)
    commit = bench.call(bench.manager.commit)
    bench.fenced(INVALID_TXN_STATE)
    assert "elsewhere" not in str(commit.error)


@pytest.mark.parametrize("is_two_phase", [False, True])
def test_each_identity_takes_part_in_two_phase_commits_or_none(is_two_phase: bool) -> None:
    settings = {"transaction_two_phase_commit_enable": True} if is_two_phase else {}
    bench = Bench(version=1, is_open=False, **settings)

    def check_request() -> None:
        (request,) = bench.requests
        message = request.message
        assert isinstance(message, InitProducerIdRequest)
        assert request.max_version == (6 if is_two_phase else None)
        assert request.build is not None
        if is_two_phase:
            with pytest.raises(UnsupportedVersionError, match=r"unstable\.api\.versions\.enable"):
                request.build(5)
        built = request.build(6 if is_two_phase else 5)
        assert isinstance(built, InitProducerIdRequest)
        assert (built.enable2_pc, built.keep_prepared_txn) == (is_two_phase, False)
        assert built.transaction_timeout_ms == (2**31 - 1 if is_two_phase else 60_000)

    bench.call(bench.manager.initialize)
    check_request()
    bench.identify(3)
    bench.call(bench.manager.begin).result()
    bench.send_batch()
    bench.turn()
    bench.added()
    bench.written(OUT_OF_ORDER)
    bench.call(bench.manager.abort)
    bench.ended()
    check_request()  # of the epoch that follows
    bench.identify(4)


def test_brokers_that_refuse_two_phase_commits_are_explained() -> None:
    bench = Bench(is_open=False, transaction_two_phase_commit_enable=True)
    initialized = bench.call(bench.manager.initialize)
    bench.identify(-1, TransactionalIdAuthorizationFailedError.code)
    assert "transaction.two.phase.commit.enable=true for the brokers" in str(initialized.error)
    assert "TWO_PHASE_COMMIT" in str(initialized.error)


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("version", [1, 2])
def test_a_prepared_transaction_that_its_producer_ends_costs_an_epoch(
    version: int, *, is_commit: bool
) -> None:
    """The holder of a `PreparedTransaction` may repeat its end: it must not end the next one."""
    bench = prepared_bench(version)
    end = bench.call(bench.manager.commit if is_commit else bench.manager.abort)
    bench.ended(epoch=4 if version == 2 else -1)
    end.result()
    bench.call(bench.manager.begin).result()
    bench.send_batch()
    bench.turn()
    if version == 1:
        message = bench.the(InitProducerIdRequest)
        assert (message.producer_id, message.producer_epoch) == (PRODUCER_ID, 3)
        bench.identify(4)
        bench.added()
    assert sequence_of(bench.requests[0]) == (PRODUCER_ID, 4, 0)
