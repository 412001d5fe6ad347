"""Sender: how each kind of error, or no response, affects a batch and those after it."""

from __future__ import annotations

import pytest

from pykclient.errors import (
    ClusterAuthorizationFailedError,
    DisconnectedError,
    KafkaError,
    KafkaTimeoutError,
    NotLeaderOrFollowerError,
    OutOfOrderSequenceNumberError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    error_for_code,
)
from pykclient.network.manager import Operation
from pykclient.producer.sender.idempotence import EPOCH_MAX
from pykclient.protocol.messages.init_producer_id import InitProducerIdResponse
from pykclient.protocol.messages.produce import LeaderIdAndEpoch, PartitionProduceResponse
from pykclient.types import TopicPartition
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

MAY_BE_WRITTEN = {5, 6, 7, 13, 20, 56, 74, 75}


@pytest.mark.promise("retries keep the order of records")
@pytest.mark.parametrize("code", RETRIABLE)
@pytest.mark.parametrize("is_idempotent", [True, False])
def test_a_retriable_error_is_retried_after_a_growing_pause(code: int, is_idempotent: bool) -> None:
    bench = SenderBench(enable_idempotence=is_idempotent)
    delivery = bench.send_batch(b"again")
    for pause_ms in (100, 200, 400, 800, 1_000, 1_000):
        bench.respond(bench.requests[0], error_code=code)
        assert not delivery.done()
        assert bench.poll(after_ms=pause_ms - 1) == []
        (request,) = bench.poll(after_ms=1)
        assert values_of(request) == [b"again"]
        if is_idempotent:
            assert batches_of(request)[PARTITION].base_sequence == 0
    bench.respond(bench.requests[0], base_offset=3)
    assert delivery.result().offset == 3


@pytest.mark.parametrize("code", FINAL)
def test_a_final_error_fails_the_delivery_with_its_own_class(code: int) -> None:
    bench = SenderBench()
    delivery = bench.send_batch()
    bench.respond(bench.requests[0], error_code=code)
    assert type(delivery.exception()) is type(error_for_code(code))
    assert "t-0" in str(delivery.exception())
    assert bench.poll(after_ms=10_000) == []
    assert bench.pool.free_bytes == bench.pool.size_bytes


@pytest.mark.parametrize("code", sorted({*RETRIABLE, *FINAL} - {-1}))
def test_only_errors_before_the_append_are_certain_not_to_be_written(code: int) -> None:
    bench = SenderBench()
    bench.send_batch()
    bench.respond(bench.requests[0], error_code=0)
    bench.send(b"doubtful")
    bench.poll()
    (batch,) = bench.accumulator._incomplete
    bench.respond(bench.requests[0], error_code=code)
    assert batch.may_be_written == (code in MAY_BE_WRITTEN)


@pytest.mark.parametrize(
    "error", [DisconnectedError("lost"), KafkaTimeoutError("late"), DisconnectedError("again")]
)
def test_a_request_without_a_response_is_sent_again(error: KafkaError) -> None:
    bench = SenderBench()
    delivery = bench.send_batch()
    bench.lose(bench.requests[0], error)
    (request,) = bench.poll(after_ms=100)
    bench.respond(request)
    assert delivery.result().offset == 100


def test_a_new_leader_gets_the_request_without_a_back_off() -> None:
    bench = SenderBench(leaders=(1,))
    bench.send_batch()
    bench.respond(bench.requests[0], error_code=6)
    assert bench.metadata.update_count == 1
    assert bench.poll(after_ms=1) == []
    bench.lead(2)
    assert [request.node_id for request in bench.poll(after_ms=1)] == [2]


def test_the_leader_that_a_refusal_names_gets_the_request_at_once() -> None:
    """KIP-951: without waiting for metadata or a back-off."""
    bench = SenderBench(leaders=(1, 2))
    delivery = bench.send_batch()
    refusal = PartitionProduceResponse(
        index=0, error_code=6, current_leader=LeaderIdAndEpoch(2, leader_epoch=9)
    )
    bench.respond_to_each(bench.requests[0], {PARTITION: refusal})
    (request,) = bench.poll()
    assert request.node_id == 2
    bench.respond(request)
    assert delivery.result().offset == 100


def test_retries_end_when_their_number_is_up() -> None:
    bench = SenderBench(retries=2, enable_idempotence=False)
    delivery = bench.send_batch()
    for _ in range(2):
        bench.respond(bench.requests[0], error_code=6)
        bench.poll(after_ms=1_000)
    bench.respond(bench.requests[0], error_code=6)
    assert isinstance(delivery.exception(), NotLeaderOrFollowerError)


@pytest.mark.promise("retries keep the order of records")
def test_retried_batches_keep_their_order_however_their_responses_come() -> None:
    bench = SenderBench(leaders=(1,), batch_size=100)
    bench.send(b"0" * 50)
    (request,) = bench.poll()
    bench.respond(request)
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
        bench.respond(request)
    assert arrived == [b"%d" % number * 50 for number in range(1, 4)]


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_a_batch_behind_a_refused_one_does_not_shorten_its_back_off(is_idempotent: bool) -> None:
    bench = SenderBench(
        leaders=(1,),
        batch_size=100,
        max_in_flight_requests_per_connection=1,
        enable_idempotence=is_idempotent,
    )
    bench.send_batch(b"before")
    bench.respond(bench.requests[0])
    for number in range(3):
        bench.send(b"%d" % number * 50)
    (request,) = bench.poll()
    for pause_ms in (100, 200, 400):
        bench.respond(request, error_code=19)  # NOT_ENOUGH_REPLICAS
        assert bench.poll() == []
        assert bench.poll(after_ms=pause_ms - 1) == []
        (request,) = bench.poll(after_ms=1)
        assert values_of(request) == [b"0" * 50]


@pytest.mark.promise("retries keep the order of records")
def test_what_was_never_sent_waits_until_all_before_it_is_written() -> None:
    """A broker would reject it as out of order, once for each batch that is retried alone."""
    bench = SenderBench(leaders=(1,), batch_size=100)
    bench.send(b"0" * 50)
    bench.respond(bench.poll()[0])
    lost = []
    for number in range(1, 4):
        bench.send(b"%d" % number * 50)
        lost += bench.poll()
    for request in lost:
        bench.lose(request)
    new = [b"%d" % number * 50 for number in range(4, 7)]
    for value in new:
        bench.send(value)
    for number in range(1, 3):
        (request,) = bench.poll(after_ms=500)
        assert values_of(request) == [b"%d" % number * 50]
        assert bench.poll(after_ms=500) == [], "others wait that were sent before"
        bench.respond(request)
    requests = bench.poll(after_ms=500)
    while more := bench.poll():
        requests += more
    arrived = [value for request in requests for value in values_of(request)]
    assert arrived == [b"3" * 50, *new]


def test_a_request_that_no_version_can_carry_fails_its_records_at_once() -> None:
    bench = SenderBench()
    delivery = bench.send_batch()
    error = UnsupportedVersionError("too old")
    bench.lose(bench.requests[0], error)
    assert delivery.exception() is error


def test_a_batch_too_large_for_the_broker_is_split_until_it_fits() -> None:
    bench = SenderBench()
    offsets: list[int | None] = []
    deliveries = [
        bench.send(b"%d" % number, on_delivery=lambda m, _: offsets.append(m.offset))
        for number in range(5)
    ]
    bench.poll()
    bench.respond(bench.requests[0], error_code=10)
    log: list[bytes | None] = []
    sequences = []
    for _ in range(20):
        for request in bench.poll(after_ms=1):
            batch = batches_of(request)[PARTITION]
            if batch.record_count > 1:
                bench.respond(request, error_code=10)
                continue
            sequences.append(batch.base_sequence)
            bench.respond(request, base_offset=len(log))
            log += values_of(request)
    bench.run_user_calls()
    assert log == [b"0", b"1", b"2", b"3", b"4"]
    assert sequences == [0, 1, 2, 3, 4]
    assert [delivery.result().offset for delivery in deliveries] == [0, 1, 2, 3, 4]
    assert offsets == [0, 1, 2, 3, 4]
    assert bench.pool.free_bytes == bench.pool.size_bytes


# Idempotence, as far as the sender is involved.


def test_a_batch_whose_response_is_lost_is_never_sent_under_other_numbers() -> None:
    bench = SenderBench()
    bench.send_batch()
    bench.respond(bench.requests[0])
    delivery = bench.send_batch()
    bench.lose(bench.requests[0])
    (again,) = bench.poll(after_ms=100)
    bench.respond(again, error_code=45)
    (last,) = bench.poll(after_ms=1_000)
    sent = [batches_of(request)[PARTITION].base_sequence for request in (again, last)]
    assert sent == [1, 1]
    bench.respond(last, error_code=45)
    assert isinstance(delivery.exception(), OutOfOrderSequenceNumberError)


def test_a_topic_unknown_for_a_moment_does_not_reset_its_sequence() -> None:
    """In librdkafka 1.9.0 records were dropped as duplicates, and reported as delivered."""
    bench = SenderBench()
    bench.send_batch()
    bench.respond(bench.requests[0])
    bench.send_batch()
    bench.respond(bench.requests[0], error_code=3)
    bench.forget_topic(UnknownTopicOrPartitionError("for a moment"))
    assert bench.poll(after_ms=5_000) == []
    bench.lead(2)
    (request,) = bench.poll()
    batch = batches_of(request)[PARTITION]
    assert (batch.producer_epoch, batch.base_sequence) == (0, 1)


def made_anew(bench: SenderBench) -> None:
    bench.lead(1, topic_id=bytes(range(1, 17)))


@pytest.mark.parametrize("code", [3, 100, 103])
@pytest.mark.parametrize("is_refused_first", [False, True])
def test_a_leader_whose_metadata_gets_a_new_topic_late_loses_no_record(
    code: int, *, is_refused_first: bool
) -> None:
    """The topic is recreated; the leader rejects one batch, gets the new topic, accepts the next.

    The new log has no state for this producer and accepts any first batch. The rejected batch then
    fails with "out of order". It is not in the log, and Java's producer delivers it.
    """
    bench = SenderBench(batch_size=100)
    bench.send_batch()
    bench.respond(bench.requests[0])
    deliveries = [bench.send(b"%d" % number * 50) for number in range(2)]
    first, second = bench.poll() + bench.poll()
    if is_refused_first:
        made_anew(bench)
    bench.respond(first, error_code=code)
    bench.respond(second)
    made_anew(bench)
    for request in (request for _ in range(4) for request in bench.poll(after_ms=1_000)):
        place = batches_of(request)[PARTITION]
        is_in_order = (place.producer_epoch, place.base_sequence) == (1, 0)
        bench.respond(request, error_code=0 if is_in_order else 45)
    assert [delivery.exception() for delivery in deliveries] == [None, None]


def test_after_the_last_epoch_what_waits_is_known_to_flush_and_close() -> None:
    bench = SenderBench(has_producer_id=False)
    assert bench.idempotence is not None
    (init_request,) = bench.idempotence.poll(bench.now_ms).requests
    init_request.on_response(
        InitProducerIdResponse(producer_id=7, producer_epoch=EPOCH_MAX), bench.now_ms
    )
    bench.send_batch()
    bench.respond(bench.requests[0])
    delivery = bench.send_batch()
    bench.respond(bench.requests[0], error_code=59)  # UNKNOWN_PRODUCER_ID: there is no next epoch
    (init_request,) = bench.idempotence.poll(bench.now_ms).requests
    assert bench.poll(after_ms=1_000) == []
    flush = Operation[None]()
    bench.accumulator.flush(flush)
    bench.sender.close(KafkaError("closed"), bench.now_ms, bench.now_ms + 10_000)
    init_request.on_response(InitProducerIdResponse(producer_id=8), bench.now_ms)
    (request,) = bench.poll()
    bench.respond(request)
    bench.poll()
    assert delivery.exception() is None
    assert flush.is_done
    assert bench.accumulator.is_empty


def test_not_being_allowed_to_write_idempotently_ends_the_producer() -> None:
    bench = SenderBench(leaders=(1, 2))
    deliveries = [bench.send(partition=partition) for partition in (0, 1)]
    operation: Operation[None] = Operation()
    bench.poll()
    bench.accumulator.flush(operation)
    bench.poll()
    bench.respond(bench.requests[0], error_code=31)
    for delivery in deliveries:
        error = delivery.exception()
        assert isinstance(error, ClusterAuthorizationFailedError)
        assert error.fatal
    with pytest.raises(ClusterAuthorizationFailedError) as caught:
        bench.append()
    assert caught.value.fatal
    assert operation.is_done
    assert isinstance(bench.sender.failure, ClusterAuthorizationFailedError)
    assert bench.failed_count == 1
    bench.respond(bench.requests[0])  # what comes now changes nothing any more
    assert bench.pool.free_bytes == bench.pool.size_bytes
