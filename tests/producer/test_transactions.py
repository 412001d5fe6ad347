"""Transactions, rule by rule: requests stay on the bench until the test responds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from pykclient.errors import (
    ClosedError,
    CommitFailedError,
    DeliveryTimeoutError,
    DisconnectedError,
    InvalidProducerIdMappingError,
    KafkaError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionalIdAuthorizationFailedError,
    TransactionStateError,
    UnsupportedVersionError,
)
from pykclient.network.broker.handshake import FinalizedFeatures
from pykclient.network.cluster.node import coordinator_id
from pykclient.network.manager import Operation
from pykclient.producer.sender.transaction_state import TransactionState
from pykclient.producer.sender.transactions import FEATURE
from pykclient.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
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
from pykclient.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pykclient.protocol.messages.produce import ProduceRequest
from pykclient.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from pykclient.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from tests.network.responding import respond_checked
from tests.producer.sender_bench import PRODUCER_ID, TOPIC, SenderBench, batches_of
from tests.producer.test_reentrance import Watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.accel import Delivery
    from pykclient.network.manager import Request
    from pykclient.producer.record import RecordMetadata
    from pykclient.producer.sender.call_under_way import CallOperation
    from pykclient.producer.sender.transactions import Transactions
    from pykclient.protocol.message import Message

    Call = Callable[[CallOperation, int], None]

MessageT = TypeVar("MessageT", bound="Message")

PARTITION = TopicPartition(TOPIC, 0)
GROUP = GroupMetadata("g", 5, "m")
OFFSETS = {TopicPartition("in", 0): OffsetAndMetadata(7)}
NOT_COORDINATOR, CONCURRENT_TRANSACTIONS, PRODUCER_FENCED = 16, 51, 90
UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID = 3, 100
INVALID_PRODUCER_EPOCH, OUT_OF_ORDER, ILLEGAL_GENERATION = 47, 45, 22
INVALID_PRODUCER_ID_MAPPING, OPERATION_NOT_ATTEMPTED, INVALID_TXN_STATE = 49, 55, 48


class Bench(SenderBench):
    """A producer in a transaction, unless `is_open` says otherwise."""

    def __init__(self, version: int = 2, *, is_open: bool = True, **settings: Any) -> None:
        super().__init__(transactional_id="x", **settings)
        self.client.features = FinalizedFeatures(1, {FEATURE: version})
        self.at_coordinator: list[int] = []
        self.lookup_count = 0
        if is_open:
            initialized = self.call(self.manager.initialize)
            self.identify(3)
            initialized.result()
            self.call(self.manager.begin).result()

    @property
    def manager(self) -> Transactions:
        assert self.transactions is not None
        return self.transactions

    def call(self, call: Call) -> CallOperation:
        """Start one of the application's calls, and make a turn."""
        operation: CallOperation = Operation()
        call(operation, self.now_ms)
        self.turn()
        return operation

    def send_offsets(self, group: GroupMetadata = GROUP) -> CallOperation:
        return self.call(lambda o, now_ms: self.manager.send_offsets(OFFSETS, group, o, now_ms))

    def turn(self, after_ms: int = 0) -> None:
        """Advance the clock and make turns until idle; coordinators are found at once."""
        self.now_ms += after_ms
        for _ in range(20):
            self.poll()
            self.run_user_calls()
            for request in self.of(FindCoordinatorRequest):
                assert isinstance(request.message, FindCoordinatorRequest)
                self.lookup_count += 1
                found = [
                    Coordinator(key=key, node_id=9, host="h", port=9)
                    for key in request.message.coordinator_keys
                ]
                self.take(request, FindCoordinatorResponse(coordinators=found))

    def of(self, kind: type[Message]) -> list[Request]:
        """Return the requests of a kind that have no response yet."""
        return [request for request in self.requests if isinstance(request.message, kind)]

    def the(self, kind: type[MessageT]) -> MessageT:
        """Return the one request that has no response yet, of this kind."""
        (request,) = self.requests
        assert isinstance(request.message, kind)
        return request.message

    def take(self, request: Request, response: Message) -> None:
        self.requests.remove(request)
        assert respond_checked(request, response, self.now_ms) is None

    def answer(self, response: Message, kind: type[Message] | None = None) -> None:
        """Respond to the only request, or to the only one of a kind; then make a turn."""
        (request,) = self.requests if kind is None else self.of(kind)
        self.take(request, response)
        self.turn()

    def identify(self, epoch: int, error_code: int = 0, *, producer_id: int = PRODUCER_ID) -> None:
        self.answer(
            InitProducerIdResponse(
                error_code=error_code, producer_id=producer_id, producer_epoch=epoch
            )
        )

    def written(self, error_code: int = 0) -> None:
        """Respond to the only Produce request."""
        (request,) = self.of(ProduceRequest)
        self.respond(request, error_code)
        self.turn()

    def ended(self, epoch: int = -1, error_code: int = 0) -> None:
        producer_id = PRODUCER_ID if epoch >= 0 else -1
        self.answer(
            EndTxnResponse(error_code=error_code, producer_id=producer_id, producer_epoch=epoch)
        )

    def fenced(self, error_code: int = PRODUCER_FENCED) -> None:
        """Reject an end as the coordinator does, then respond to the lookup that follows."""
        self.ended(error_code=error_code)
        self.turn(2_000)
        self.ended(error_code=error_code)

    def added(self, error_code: int = 0) -> None:
        part = AddPartitionsToTxnPartitionResult(0, error_code)
        topic = AddPartitionsToTxnTopicResult(TOPIC, [part])
        self.answer(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic]))

    def offsets_taken(self, error_code: int = 0) -> None:
        part = TxnOffsetCommitResponsePartition(0, error_code)
        topic = TxnOffsetCommitResponseTopic("in", partitions=[part])
        self.answer(TxnOffsetCommitResponse(topics=[topic]))

    def drop(self) -> None:
        """Break the connection of the only request."""
        (request,) = self.requests
        self.lose(request)
        self.turn()

    def is_settled(self) -> bool:
        return self.manager.is_settled

    def refusal(self) -> KafkaError:
        """Return the error that a send raises now."""
        with pytest.raises(KafkaError) as caught:
            self.append()
        return caught.value


def sequence_of(request: Request) -> tuple[int, int, int]:
    (batch,) = batches_of(request).values()
    assert batch.is_transactional
    return batch.producer_id, batch.producer_epoch, batch.base_sequence


def test_nothing_is_sent_outside_a_transaction() -> None:
    bench = Bench(is_open=False)
    assert "call init_transactions() first" in str(bench.refusal())
    initialized = bench.call(bench.manager.initialize)
    message = bench.the(InitProducerIdRequest)
    assert (message.transactional_id, message.transaction_timeout_ms) == ("x", 60_000)
    assert (message.producer_id, message.producer_epoch) == (-1, -1)
    bench.identify(0)
    initialized.result()
    assert "call begin_transaction() first" in str(bench.refusal())
    assert not bench.fast_topics
    bench.call(bench.manager.begin).result()
    assert bench.fast_topics
    bench.send()
    bench.call(bench.manager.commit)
    assert not bench.fast_topics
    assert "commit_transaction() has not ended" in str(bench.refusal())


def test_a_transaction_ends_when_no_request_of_it_is_out() -> None:
    bench = Bench()
    first = bench.send_batch()
    bench.send(partition=0)
    commit = bench.call(bench.manager.commit)
    assert not bench.of(EndTxnRequest)
    bench.written()
    assert not bench.of(EndTxnRequest)
    bench.written()
    assert first.done()
    message = bench.the(EndTxnRequest)
    assert (message.producer_id, message.producer_epoch) == (PRODUCER_ID, 3)
    assert message.committed
    assert not commit.is_done
    bench.ended(epoch=4)
    commit.result()


@pytest.mark.promise("`flush` waits for every record sent before it")
@pytest.mark.parametrize("version", [1, 2])
def test_no_record_slips_behind_a_flush_in_a_transaction(version: int) -> None:
    bench = Bench(version)
    operation: Operation[None] = Operation()
    deliveries: list[Delivery[RecordMetadata]] = []

    def another_thread() -> None:
        """Send and flush, after the sender has taken the new batches out of its mailbox."""
        if not deliveries:
            deliveries.append(bench.send(partition=0))
            bench.accumulator.flush(operation)

    bench.accumulator._mailbox.sealed = Watched(another_thread)
    bench.turn()
    done = [(operation.is_done, deliveries[0].done())]
    if version == 1:
        bench.added()
        done.append((operation.is_done, deliveries[0].done()))
    bench.written()
    assert not any(any(each) for each in done)
    assert operation.is_done
    assert deliveries[0].done()


def test_all_sequences_start_over_under_the_identity_of_endtxn() -> None:
    bench = Bench()
    bench.send_batch()
    assert sequence_of(bench.requests[0]) == (PRODUCER_ID, 3, 0)
    bench.written()
    commit = bench.call(bench.manager.commit)
    bench.ended(epoch=4)
    commit.result()
    bench.call(bench.manager.begin).result()
    for _ in range(2):
        bench.send_batch()
    # The broker knows the producer by now, and accepts only its first batch next.
    assert [sequence_of(request) for request in bench.requests] == [
        (PRODUCER_ID, 4, 0),
        (PRODUCER_ID, 4, 1),
    ]


def test_in_version_1_partitions_are_added_first_and_sequences_go_on() -> None:
    bench = Bench(version=1)
    bench.send_batch()
    bench.turn()
    message = bench.the(AddPartitionsToTxnRequest)
    assert bench.requests[0].max_version == 3
    (topic,) = message.v3_and_below_topics
    assert (topic.name, topic.partitions) == (TOPIC, [0])
    bench.added()
    (request,) = bench.requests
    assert isinstance(request.message, ProduceRequest)
    assert request.message.transactional_id == "x"
    assert request.max_version == 11
    bench.written()
    commit = bench.call(bench.manager.commit)
    assert bench.requests[0].max_version == 4
    bench.ended()
    commit.result()
    bench.call(bench.manager.begin).result()
    bench.send_batch()
    bench.turn()
    bench.added()
    assert sequence_of(bench.requests[0]) == (PRODUCER_ID, 3, 1)


def test_in_version_2_produce_adds_partitions_by_itself() -> None:
    bench = Bench()
    bench.send_batch()
    (request,) = bench.requests
    assert isinstance(request.message, ProduceRequest)
    assert request.max_version is None


def test_in_version_1_what_may_be_handled_late_costs_an_epoch() -> None:
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
    bench.send()
    bench.turn()
    message = bench.the(InitProducerIdRequest)
    assert (message.producer_id, message.producer_epoch) == (PRODUCER_ID, 3)
    bench.identify(4)
    bench.added()
    assert sequence_of(bench.requests[0]) == (PRODUCER_ID, 4, 0)


def test_a_batch_whose_time_runs_out_in_flight_has_the_transaction_aborted() -> None:
    bench = Bench(delivery_timeout_ms=1_000)
    delivery = bench.send_batch()
    commit = bench.call(bench.manager.commit)
    bench.turn(1_000)
    bench.turn(1)
    assert isinstance(delivery.exception(), DeliveryTimeoutError)
    assert isinstance(commit.error, TransactionAbortableError)
    assert isinstance(commit.error.__cause__, DeliveryTimeoutError)
    abort = bench.call(bench.manager.abort)
    assert not bench.of(EndTxnRequest)  # the batch may still be written
    bench.written()
    assert not bench.the(EndTxnRequest).committed
    bench.ended(epoch=4)
    abort.result()


def test_no_epoch_is_made_here() -> None:
    bench = Bench()
    first, second = bench.send_batch(), bench.send(partition=0)
    bench.written(OUT_OF_ORDER)
    assert isinstance(first.exception(), OutOfOrderSequenceNumberError)
    assert isinstance(second.exception(), TransactionAbortedError)
    assert isinstance(bench.refusal(), TransactionAbortableError)
    assert not bench.requests
    assert bench.manager.sequences.identity == (PRODUCER_ID, 3)
    abort = bench.call(bench.manager.abort)
    bench.ended(epoch=4)
    abort.result()
    bench.call(bench.manager.begin).result()
    bench.send_batch()
    assert sequence_of(bench.requests[0]) == (PRODUCER_ID, 4, 0)


def test_in_version_1_a_gap_in_a_sequence_is_ended_by_the_coordinator() -> None:
    bench = Bench(version=1)
    bench.send_batch()
    bench.turn()
    bench.added()
    bench.written(OUT_OF_ORDER)
    abort = bench.call(bench.manager.abort)
    bench.ended()
    abort.result()
    assert bench.the(InitProducerIdRequest).producer_epoch == 3
    bench.identify(4)
    assert bench.manager.sequences.identity == (PRODUCER_ID, 4)


def test_an_abort_waits_for_more_than_the_new_epoch_that_was_due() -> None:
    bench = Bench(version=1)
    bench.send_batch()
    bench.turn()
    bench.added()
    bench.written(OUT_OF_ORDER)
    abort = bench.call(bench.manager.abort)
    bench.ended()
    abort.result()
    bench.call(bench.manager.begin).result()
    aborted = bench.send(partition=0)
    operation: CallOperation = Operation()
    bench.manager.abort(operation, bench.now_ms)
    (request,) = bench.requests
    # The response comes before the turn that drops the records that were not sent.
    bench.take(request, InitProducerIdResponse(producer_id=PRODUCER_ID, producer_epoch=4))
    assert not operation.is_done
    bench.turn()
    operation.result()
    assert isinstance(aborted.exception(), TransactionAbortedError)
    bench.call(bench.manager.begin).result()
    assert not bench.requests


def test_a_new_epoch_is_due_also_when_the_brokers_have_begun_with_version_2_since() -> None:
    bench = Bench(version=1)
    bench.send_batch()
    bench.turn()
    bench.added()
    bench.written(OUT_OF_ORDER)
    bench.call(bench.manager.abort)
    (request,) = bench.requests
    bench.client.features = FinalizedFeatures(2, {FEATURE: 2})
    bench.take(request, EndTxnResponse())
    bench.call(bench.manager.begin).result()  # before there was a turn
    bench.send_batch()
    bench.identify(4)
    assert sequence_of(bench.requests[0]) == (PRODUCER_ID, 4, 0)


@pytest.mark.parametrize("version", [1, 2])
def test_a_transactional_id_that_brokers_have_dropped_costs_a_transaction(version: int) -> None:
    bench = Bench(version)
    bench.send_batch()
    bench.turn()
    if version == 1:
        bench.added(INVALID_PRODUCER_ID_MAPPING)
    else:
        bench.written(INVALID_PRODUCER_ID_MAPPING)
    error = bench.refusal()
    assert isinstance(error, TransactionAbortableError)
    assert isinstance(error.__cause__, InvalidProducerIdMappingError)
    abort = bench.call(bench.manager.abort)
    message = bench.the(InitProducerIdRequest)
    assert (message.producer_id, message.producer_epoch) == (PRODUCER_ID, 3)
    bench.identify(0, producer_id=PRODUCER_ID + 1)
    abort.result()
    bench.call(bench.manager.begin).result()
    bench.send_batch()
    bench.turn()
    if version == 1:
        bench.added()
    assert sequence_of(bench.requests[0]) == (PRODUCER_ID + 1, 0, 0)


def test_an_abort_gets_a_new_identity_where_the_transactional_id_was_dropped() -> None:
    bench = Bench()
    bench.send_batch()
    bench.written()
    abort = bench.call(bench.manager.abort)
    bench.ended(error_code=INVALID_PRODUCER_ID_MAPPING)
    for _ in range(2):
        bench.identify(-1, error_code=PRODUCER_FENCED)  # another producer has come in between
        bench.turn(2_000)
    assert isinstance(abort.error, ProducerFencedError)


def test_partitions_that_were_not_attempted_wait_for_the_back_off() -> None:
    bench = Bench(version=1)
    bench.send_batch()
    bench.turn()
    bench.added(OPERATION_NOT_ATTEMPTED)
    assert not bench.requests
    bench.turn(200)
    bench.added()
    assert bench.of(ProduceRequest)


def test_an_abort_drops_what_no_request_carries_and_waits_for_the_rest() -> None:
    bench = Bench(linger_ms=10_000)
    sent = bench.send(partition=0)
    bench.turn(10_000)
    waiting = bench.send(partition=0)
    abort = bench.call(bench.manager.abort)
    assert isinstance(waiting.exception(), TransactionAbortedError)
    assert not bench.of(EndTxnRequest)
    bench.lead(2)  # where it would be sent again at once
    (request,) = bench.of(ProduceRequest)
    bench.lose(request)
    bench.turn()
    assert isinstance(sent.exception(), TransactionAbortedError)  # and is not sent again
    assert not bench.the(EndTxnRequest).committed
    bench.ended(epoch=4)
    abort.result()


def test_what_fails_since_an_abort_has_dropped_what_came_before_is_aborted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.send_batch()
    bench.written()
    first = bench.send_batch()
    second = bench.send_batch()
    abort = bench.call(bench.manager.abort)
    one, two = bench.of(ProduceRequest)
    bench.respond(one, 6)  # NOT_LEADER_OR_FOLLOWER
    bench.turn()
    bench.respond(two, OUT_OF_ORDER)
    bench.turn()
    assert isinstance(first.exception(), TransactionAbortedError)
    error = second.exception()
    assert isinstance(error, TransactionAbortedError)
    assert isinstance(error.__cause__, OutOfOrderSequenceNumberError)
    bench.ended(epoch=4)
    abort.result()
    assert not caplog.records


def test_an_empty_transaction_sends_nothing() -> None:
    bench = Bench()
    bench.call(bench.manager.commit).result()
    bench.call(bench.manager.begin).result()
    bench.call(bench.manager.abort).result()
    assert not bench.requests


def test_fencing_is_final_and_says_who_did_it() -> None:
    bench = Bench()
    bench.send_batch()
    bench.written(INVALID_PRODUCER_EPOCH)
    assert isinstance(bench.refusal(), TransactionAbortableError)
    abort = bench.call(bench.manager.abort)
    bench.fenced()
    assert isinstance(abort.error, ProducerFencedError)
    assert "has called init_transactions() since" in str(abort.error)
    for call in (bench.manager.begin, bench.manager.commit, bench.manager.abort):
        assert bench.call(call).error is abort.error
    assert repr(bench.refusal()) == repr(abort.error)
    assert bench.sender.failure is abort.error
    assert not bench.requests


@pytest.mark.parametrize("code", [PRODUCER_FENCED, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE])
def test_a_coordinator_that_may_be_replaced_fences_nobody(code: int) -> None:
    """It hung, and responds with an outdated state; the others have another coordinator by now."""
    bench = Bench()
    bench.send_batch()
    bench.written()
    commit = bench.call(bench.manager.commit)
    count = bench.lookup_count
    bench.ended(error_code=code)
    assert not commit.is_done
    bench.turn(2_000)
    assert bench.lookup_count == count + 1
    bench.ended(epoch=4)
    commit.result()
    bench.call(bench.manager.begin).result()
    bench.send_batch()
    bench.written()
    commit = bench.call(bench.manager.commit)
    bench.ended(error_code=code)
    bench.turn(2_000)
    bench.ended(error_code=code)
    assert isinstance(commit.error, KafkaError)
    assert repr(bench.refusal()) == repr(commit.error)


def test_an_old_epoch_anywhere_at_a_coordinator_ends_the_producer() -> None:
    bench = Bench(version=1)
    bench.send_batch()
    bench.turn()
    bench.added(INVALID_PRODUCER_EPOCH)
    bench.turn(2_000)
    bench.added(INVALID_PRODUCER_EPOCH)
    assert isinstance(bench.refusal(), ProducerFencedError)


def test_a_commit_that_may_have_been_done_says_so() -> None:
    bench = Bench()
    bench.send_batch()
    bench.written()
    commit = bench.call(bench.manager.commit)
    bench.drop()
    bench.turn(200)
    bench.fenced()
    assert isinstance(commit.error, ProducerFencedError)
    assert "not known whether its last transaction was committed" in str(commit.error)


def test_the_time_out_is_named_where_it_has_fenced() -> None:
    bench = Bench(transaction_timeout_ms=5_000)
    bench.send_batch()
    bench.written()
    bench.now_ms += 5_000
    commit = bench.call(bench.manager.commit)
    bench.fenced()
    assert "was open for 7000 ms" in str(commit.error)
    assert "not known" not in str(commit.error)


@pytest.mark.parametrize(
    ("open_ms", "why"),
    [
        (5_000, r"exceeds transaction_timeout_ms=5000\. Create a new producer"),
        (1_000, r"has called init_transactions\(\) since\. Create a new producer"),
    ],
)
def test_a_commit_after_the_coordinator_s_own_abort_says_why(open_ms: int, why: str) -> None:
    """With version 2 the coordinator takes its epoch for that of a lost response."""
    bench = Bench(transaction_timeout_ms=5_000)
    bench.send_batch()
    bench.written()
    bench.now_ms += open_ms
    commit = bench.call(bench.manager.commit)
    bench.fenced(INVALID_TXN_STATE)
    assert isinstance(commit.error, ProducerFencedError)
    assert re.search(why, str(commit.error))
    assert "not known" not in str(commit.error)


def test_a_commit_whose_end_was_not_seen_refuses_all_but_itself() -> None:
    bench = Bench()
    bench.send_batch()
    bench.written()
    left = bench.call(bench.manager.commit)
    bench.manager.forget("commit_transaction", left, bench.now_ms)
    begin = bench.call(bench.manager.begin)
    assert "commit_transaction() has not ended" in str(begin.error)
    bench.ended(epoch=4)
    for call in (bench.manager.begin, bench.manager.abort):
        refused = bench.call(call).error
        assert isinstance(refused, TransactionStateError)
        assert "was interrupted or timed out" in str(refused)
    bench.call(bench.manager.commit).result()
    bench.call(bench.manager.begin).result()


def test_an_abort_or_a_begin_that_was_interrupted_can_be_made_again() -> None:
    bench = Bench()
    bench.send_batch()
    bench.written()
    left = bench.call(bench.manager.abort)
    bench.manager.forget("abort_transaction", left, bench.now_ms)
    bench.ended(epoch=4)
    bench.call(bench.manager.abort).result()
    left = bench.call(bench.manager.begin)
    bench.manager.forget("begin_transaction", left, bench.now_ms)
    bench.call(bench.manager.begin).result()
    assert isinstance(bench.call(bench.manager.begin).error, TransactionStateError)


def test_a_coordinator_that_has_moved_is_found_again() -> None:
    bench = Bench()
    bench.send_batch()
    bench.written()
    commit = bench.call(bench.manager.commit)
    count = bench.lookup_count
    bench.ended(error_code=NOT_COORDINATOR)
    bench.turn(2_000)
    assert bench.lookup_count == count + 1
    bench.ended(epoch=4)
    commit.result()


def test_the_last_transaction_is_waited_for_with_short_pauses() -> None:
    bench = Bench(version=1)
    bench.send_batch()
    bench.turn()
    pauses = []
    for _ in range(7):
        bench.added(CONCURRENT_TRANSACTIONS)
        start_ms = bench.now_ms
        while not bench.requests:
            bench.turn(1)
        pauses.append(bench.now_ms - start_ms)
    assert pauses == [1, 2, 4, 8, 16, 20, 20]


def test_a_topic_that_may_not_be_written_has_the_transaction_aborted() -> None:
    bench = Bench(version=1)
    delivery = bench.send_batch()
    bench.turn()
    bench.added(TopicAuthorizationFailedError.code)
    error = bench.refusal()
    assert isinstance(error, TransactionAbortableError)
    assert isinstance(error.__cause__, TopicAuthorizationFailedError)
    assert isinstance(delivery.exception(), TransactionAbortedError)
    abort = bench.call(bench.manager.abort)
    bench.ended(error_code=INVALID_TXN_STATE)  # the coordinator knows of no transaction
    abort.result()


def test_a_transactional_id_that_is_refused_is_final() -> None:
    bench = Bench(is_open=False)
    initialized = bench.call(bench.manager.initialize)
    bench.identify(-1, error_code=TransactionalIdAuthorizationFailedError.code)
    assert isinstance(initialized.error, TransactionalIdAuthorizationFailedError)
    assert "create a new producer" in str(initialized.error)
    assert bench.call(bench.manager.initialize).error is initialized.error


@pytest.mark.parametrize("version", [1, 2])
def test_offsets_go_to_the_group_s_coordinator_and_hold_up_the_end(version: int) -> None:
    bench = Bench(version)
    sent = bench.send_offsets()
    if version == 1:
        assert bench.the(AddOffsetsToTxnRequest).group_id == "g"
        bench.answer(AddOffsetsToTxnResponse())
    commit = bench.call(bench.manager.commit)
    (request,) = bench.requests
    assert request.node_id == coordinator_id(9)
    assert request.max_version == (4 if version == 1 else 5)  # without topic ids
    assert request.build is not None
    message = request.build(3)
    assert isinstance(message, TxnOffsetCommitRequest)
    assert message.generation_id_or_member_epoch == 5
    assert (message.group_id, message.member_id) == ("g", "m")
    assert message.topics[0].partitions[0].committed_offset == 7
    bench.offsets_taken(NOT_COORDINATOR)
    bench.turn(2_000)
    assert not sent.is_done
    bench.offsets_taken()
    sent.result()
    assert not commit.is_done
    bench.ended(epoch=4 if version == 2 else -1)
    commit.result()


def test_offsets_of_a_group_that_has_moved_on_have_the_transaction_aborted() -> None:
    bench = Bench()
    sent = bench.send_offsets()
    bench.offsets_taken(ILLEGAL_GENERATION)
    assert isinstance(sent.error, TransactionAbortableError)
    assert isinstance(sent.error.__cause__, CommitFailedError)
    assert isinstance(bench.call(bench.manager.commit).error, TransactionAbortableError)
    abort = bench.call(bench.manager.abort)
    bench.ended(epoch=4)
    abort.result()


@pytest.mark.parametrize("code", [UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID])
@pytest.mark.parametrize("is_committing", [False, True])
def test_offsets_of_a_topic_that_is_gone_have_the_transaction_aborted(
    code: int, is_committing: bool
) -> None:
    """The topic was deleted or recreated since its records were read.

    The coordinator never accepts its offsets, and a commit would wait without end.
    """
    bench = Bench(request_timeout_ms=5_000, delivery_timeout_ms=20_000)
    sent = bench.send_offsets()
    commit = bench.call(bench.manager.commit) if is_committing else None
    asked_ms = bench.now_ms
    while bench.requests and bench.now_ms < asked_ms + 4_000:
        bench.offsets_taken(code)
        bench.turn(max(bench.next_poll_ms - bench.now_ms, 1))
    assert not sent.is_done
    bench.turn(asked_ms + 5_000 - bench.now_ms)
    assert isinstance(sent.error, TransactionAbortableError)
    assert "request_timeout_ms" in str(sent.error)
    assert "in-0" in str(sent.error)
    if commit is not None:
        assert isinstance(commit.error, TransactionAbortableError)
    bench.offsets_taken(code)
    abort = bench.call(bench.manager.abort)
    bench.turn(2_000)
    bench.ended(epoch=4)
    abort.result()


def test_a_topic_that_the_coordinator_comes_to_know_holds_up_nothing() -> None:
    bench = Bench(request_timeout_ms=5_000)
    sent = bench.send_offsets()
    bench.offsets_taken(UNKNOWN_TOPIC_ID)
    bench.turn(2_000)
    bench.offsets_taken()
    sent.result()
    bench.turn(120_000)
    bench.call(bench.manager.commit)
    assert bench.the(EndTxnRequest).committed


@pytest.mark.parametrize("version", [1, 2])
def test_offsets_have_as_long_as_a_record(version: int) -> None:
    bench = Bench(version, delivery_timeout_ms=40_000)
    sent = bench.send_offsets()
    commit = bench.call(bench.manager.commit)
    assert bench.next_poll_ms == bench.now_ms + 40_000
    bench.turn(39_999)
    assert not sent.is_done
    bench.turn(1)
    for operation in (sent, commit):
        assert isinstance(operation.error, TransactionAbortableError)
        assert "delivery_timeout_ms" in str(operation.error)


def test_brokers_that_know_no_members_take_none() -> None:
    bench = Bench(version=1)
    bench.send_offsets()
    bench.answer(AddOffsetsToTxnResponse())
    (request,) = bench.requests
    assert request.build is not None
    with pytest.raises(UnsupportedVersionError, match="KIP-447"):
        request.build(2)
    assert bench.manager.state is TransactionState.IN_TRANSACTION


@pytest.mark.parametrize("is_failed", [False, True])
def test_close_aborts_what_is_open(is_failed: bool) -> None:
    bench = Bench()
    bench.send_batch()
    bench.written(OUT_OF_ORDER if is_failed else 0)
    waiting = bench.send_batch() if not is_failed else None
    bench.sender.close(KafkaError("closed"), bench.now_ms, bench.now_ms + 5_000)
    bench.turn()
    assert not bench.is_settled()
    if waiting is not None:
        bench.written()
    assert not bench.the(EndTxnRequest).committed
    bench.ended(epoch=4)
    assert bench.is_settled()


def test_close_finishes_a_commit_in_its_time() -> None:
    bench = Bench()
    bench.send_batch()
    bench.written()
    commit = bench.call(bench.manager.commit)
    bench.sender.close(KafkaError("closed"), bench.now_ms, bench.now_ms + 5_000)
    bench.turn()
    assert bench.the(EndTxnRequest).committed
    bench.turn(4_999)
    assert not bench.is_settled()
    assert bench.next_poll_ms == bench.now_ms + 1
    bench.turn(1)
    assert bench.is_settled()
    assert isinstance(commit.error, ClosedError)
    assert "commit_transaction" in str(commit.error)
    assert "not known" in str(commit.error)


def test_close_says_of_a_commit_that_no_coordinator_has_seen_that_it_is_none() -> None:
    bench = Bench()
    bench.send_batch()
    commit = bench.call(bench.manager.commit)
    bench.manager.close(bench.now_ms, bench.now_ms + 50)
    bench.turn(50)
    assert bench.is_settled()
    assert isinstance(commit.error, ClosedError)
    assert "not known" not in str(commit.error)
    assert "nothing of the transaction is committed" in str(commit.error)


def test_close_ends_an_initialization_that_has_not_ended() -> None:
    bench = Bench(is_open=False)
    initialization = bench.call(bench.manager.initialize)
    bench.sender.close(KafkaError("closed"), bench.now_ms, bench.now_ms)
    bench.turn()
    assert isinstance(initialization.error, ClosedError)
    assert "commit" not in str(initialization.error)


def test_close_aborts_a_commit_that_fails_meanwhile() -> None:
    bench = Bench()
    bench.send_batch()
    commit = bench.call(bench.manager.commit)
    bench.sender.close(KafkaError("closed"), bench.now_ms, bench.now_ms + 5_000)
    bench.turn()
    bench.written(OUT_OF_ORDER)
    assert isinstance(commit.error, TransactionAbortableError)
    assert not bench.the(EndTxnRequest).committed
    bench.ended(epoch=4)
    assert bench.is_settled()


def test_nothing_begins_after_close() -> None:
    bench = Bench()
    bench.call(bench.manager.commit).result()
    bench.sender.close(KafkaError("closed"), bench.now_ms, bench.now_ms + 5_000)
    assert isinstance(bench.call(bench.manager.begin).error, ClosedError)
    assert bench.is_settled()


def test_an_identity_that_can_be_none_is_a_broken_response() -> None:
    bench = Bench(is_open=False)
    bench.call(bench.manager.initialize)
    (request,) = bench.requests
    bench.requests.remove(request)
    broken = InitProducerIdResponse(producer_id=7, producer_epoch=-1)
    assert respond_checked(request, broken, bench.now_ms) is not None
    bench.turn(200)
    bench.identify(0)
    bench.call(bench.manager.begin).result()
    bench.send_batch()
    bench.written()
    bench.call(bench.manager.commit)
    (request,) = bench.requests
    bench.requests.remove(request)
    half = EndTxnResponse(producer_id=-1, producer_epoch=3)
    assert respond_checked(request, half, bench.now_ms) is not None


def test_a_lost_response_is_no_reason_to_abort() -> None:
    bench = Bench()
    sent = bench.send_offsets()
    (request,) = bench.requests
    bench.lose(request, DisconnectedError("lost"))
    bench.turn(200)
    bench.offsets_taken()
    sent.result()
    assert bench.manager.state is TransactionState.IN_TRANSACTION


def test_a_partition_that_is_not_known_is_refused_at_once_outside_a_transaction() -> None:
    bench = Bench(is_open=False)
    with pytest.raises(TransactionStateError, match="init_transactions"):
        bench.append(partition=7)
