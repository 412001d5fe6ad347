"""Records that `send` or a bulk call could not accept inside a transaction.

Goal: no commit leaves them out. Method: a whole producer without sockets and threads; for other
threads' actions, the state machine on the bench.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from pykclient.errors import (
    BatchDeliveryError,
    BufferExhaustedError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    SerializationError,
    TransactionAbortableError,
    TransactionStateError,
    UsageError,
)
from pykclient.network.cluster.cluster import NO_TOPIC_ID
from pykclient.network.manager import Operation
from pykclient.producer.accumulator.acceptance import BulkCall
from pykclient.producer.sender.transaction_state import TransactionState
from pykclient.producer.sender.transactions import BULK_LOOK_MS, Transactions
from pykclient.producer.transaction import Transaction, TransactionCalls
from pykclient.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from pykclient.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from pykclient.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pykclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from tests.producer.scripted_producer import ScriptedBulkProducer
from tests.producer.test_transaction_ends import write
from tests.producer.test_transactions import Bench
from tests.signal_at_line import Alarm, SignalAtLine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.producer.sender.call_under_way import CallOperation
    from pykclient.protocol.message import Message

GOES_AROUND_NOTHING = pytest.mark.promise(
    "no transaction commits without a record that was not accepted"
)
ROW_COUNT = 500
ROW_BYTES = 1_000
LINES_MAX = 100_000
SETTINGS: dict[str, Any] = {
    "buffer_memory": 64_000,
    "batch_size": 8_000,
    "max_request_size": 40_000,
    "max_block_ms": 200,
    "linger_ms": 10_000,
}


class TransactionalProducer(ScriptedBulkProducer):
    """A producer whose broker is also the coordinator; `ends` are the EndTxn that it handled."""

    def __init__(self, **settings: Any) -> None:
        self.ends: list[bool] = []
        super().__init__(transactional_id="x", **SETTINGS | settings)
        self.calls = TransactionCalls(self.core)
        self.await_metadata("t")
        self.calls.initialize()

    def _response_to(self, message: Message) -> Message | None:
        if isinstance(message, FindCoordinatorRequest):
            found = [
                Coordinator(key=key, node_id=1, host="localhost", port=9092)
                for key in message.coordinator_keys
            ]
            return FindCoordinatorResponse(coordinators=found)
        if isinstance(message, AddPartitionsToTxnRequest):
            topics = [
                AddPartitionsToTxnTopicResult(
                    topic.name,
                    [AddPartitionsToTxnPartitionResult(number, 0) for number in topic.partitions],
                )
                for topic in message.v3_and_below_topics
            ]
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
        if isinstance(message, EndTxnRequest):
            self.ends.append(message.committed)
            if not self.is_v2:
                return EndTxnResponse()
            return EndTxnResponse(producer_id=7, producer_epoch=len(self.ends))
        response = super()._response_to(message)
        if isinstance(message, ProduceRequest) and not self.is_v2:
            assert isinstance(response, ProduceResponse)
            for sent, topic in zip(message.topic_data, response.responses, strict=True):
                topic.name, topic.topic_id = sent.name, NO_TOPIC_ID
        return response

    @property
    def is_v2(self) -> bool:
        assert self.core.transactions is not None
        return self.core.transactions.is_v2

    def while_brokers_hang(self, call: Callable[[], object]) -> None:
        self.makes_turns = False
        try:
            call()
        finally:
            self.makes_turns = True


@pytest.fixture(params=[1, 2])
def producer(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> TransactionalProducer:
    if request.param == 2:
        monkeypatch.setattr(
            Transactions, "_learn_version", lambda manager: setattr(manager, "is_v2", True)
        )
    return TransactionalProducer()


def too_many() -> list[bytes | None]:
    return [bytes(ROW_BYTES)] * ROW_COUNT


def send_half(producer: TransactionalProducer, kind: str) -> None:
    """Send in bulk until the memory is full."""
    delivery = None

    def send() -> None:
        nonlocal delivery
        if kind == "batch":
            delivery = producer.send_batch("t", too_many(), partition=0)
        else:
            pa = pytest.importorskip("pyarrow")
            delivery = producer.send_arrow("t", pa.table({"value": too_many()}))

    producer.while_brokers_hang(send)
    assert delivery is not None
    producer.turn(5, after_ms=1)
    error = delivery.exception(0) if delivery.done() else None
    assert error is None or isinstance(error, BatchDeliveryError)


@GOES_AROUND_NOTHING
@pytest.mark.parametrize("end", ["commit", "prepare"])
@pytest.mark.parametrize("kind", ["batch", "arrow"])
def test_a_bulk_call_that_stops_half_way_has_the_transaction_aborted(
    producer: TransactionalProducer, kind: str, end: str
) -> None:
    producer.calls.begin()
    producer.send("t", b"first", partition=0)
    producer.turn(10, after_ms=11_000)
    send_half(producer, kind)
    with pytest.raises(TransactionAbortableError) as refused:
        getattr(producer.calls, end)()
    assert isinstance(refused.value.__cause__, BufferExhaustedError)
    assert producer.ends == []
    producer.calls.abort()
    assert producer.ends == [False]
    with Transaction(producer.calls):
        producer.send("t", b"again", partition=0)
    assert producer.ends == [False, True]


@GOES_AROUND_NOTHING
def test_a_bulk_call_one_by_one_that_stops_half_way_has_the_transaction_aborted() -> None:
    class Interceptor:
        def on_send(self, record: Any) -> Any:
            return record

        def on_acknowledgement(self, metadata: object, error: object) -> None:
            pass

    producer = TransactionalProducer(interceptors=[Interceptor()])
    producer.calls.begin()
    send_half(producer, "batch")
    with pytest.raises(TransactionAbortableError) as refused:
        producer.calls.commit()
    assert isinstance(refused.value.__cause__, BufferExhaustedError)
    assert producer.ends == []


@GOES_AROUND_NOTHING
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, ZeroDivisionError])
def test_a_bulk_call_that_is_interrupted_has_the_transaction_aborted(
    producer: TransactionalProducer,
    monkeypatch: pytest.MonkeyPatch,
    interrupt: type[BaseException],
) -> None:
    producer.calls.begin()
    real = producer.core.append_rows
    count = 0

    def append_rows(*args: Any) -> Any:
        nonlocal count
        count += 1
        if count == 2:
            raise interrupt
        return real(*args)

    monkeypatch.setattr(producer.core, "append_rows", append_rows)
    with pytest.raises(interrupt):
        producer.send_batch("t", too_many(), partition=0)
    with pytest.raises(TransactionAbortableError, match=interrupt.__name__):
        producer.calls.commit()
    assert producer.ends == []


@GOES_AROUND_NOTHING
def test_an_interrupt_of_the_end_of_a_torn_bulk_call_holds_up_no_transaction(
    producer: TransactionalProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E.g. a second Ctrl-C: no line at the end of such a call may be skipped."""
    real = producer.core.append_rows
    appended: list[object] = []

    def append_rows(*args: Any) -> Any:
        if appended:
            raise BufferExhaustedError("no memory")
        appended.append(real(*args))
        return appended[0]

    def send(number: int) -> SignalAtLine:
        appended.clear()
        at = SignalAtLine(number, Alarm())
        with contextlib.suppress(Alarm), at:
            producer.send_batch("t", too_many(), partition=0)
        return at

    monkeypatch.setattr(producer.core, "append_rows", append_rows)
    line_count = 0
    for _ in range(2):  # the first call has more to do
        producer.calls.begin()
        line_count = LINES_MAX - send(LINES_MAX).left_count
        producer.calls.abort()
    places = set()
    for number in range(line_count - 40, line_count):
        producer.calls.begin()
        places.add(send(number).place)
        with pytest.raises(TransactionAbortableError):
            producer.calls.commit()
        producer.calls.abort()
    assert len(places) > 20
    assert True not in producer.ends


def test_an_end_looks_again_whether_bulk_calls_have_ended() -> None:
    """The wake-up of a call that was interrupted may be missing."""
    bench = Bench()
    write(bench, 2)
    call = BulkCall()
    bench.accumulator.acceptance.bulk_calls[call] = None
    bench.call(bench.manager.commit)
    assert bench.manager.poll(bench.now_ms).next_poll_ms == bench.now_ms + BULK_LOOK_MS
    call.has_ended, call.is_torn = True, False
    bench.turn(BULK_LOOK_MS)
    bench.the(EndTxnRequest)


@GOES_AROUND_NOTHING
def test_a_send_without_memory_has_the_transaction_aborted(producer: TransactionalProducer) -> None:
    producer.calls.begin()

    def send() -> None:
        for _ in range(ROW_COUNT):
            producer.send("t", bytes(ROW_BYTES), partition=0)

    with pytest.raises(BufferExhaustedError) as raised:
        producer.while_brokers_hang(send)
    with pytest.raises(TransactionAbortableError) as refused:
        producer.calls.commit()
    assert refused.value.__cause__ is raised.value
    assert producer.ends == []


@GOES_AROUND_NOTHING
@pytest.mark.parametrize(
    ("send", "expected"),
    [
        (lambda p: p.send("unknown", b"v"), KafkaTimeoutError),
        (lambda p: p.send("t", b"v", partition=9), KafkaTimeoutError),
        (lambda p: p.send_batch("unknown", [b"v"]), KafkaTimeoutError),
        (lambda p: p.send("t", bytes(50_000)), RecordTooLargeError),
        (lambda p: p.send_batch("t", [b"v", bytes(50_000)]), RecordTooLargeError),
    ],
    ids=["metadata", "partition", "metadata of a bulk call", "size", "size in a bulk call"],
)
def test_a_record_that_no_topic_takes_has_the_transaction_aborted(
    producer: TransactionalProducer,
    send: Callable[[TransactionalProducer], object],
    expected: type[KafkaError],
) -> None:
    """As in Java: an `ApiException` of `send` makes the transaction abortable."""
    producer.calls.begin()
    producer.send("t", b"first", partition=0)
    with pytest.raises(expected) as raised:
        producer.while_brokers_hang(lambda: send(producer))
    with pytest.raises(TransactionAbortableError) as refused:
        producer.calls.commit()
    assert refused.value.__cause__ is raised.value
    producer.calls.abort()
    with Transaction(producer.calls):
        producer.send("t", b"again", partition=0)
    assert producer.ends[-1] is True


@pytest.mark.parametrize(
    ("send", "expected"),
    [
        (lambda p: p.send("t", 7), SerializationError),
        (lambda p: p.send("t", b"v", partition=-3), UsageError),
        (lambda p: p.send_batch("t", [b"v", 7]), SerializationError),
        (lambda p: p.send_batch("t", [b"v"], keys=[b"a", b"b"]), UsageError),
    ],
)
def test_a_call_that_refuses_its_arguments_leaves_the_transaction_as_it_is(
    producer: TransactionalProducer,
    send: Callable[[TransactionalProducer], object],
    expected: type[KafkaError],
) -> None:
    """As in Java, a serializer's error or an illegal argument is raised to the caller only."""
    producer.calls.begin()
    producer.send("t", b"first", partition=0)
    with pytest.raises(expected):
        send(producer)
    producer.calls.commit()
    assert producer.ends == [True]


def test_what_was_refused_outside_a_transaction_breaks_no_later_one(
    producer: TransactionalProducer,
) -> None:
    for _ in range(2):
        with pytest.raises(TransactionStateError):
            producer.send("t", b"v")
        with pytest.raises(TransactionStateError):
            producer.send_batch("t", [b"v"])
        with Transaction(producer.calls):
            producer.send("t", b"v", partition=0)
    assert producer.ends == [True, True]


@GOES_AROUND_NOTHING
@pytest.mark.parametrize("is_half", [False, True])
def test_an_end_waits_for_bulk_calls_of_other_threads(*, is_half: bool) -> None:
    """Otherwise the rest of a call would be in the next transaction, or in none."""
    bench = Bench()
    write(bench, 2)
    acceptance = bench.accumulator.acceptance
    call = BulkCall()
    acceptance.bulk_calls[call] = None
    commit = bench.call(bench.manager.commit)
    assert not commit.is_done
    assert not bench.requests
    call.error = bench.refusal() if is_half else None
    call.is_torn = is_half
    call.has_ended = True
    bench.turn()
    if is_half:
        assert isinstance(commit.error, TransactionAbortableError)
        assert "commit_transaction() has not ended" in str(commit.error)
        assert not bench.requests
    else:
        bench.ended(epoch=4)
        commit.result()


@GOES_AROUND_NOTHING
def test_a_bulk_call_that_ends_during_the_turn_is_not_committed() -> None:
    """Another thread ends it between the turn's first check and the decision to commit."""
    bench = Bench()
    write(bench, 2)
    acceptance = bench.accumulator.acceptance
    call = BulkCall()

    class Ending(dict[BulkCall, None]):
        def __iter__(self) -> Iterator[BulkCall]:
            yield from super().__iter__()
            call.has_ended = is_turn_begun  # behind the first look of the turn

    acceptance.bulk_calls = Ending({call: None})
    is_turn_begun = False
    operation: CallOperation = Operation()
    bench.manager.commit(operation, bench.now_ms)
    is_turn_begun = True
    bench.turn()
    assert isinstance(operation.error, TransactionAbortableError)
    assert not bench.requests


@pytest.mark.parametrize("is_prepared", [False, True])
def test_what_fails_once_the_commit_is_requested_comes_too_late(*, is_prepared: bool) -> None:
    bench = Bench()
    write(bench, 2)
    if is_prepared:
        bench.call(bench.manager.prepare).result()
    commit = bench.call(bench.manager.commit)
    bench.accumulator.acceptance.fail(BufferExhaustedError("no memory"))
    bench.turn()
    bench.ended(epoch=4)
    commit.result()
    bench.call(bench.manager.begin).result()
    assert bench.manager.state is TransactionState.IN_TRANSACTION


def test_offsets_are_refused_after_a_record_that_was_not_accepted() -> None:
    bench = Bench()
    bench.accumulator.acceptance.fail(BufferExhaustedError("no memory"))
    assert isinstance(bench.send_offsets().error, TransactionAbortableError)


def test_a_handler_on_top_of_a_bulk_call_is_refused_to_end_its_transaction(
    producer: TransactionalProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait for the call that it has interrupted."""
    producer.calls.begin()
    real = producer.core.append_rows
    refused: list[str] = []

    def append_rows(*args: Any) -> Any:
        for call in (producer.calls.commit, producer.calls.abort, producer.calls.prepare):
            with pytest.raises(UsageError) as raised:
                call()
            refused.append(str(raised.value))
        assert producer.core.accumulator.acceptance.is_in_bulk_call()
        return real(*args)

    monkeypatch.setattr(producer.core, "append_rows", append_rows)
    producer.send_batch("t", [b"a", b"b"], partition=0)
    assert len(refused) == 3
    assert "send_batch" in refused[0]
    assert not producer.core.accumulator.acceptance.is_in_bulk_call()
    producer.calls.commit()
    assert producer.ends == [True]
