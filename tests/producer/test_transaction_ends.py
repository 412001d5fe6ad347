"""Late events: while EndTxn is in flight, and after an end that was interrupted."""

from __future__ import annotations

import pytest

from pykclient.errors import (
    KafkaError,
    TransactionAbortableError,
    TransactionStateError,
    UnsupportedVersionError,
)
from pykclient.producer.sender.transaction_state import TransactionState
from pykclient.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from pykclient.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.producer.sender_bench import PRODUCER_ID
from tests.producer.test_transactions import OUT_OF_ORDER, Bench, sequence_of

RECREATED_ID = bytes(range(16, 32))


def write(bench: Bench, version: int) -> None:
    """Write a record in the transaction."""
    bench.send_batch()
    bench.turn()
    if version == 1:
        bench.added()
    bench.written()


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("version", [1, 2])
def test_a_topic_recreated_while_endtxn_is_in_flight_changes_nothing_of_the_end(
    version: int, *, is_commit: bool
) -> None:
    bench = Bench(version)
    write(bench, version)
    end = bench.call(bench.manager.commit if is_commit else bench.manager.abort)
    assert bench.the(EndTxnRequest).committed is is_commit
    bench.lead(1, topic_id=RECREATED_ID)
    bench.turn()
    assert not end.is_done
    if is_commit:
        late = bench.call(bench.manager.abort)
        assert isinstance(late.error, TransactionStateError)
        assert "commit_transaction() has not ended" in str(late.error)
    bench.ended(epoch=4 if version == 2 else -1)
    end.result()
    if version == 1:
        bench.identify(4)
    bench.call(bench.manager.begin).result()
    bench.send_batch()
    bench.turn()
    if version == 1:
        bench.added()
    assert sequence_of(bench.requests[0]) == (PRODUCER_ID, 4, 0)


@pytest.mark.parametrize("version", [1, 2])
def test_a_topic_recreated_before_endtxn_has_the_transaction_aborted(version: int) -> None:
    bench = Bench(version)
    write(bench, version)
    second = bench.send_batch()
    commit = bench.call(bench.manager.commit)
    bench.lead(1, topic_id=RECREATED_ID)
    bench.turn()
    assert isinstance(commit.error, TransactionAbortableError)
    assert "t-0: the topic was" in str(commit.error)
    bench.written()
    assert second.done()
    abort = bench.call(bench.manager.abort)
    bench.ended(epoch=4 if version == 2 else -1)
    abort.result()


def test_a_prepared_transaction_takes_no_abort_for_its_commit() -> None:
    """Another process may already commit it: no error may say that nothing is committed."""
    bench = Bench()
    write(bench, 2)
    bench.call(bench.manager.prepare).result()
    bench.lead(1, topic_id=RECREATED_ID)
    bench.turn()
    commit = bench.call(bench.manager.commit)
    bench.lead(1, topic_id=bytes(range(32, 48)))
    bench.turn()
    assert not commit.is_done
    bench.ended(epoch=4)
    commit.result()


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_commit_that_the_coordinator_has_aborted_is_abortable_unless_it_may_be_done(
    *, is_lost: bool
) -> None:
    bench = Bench()
    write(bench, 2)
    commit = bench.call(bench.manager.commit)
    if is_lost:
        bench.drop()
        bench.turn(200)
    bench.ended(error_code=TransactionAbortableError.code)
    if not is_lost:
        assert isinstance(commit.error, TransactionAbortableError)
        abort = bench.call(bench.manager.abort)
        bench.ended(epoch=4)
        abort.result()
    else:
        assert "not known whether its last transaction was committed" in str(commit.error)
        assert repr(bench.refusal()) == repr(commit.error)


def test_a_producer_that_fails_while_endtxn_is_in_flight_says_that_the_end_is_not_known() -> None:
    bench = Bench()
    write(bench, 2)
    commit = bench.call(bench.manager.commit)
    (request,) = bench.of(EndTxnRequest)
    bench.sender.fail(KafkaError("failed elsewhere"), bench.now_ms)
    assert "not known whether its last transaction was committed" in str(commit.error)
    bench.take(request, EndTxnResponse(producer_id=PRODUCER_ID, producer_epoch=4))
    bench.turn()
    assert bench.manager.state is TransactionState.FATAL_ERROR


@pytest.mark.parametrize("version", [1, 2])
def test_a_begin_waits_for_an_abort_that_was_left(version: int) -> None:
    """A block whose abort timed out can be run again at once."""
    bench = Bench(version)
    write(bench, version)
    left = bench.call(bench.manager.abort)
    bench.manager.forget("abort_transaction", left, bench.now_ms)
    begin = bench.call(bench.manager.begin)
    assert not begin.is_done
    bench.ended(epoch=4 if version == 2 else -1)
    begin.result()
    assert bench.manager.state is TransactionState.IN_TRANSACTION


def test_a_begin_does_not_wait_for_an_abort_that_another_call_waits_for() -> None:
    bench = Bench()
    write(bench, 2)
    abort = bench.call(bench.manager.abort)
    refused = bench.call(bench.manager.begin)
    assert isinstance(refused.error, TransactionStateError)
    assert "abort_transaction() has not ended" in str(refused.error)
    bench.ended(epoch=4)
    abort.result()


def test_a_begin_that_is_left_while_it_waits_begins_nothing() -> None:
    bench = Bench()
    write(bench, 2)
    left = bench.call(bench.manager.abort)
    bench.manager.forget("abort_transaction", left, bench.now_ms)
    begin = bench.call(bench.manager.begin)
    bench.manager.forget("begin_transaction", begin, bench.now_ms)
    bench.ended(epoch=4)
    assert not begin.is_done
    assert bench.manager.state is TransactionState.READY
    bench.call(bench.manager.begin).result()


def test_a_begin_that_waits_ends_with_the_producer() -> None:
    bench = Bench()
    write(bench, 2)
    left = bench.call(bench.manager.abort)
    bench.manager.forget("abort_transaction", left, bench.now_ms)
    begin = bench.call(bench.manager.begin)
    bench.fenced()
    assert isinstance(begin.error, KafkaError)
    assert bench.manager.state is TransactionState.FATAL_ERROR


def build_for(bench: Bench, version: int) -> InitProducerIdRequest:
    """Return the pending InitProducerId, for a broker that supports it up to a version."""
    (request,) = bench.of(InitProducerIdRequest)
    assert request.build is not None
    built = request.build(version)
    assert isinstance(built, InitProducerIdRequest)
    return built


def refuse_for(bench: Bench, version: int) -> None:
    """End the pending InitProducerId as a broker that supports it up to a version does."""
    (request,) = bench.of(InitProducerIdRequest)
    with pytest.raises(UnsupportedVersionError) as refused:
        build_for(bench, version)
    bench.lose(request, refused.value)
    bench.turn()


def test_brokers_before_2_5_commit_over_a_lost_response_and_the_producer_goes_on() -> None:
    """They return no new epoch: as in Java's client, the next transaction uses the old one."""
    bench = Bench(version=1)
    write(bench, 1)
    commit = bench.call(bench.manager.commit)
    bench.drop()
    bench.turn(200)
    bench.ended()
    commit.result()
    refuse_for(bench, 1)
    bench.call(bench.manager.begin).result()
    bench.send_batch()
    bench.turn()
    bench.added()
    assert sequence_of(bench.requests[0]) == (PRODUCER_ID, 3, 1)


def test_brokers_before_2_5_give_no_epoch_after_a_gap() -> None:
    bench = Bench(version=1)
    bench.send_batch()
    bench.turn()
    bench.added()
    bench.written(OUT_OF_ORDER)
    abort = bench.call(bench.manager.abort)
    bench.ended()
    abort.result()
    refuse_for(bench, 1)
    assert isinstance(bench.refusal(), UnsupportedVersionError)
    assert bench.manager.state is TransactionState.FATAL_ERROR


def test_brokers_before_2_5_give_a_new_identity_after_what_was_prepared() -> None:
    bench = Bench(version=1)
    write(bench, 1)
    bench.call(bench.manager.prepare).result()
    commit = bench.call(bench.manager.commit)
    bench.ended()
    commit.result()
    built = build_for(bench, 1)
    assert (built.producer_id, built.producer_epoch) == (-1, -1)
    newer = build_for(bench, 3)
    assert (newer.producer_id, newer.producer_epoch) == (PRODUCER_ID, 3)


@pytest.mark.parametrize("is_aborting", [False, True])
@pytest.mark.parametrize("code", [31, 35, 53, 90])
def test_a_delivery_that_ends_the_producer_is_fatal(code: int, *, is_aborting: bool) -> None:
    """Each later call is fatal as well; otherwise a service that checks `fatal` would retry."""
    bench = Bench()
    delivery = bench.send()
    bench.turn()
    if is_aborting:
        bench.call(bench.manager.abort)
    bench.written(error_code=code)
    error = delivery.exception(0)
    assert isinstance(error, KafkaError)
    assert error.fatal
    assert bench.refusal().fatal


def test_a_delivery_that_costs_the_transaction_alone_is_not_fatal() -> None:
    bench = Bench()
    delivery = bench.send()
    bench.turn()
    bench.written(error_code=10)  # MESSAGE_TOO_LARGE
    error = delivery.exception(0)
    assert isinstance(error, KafkaError)
    assert not error.fatal
