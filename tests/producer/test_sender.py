"""Sender: what goes into requests, and what each kind of answer does to its batches."""

from __future__ import annotations

import pytest

from pykclient.errors import (
    ClosedError,
    ClusterAuthorizationFailedError,
    DecodeError,
    DeliveryTimeoutError,
    DisconnectedError,
    InvalidRecordError,
    KafkaError,
    KafkaTimeoutError,
    MessageTooLargeError,
    NotLeaderOrFollowerError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    error_for_code,
)
from pykclient.network.cluster import Cluster, PartitionInfo, TopicInfo
from pykclient.network.manager import Operation
from pykclient.producer.record import RecordMetadata
from pykclient.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
)
from pykclient.types import Node, TopicPartition
from tests.producer.sender_bench import TOPIC, SenderBench, batches_of, values_of

PARTITION = TopicPartition(TOPIC, 0)

RETRIABLE = [2, 3, 5, 6, 7, 13, 19, 20, 56, 74, 75, 100, 103]
"""CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER,
REQUEST_TIMED_OUT, NETWORK_EXCEPTION, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND,
KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, UNKNOWN_TOPIC_ID,
INCONSISTENT_TOPIC_ID."""

FINAL = [-1, 10, 17, 18, 21, 29, 32, 35, 43, 44, 47, 76, 87]
"""UNKNOWN_SERVER_ERROR, MESSAGE_TOO_LARGE, INVALID_TOPIC, RECORD_LIST_TOO_LARGE,
INVALID_REQUIRED_ACKS, TOPIC_AUTHORIZATION_FAILED, INVALID_TIMESTAMP, UNSUPPORTED_VERSION,
UNSUPPORTED_FOR_MESSAGE_FORMAT, POLICY_VIOLATION, INVALID_PRODUCER_EPOCH,
UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD."""

MAY_BE_WRITTEN = {3, 5, 6, 7, 13, 20, 56, 74, 75, 100, 103}


# Requests.


def test_one_request_per_node_carries_a_batch_of_each_partition() -> None:
    bench = SenderBench(leaders=(1, 2, 1), acks=-1)
    for partition in range(3):
        bench.send(b"p%d" % partition, partition=partition)
    requests = {request.node_id: request for request in bench.poll()}
    assert {node_id: sorted(batches_of(r)) for node_id, r in requests.items()} == {
        1: [(TOPIC, 0), (TOPIC, 2)],
        2: [(TOPIC, 1)],
    }
    message = requests[1].message
    assert isinstance(message, ProduceRequest)
    assert (message.acks, message.timeout_ms, message.transactional_id) == (-1, 30_000, None)
    assert len(message.topic_data) == 1
    assert message.topic_data[0].topic_id == bytes(range(16))
    assert requests[1].max_version is None
    assert requests[1].expects_response


def test_a_topic_without_an_id_is_named_in_a_version_that_has_names() -> None:
    bench = SenderBench()
    info = TopicInfo(TOPIC, bytes(16), False, (PartitionInfo(TOPIC, 0, 1, 1),))
    bench.learn(Cluster(nodes=[Node(1, "localhost", 9_001)], topics=[info]))
    bench.send()
    (request,) = bench.poll()
    assert request.max_version == 12


def test_batches_carry_the_producers_identity_and_their_sequence() -> None:
    bench = SenderBench(batch_size_bytes=100)
    bench.send(bytes(50))
    bench.send(bytes(50))
    sequences = []
    for _ in range(2):
        (request,) = bench.poll()
        batch = batches_of(request)[PARTITION]
        sequences.append((batch.producer_id, batch.producer_epoch, batch.base_sequence))
        bench.answer(request)
    assert sequences == [(7, 0, 0), (7, 0, 1)]


def test_without_idempotence_batches_have_no_identity() -> None:
    bench = SenderBench(is_idempotent=False)
    bench.send()
    (request,) = bench.poll()
    batch = batches_of(request)[PARTITION]
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)


def test_nothing_is_sent_before_there_is_a_producer_id() -> None:
    bench = SenderBench(has_producer_id=False)
    bench.send()
    bench.sender.poll(bench.now_ms)
    bench.give_producer_id()
    assert len(bench.poll()) == 1


def test_what_is_sent_keeps_its_topic_from_being_forgotten() -> None:
    bench = SenderBench()
    bench.send_batch()
    assert bench.metadata.added == [TOPIC]


def test_a_node_that_is_not_ready_is_connected_to_and_asked_again() -> None:
    bench = SenderBench()
    bench.nodes.unready.add(1)
    bench.send()
    assert bench.poll() == []
    assert bench.nodes.connected == [1]
    assert bench.next_poll_ms == bench.now_ms + 50
    bench.nodes.unready.clear()
    assert len(bench.poll()) == 1


def test_more_for_the_same_node_is_sent_in_the_next_turn_at_once() -> None:
    bench = SenderBench(leaders=(1, 1), max_request_size=1_000, batch_size_bytes=1_000)
    for partition in (0, 1):
        bench.send(bytes(700), partition=partition)
    assert len(bench.poll()) == 1
    assert bench.next_poll_ms == bench.now_ms
    assert len(bench.poll()) == 1
    assert bench.next_poll_ms > bench.now_ms


def test_what_lingers_behind_a_full_batch_is_sent_when_its_own_time_has_come() -> None:
    bench = SenderBench(batch_size_bytes=1_000, linger_ms=10)
    bench.send(bytes(920))
    bench.send(b"behind")
    (full,) = bench.poll()
    bench.answer(full)
    assert bench.next_poll_ms == bench.now_ms + 10
    assert [values_of(request) for request in bench.poll(after_ms=10)] == [[b"behind"]]


def test_a_partition_without_a_leader_asks_for_metadata_and_goes_when_it_has_one() -> None:
    bench = SenderBench(leaders=(None,))
    bench.send()
    assert bench.poll() == []
    assert bench.metadata.update_count == 1
    bench.lead(2)
    assert [request.node_id for request in bench.poll()] == [2]


def test_one_request_in_flight_keeps_the_order_without_idempotence() -> None:
    bench = SenderBench(is_idempotent=False, in_flight_max=1, batch_size_bytes=100)
    bench.send(bytes(50))
    bench.send(bytes(50))
    (first,) = bench.poll()
    bench.lead(2)  # another connection, which is free
    assert bench.poll() == []
    bench.answer(first)
    assert [request.node_id for request in bench.poll()] == [2]


def test_a_node_that_takes_nothing_for_too_long_loses_records_without_a_key() -> None:
    bench = SenderBench(leaders=(1, 2), availability_timeout_ms=100, batch_size_bytes=1)
    bench.nodes.unready.add(1)
    bench.send(partition=0)
    bench.poll()
    bench.poll(after_ms=101)
    bench.send(partition=None)
    for _ in range(10):
        assert bench.send(partition=None).batch.partition.partition == 1  # type: ignore[union-attr]
    bench.nodes.unready.clear()
    bench.poll()
    bench.poll(after_ms=20)
    later = {
        bench.send(partition=None).batch.partition.partition  # type: ignore[union-attr]
        for _ in range(50)
    }
    assert later == {0, 1}


# Success.


def test_a_written_batch_tells_its_records_their_offsets() -> None:
    bench = SenderBench()
    deliveries = [bench.send() for _ in range(3)]
    (request,) = bench.poll()
    bench.answer(request, base_offset=40)
    assert [delivery.result() for delivery in deliveries] == [
        RecordMetadata(TOPIC, 0, offset, 5_000) for offset in (40, 41, 42)
    ]
    assert bench.pool.free_bytes == bench.pool.size_bytes


def test_the_brokers_time_is_told_where_it_counts() -> None:
    bench = SenderBench()
    delivery = bench.send_batch()
    answer = PartitionProduceResponse(index=0, base_offset=4, log_append_time_ms=9_999)
    bench.answer_each(bench.requests[0], {PARTITION: answer})
    assert delivery.result().timestamp_ms == 9_999


def test_without_acknowledgements_sent_is_all_there_is_to_know() -> None:
    bench = SenderBench(acks=0, is_idempotent=False)
    delivery = bench.send_batch()
    (request,) = bench.requests
    assert not request.expects_response
    request.on_response(None, bench.now_ms)
    assert delivery.result().offset is None
    assert bench.pool.free_bytes == bench.pool.size_bytes


def test_a_duplicate_is_a_success_at_an_unknown_offset() -> None:
    bench = SenderBench()
    delivery = bench.send_batch()
    bench.lose(bench.requests[0])
    (request,) = bench.poll(after_ms=100)
    bench.answer(request, error_code=46)
    assert delivery.result().offset is None


# Retries.


@pytest.mark.parametrize("code", RETRIABLE)
@pytest.mark.parametrize("is_idempotent", [True, False])
def test_a_retriable_error_is_retried_after_a_growing_pause(code: int, is_idempotent: bool) -> None:
    bench = SenderBench(is_idempotent=is_idempotent)
    delivery = bench.send_batch(b"again")
    for pause_ms in (100, 200, 400, 800, 1_000, 1_000):
        bench.answer(bench.requests[0], error_code=code)
        assert not delivery.done()
        assert bench.poll(after_ms=pause_ms - 1) == []
        (request,) = bench.poll(after_ms=1)
        assert values_of(request) == [b"again"]
        if is_idempotent:
            assert batches_of(request)[PARTITION].base_sequence == 0
    bench.answer(bench.requests[0], base_offset=3)
    assert delivery.result().offset == 3


@pytest.mark.parametrize("code", FINAL)
def test_a_final_error_fails_the_delivery_with_its_own_class(code: int) -> None:
    bench = SenderBench()
    delivery = bench.send_batch()
    bench.answer(bench.requests[0], error_code=code)
    assert type(delivery.exception()) is type(error_for_code(code))
    assert "t-0" in str(delivery.exception())
    assert bench.poll(after_ms=10_000) == []
    assert bench.pool.free_bytes == bench.pool.size_bytes


@pytest.mark.parametrize("code", sorted({*RETRIABLE, *FINAL} - {-1}))
def test_only_errors_before_the_append_are_certain_not_to_be_written(code: int) -> None:
    bench = SenderBench()
    bench.send_batch()
    bench.answer(bench.requests[0], error_code=0)
    bench.send(b"doubtful")
    bench.poll()
    (batch,) = bench.accumulator._incomplete
    bench.answer(bench.requests[0], error_code=code)
    assert batch.may_be_written == (code in MAY_BE_WRITTEN)


@pytest.mark.parametrize(
    "error", [DisconnectedError("lost"), KafkaTimeoutError("late"), DisconnectedError("again")]
)
def test_a_request_without_an_answer_is_sent_again(error: KafkaError) -> None:
    bench = SenderBench()
    delivery = bench.send_batch()
    bench.lose(bench.requests[0], error)
    (request,) = bench.poll(after_ms=100)
    bench.answer(request)
    assert delivery.result().offset == 100


def test_a_new_leader_is_asked_without_a_pause() -> None:
    bench = SenderBench(leaders=(1,))
    bench.send_batch()
    bench.answer(bench.requests[0], error_code=6)
    assert bench.metadata.update_count == 1
    assert bench.poll(after_ms=1) == []
    bench.lead(2)
    assert [request.node_id for request in bench.poll(after_ms=1)] == [2]


def test_retries_end_when_their_number_is_up() -> None:
    bench = SenderBench(retries=2, is_idempotent=False)
    delivery = bench.send_batch()
    for _ in range(2):
        bench.answer(bench.requests[0], error_code=6)
        bench.poll(after_ms=1_000)
    bench.answer(bench.requests[0], error_code=6)
    assert isinstance(delivery.exception(), NotLeaderOrFollowerError)


def test_retried_batches_keep_their_order_however_their_answers_come() -> None:
    bench = SenderBench(leaders=(1,), batch_size_bytes=100)
    bench.send(b"0" * 50)
    (request,) = bench.poll()
    bench.answer(request)
    requests = []
    for number in range(1, 4):
        bench.send(b"%d" % number * 50)
        requests += bench.poll()
    for request in requests:
        bench.lose(request)
    arrived = []
    for _ in range(3):
        (request,) = bench.poll(after_ms=500)
        arrived += values_of(request)
        bench.answer(request)
    assert arrived == [b"%d" % number * 50 for number in range(1, 4)]


def test_a_request_that_no_version_can_carry_fails_its_records_at_once() -> None:
    bench = SenderBench()
    delivery = bench.send_batch()
    error = UnsupportedVersionError("too old")
    bench.lose(bench.requests[0], error)
    assert delivery.exception() is error


def test_an_answer_that_leaves_out_a_partition_fails_it() -> None:
    bench = SenderBench(leaders=(1, 1))
    deliveries = [bench.send(partition=partition) for partition in (0, 1)]
    (request,) = bench.poll()
    bench.answer_each(request, {PARTITION: PartitionProduceResponse(index=0, base_offset=7)})
    assert deliveries[0].result().offset == 7
    assert isinstance(deliveries[1].exception(), DecodeError)
    assert "t-1" in str(deliveries[1].exception())


def test_an_answer_about_something_else_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    bench = SenderBench()
    delivery = bench.send_batch()
    answers = {
        TopicPartition(TOPIC, 5): PartitionProduceResponse(index=5, base_offset=1),
        PARTITION: PartitionProduceResponse(index=0, base_offset=7),
    }
    bench.answer_each(bench.requests[0], answers)
    assert delivery.result().offset == 7
    assert "t-5" in caplog.text


# Refusals that concern single records or the size.


def test_refused_records_are_told_apart_from_those_refused_with_them() -> None:
    bench = SenderBench()
    deliveries = [bench.send() for _ in range(3)]
    bench.poll()
    answer = PartitionProduceResponse(
        index=0,
        error_code=87,
        base_offset=-1,
        error_message="one or more records",
        record_errors=[BatchIndexAndErrorMessage(1, "no key in a compacted topic")],
    )
    bench.answer_each(bench.requests[0], {PARTITION: answer})
    errors = [str(delivery.exception()) for delivery in deliveries]
    assert all(isinstance(delivery.exception(), InvalidRecordError) for delivery in deliveries)
    assert "no key in a compacted topic" in errors[1]
    assert "other records of its batch" in errors[0]
    assert errors[0] == errors[2]


def test_a_batch_too_large_for_the_broker_is_split_until_it_fits() -> None:
    bench = SenderBench()
    heard: list[int | None] = []
    deliveries = [
        bench.send(b"%d" % number, on_delivery=lambda m, _: heard.append(m.offset))
        for number in range(5)
    ]
    bench.poll()
    bench.answer(bench.requests[0], error_code=10)
    log: list[bytes | None] = []
    sequences = []
    for _ in range(20):
        for request in bench.poll(after_ms=1):
            batch = batches_of(request)[PARTITION]
            if batch.record_count > 1:
                bench.answer(request, error_code=10)
                continue
            sequences.append(batch.base_sequence)
            bench.answer(request, base_offset=len(log))
            log += values_of(request)
    bench.run_user_calls()
    assert log == [b"0", b"1", b"2", b"3", b"4"]
    assert sequences == [0, 1, 2, 3, 4]
    assert [delivery.result().offset for delivery in deliveries] == [0, 1, 2, 3, 4]
    assert heard == [0, 1, 2, 3, 4]
    assert bench.pool.free_bytes == bench.pool.size_bytes


def test_one_record_too_large_for_the_broker_fails() -> None:
    bench = SenderBench()
    delivery = bench.send_batch()
    bench.answer(bench.requests[0], error_code=10)
    assert isinstance(delivery.exception(), MessageTooLargeError)


# Idempotence, as far as the sender has its part in it.


def test_a_batch_that_overtook_another_waits_for_it_and_both_keep_their_numbers() -> None:
    bench = SenderBench(batch_size_bytes=100)
    bench.send_batch()
    bench.answer(bench.requests[0])
    bench.send(b"1" * 50)
    bench.send(b"2" * 50)
    first, second = bench.poll() + bench.poll()
    bench.answer(first, error_code=19)
    bench.answer(second, error_code=45)
    places = []
    for _ in range(2):
        (request,) = bench.poll(after_ms=1_000)
        batch = batches_of(request)[PARTITION]
        places.append((batch.producer_epoch, batch.base_sequence))
        bench.answer(request)
    assert places == [(0, 1), (0, 2)]


def test_a_broker_that_has_forgotten_the_producer_gets_the_batch_under_a_new_epoch() -> None:
    bench = SenderBench()
    bench.send_batch()
    bench.answer(bench.requests[0])
    delivery = bench.send_batch()
    bench.answer(bench.requests[0], error_code=59)
    (request,) = bench.poll(after_ms=100)
    batch = batches_of(request)[PARTITION]
    assert (batch.producer_epoch, batch.base_sequence) == (1, 0)
    bench.answer(request)
    assert delivery.exception() is None


def test_a_topic_unknown_for_a_moment_does_not_reset_its_sequence() -> None:
    """librdkafka 1.9.0: records were dropped as duplicates, and told to be delivered."""
    bench = SenderBench()
    bench.send_batch()
    bench.answer(bench.requests[0])
    bench.send_batch()
    bench.answer(bench.requests[0], error_code=3)
    bench.forget_topic(UnknownTopicOrPartitionError("for a moment"))
    assert bench.poll(after_ms=5_000) == []
    bench.lead(2)
    (request,) = bench.poll()
    batch = batches_of(request)[PARTITION]
    assert (batch.producer_epoch, batch.base_sequence) == (0, 1)


def test_not_being_allowed_to_write_idempotently_ends_the_producer() -> None:
    bench = SenderBench(leaders=(1, 2))
    deliveries = [bench.send(partition=partition) for partition in (0, 1)]
    operation: Operation[None] = Operation()
    bench.poll()
    bench.accumulator.flush(operation)
    bench.poll()
    bench.answer(bench.requests[0], error_code=31)
    for delivery in deliveries:
        assert isinstance(delivery.exception(), ClusterAuthorizationFailedError)
    with pytest.raises(ClusterAuthorizationFailedError):
        bench.append()
    assert operation.is_done
    assert isinstance(bench.sender.failure, ClusterAuthorizationFailedError)
    assert bench.failed_count == 1
    bench.answer(bench.requests[0])  # what comes now changes nothing any more
    assert bench.pool.free_bytes == bench.pool.size_bytes


def test_a_topic_that_may_not_be_written_fails_alone() -> None:
    bench = SenderBench()
    refused = bench.send_batch()
    bench.answer(bench.requests[0], error_code=29)
    assert isinstance(refused.exception(), TopicAuthorizationFailedError)
    allowed = bench.send_batch()
    bench.answer(bench.requests[0])
    assert allowed.exception() is None


# Time.


def test_what_is_not_sent_in_time_fails_and_says_why() -> None:
    bench = SenderBench(leaders=(1, None), delivery_timeout_ms=1_000)
    bench.nodes.unready.add(1)
    bench.nodes.failures = "localhost:9001: connection refused"
    deliveries = [bench.send(partition=partition) for partition in (0, 1)]
    bench.poll(after_ms=999)
    assert not any(delivery.done() for delivery in deliveries)
    bench.poll(after_ms=1)
    errors = [delivery.exception() for delivery in deliveries]
    assert [type(error) for error in errors] == [DeliveryTimeoutError] * 2
    assert "connection refused" in str(errors[0])
    assert "no leader" in str(errors[1])
    assert all("1000 ms" in str(error) for error in errors)


def test_what_runs_out_of_time_between_attempts_names_the_last_failure() -> None:
    bench = SenderBench(delivery_timeout_ms=1_000)
    delivery = bench.send_batch()
    bench.answer(bench.requests[0], error_code=6)
    bench.nodes.unready.add(1)
    bench.poll(after_ms=1_000)
    error = delivery.exception()
    assert isinstance(error, DeliveryTimeoutError)
    assert isinstance(error.__cause__, NotLeaderOrFollowerError)


def test_deliveries_that_run_out_of_time_fail_in_the_order_of_sending() -> None:
    bench = SenderBench(leaders=(None, None), delivery_timeout_ms=1_000)
    heard: list[bytes] = []
    for number in range(6):
        value = b"%d" % number
        bench.send(
            value, partition=number % 2, on_delivery=lambda *_, value=value: heard.append(value)
        )
    bench.poll(after_ms=1_000)
    bench.run_user_calls()
    assert heard == [b"0", b"2", b"4", b"1", b"3", b"5"]


def test_memory_of_what_fails_in_flight_comes_back_only_with_its_request() -> None:
    """CVE-2026-35554: bytes that a request still carries must not be used for anything else."""
    bench = SenderBench(delivery_timeout_ms=1_000)
    delivery = bench.send_batch()
    bench.poll(after_ms=1_000)
    assert isinstance(delivery.exception(), DeliveryTimeoutError)
    assert "answer of broker 1 is still due" in str(delivery.exception())
    assert bench.pool.free_bytes < bench.pool.size_bytes
    bench.answer(bench.requests[0])
    assert isinstance(delivery.exception(), DeliveryTimeoutError)
    assert bench.pool.free_bytes == bench.pool.size_bytes


def test_a_late_answer_to_a_failed_batch_still_counts_for_the_sequence() -> None:
    bench = SenderBench(delivery_timeout_ms=1_000)
    bench.send_batch()
    bench.answer(bench.requests[0])
    bench.send_batch()
    bench.poll(after_ms=1_000)
    bench.answer(bench.requests[0])
    bench.send_batch()
    batch = batches_of(bench.requests[0])[PARTITION]
    assert (batch.producer_epoch, batch.base_sequence) == (0, 2)


def test_callbacks_due_are_not_left_waiting_for_the_network() -> None:
    bench = SenderBench(leaders=(None,), delivery_timeout_ms=1_000)
    bench.send(on_delivery=lambda *_: None)
    bench.poll(after_ms=1_000)
    assert bench.user_calls
    assert bench.next_poll_ms == bench.now_ms


def test_a_callback_may_send() -> None:
    bench = SenderBench()
    bench.send(b"first", on_delivery=lambda *_: bench.send(b"second"))
    (request,) = bench.poll()
    bench.answer(request)
    bench.run_user_calls()
    (request,) = bench.poll()
    assert values_of(request) == [b"second"]


# Ending.


def test_closing_sends_what_is_left_and_then_nothing_is() -> None:
    bench = SenderBench(linger_ms=1_000)
    delivery = bench.send()
    bench.sender.close(ClosedError("closed"), bench.now_ms, bench.now_ms + 5_000)
    (request,) = bench.poll()
    bench.answer(request)
    assert delivery.exception() is None
    assert bench.accumulator.is_empty
    with pytest.raises(ClosedError):
        bench.append()


def test_what_is_not_delivered_when_closing_has_lasted_too_long_fails_as_closed() -> None:
    bench = SenderBench(leaders=(1, None))
    in_flight = bench.send_batch(partition=0)
    waiting = bench.send(partition=1)
    bench.sender.close(ClosedError("closed"), bench.now_ms, bench.now_ms + 5_000)
    bench.poll(after_ms=4_999)
    assert bench.next_poll_ms <= bench.now_ms + 1
    assert not in_flight.done()
    bench.poll(after_ms=1)
    assert isinstance(in_flight.exception(), ClosedError)
    assert isinstance(waiting.exception(), ClosedError)
    assert bench.accumulator.is_empty


def test_a_flush_ends_after_the_callbacks_have_run() -> None:
    bench = SenderBench(linger_ms=1_000)
    order: list[str] = []
    bench.send(on_delivery=lambda *_: order.append("callback"))
    operation: Operation[None] = Operation()
    operation.on_done(lambda _: order.append("flush"))
    bench.accumulator.flush(operation)
    (request,) = bench.poll()
    bench.answer(request)
    assert order == []
    bench.run_user_calls()
    assert order == ["callback", "flush"]


def test_a_flush_waits_for_the_parts_of_a_split_batch() -> None:
    bench = SenderBench(linger_ms=1_000)
    bench.send()
    bench.send()
    operation: Operation[None] = Operation()
    bench.accumulator.flush(operation)
    bench.poll()
    bench.answer(bench.requests[0], error_code=10)
    bench.poll()
    bench.answer(bench.requests[0])
    assert not operation.is_done
    bench.poll()
    bench.answer(bench.requests[0])
    assert operation.is_done
