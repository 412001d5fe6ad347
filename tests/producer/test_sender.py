"""Sender: what requests contain, and how each kind of response affects its batches."""

from __future__ import annotations

import pytest

from pykclient.errors import (
    ClosedError,
    DeliveryTimeoutError,
    DisconnectedError,
    InvalidRecordError,
    KafkaError,
    MessageTooLargeError,
    NotLeaderOrFollowerError,
    PurgedError,
)
from pykclient.network.cluster.cluster import Cluster, PartitionInfo, TopicInfo
from pykclient.network.manager import Operation
from pykclient.producer.accumulator.batch import ProducerBatch
from pykclient.producer.record import RecordMetadata
from pykclient.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
)
from pykclient.types import Node, TopicPartition
from tests.producer.sender_bench import TOPIC, SenderBench, batches_of, values_of

PARTITION = TopicPartition(TOPIC, 0)

# Requests.


def test_one_request_per_node_carries_a_batch_of_each_partition() -> None:
    bench = SenderBench(leaders=(1, 2, 1), acks=-1, request_timeout_ms=30_000)
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


@pytest.mark.promise("the producer is idempotent by default: every batch has a sequence")
def test_batches_carry_the_producers_identity_and_their_sequence() -> None:
    bench = SenderBench(batch_size=100)
    bench.send(bytes(50))
    bench.send(bytes(50))
    sequences = []
    for _ in range(2):
        (request,) = bench.poll()
        batch = batches_of(request)[PARTITION]
        sequences.append((batch.producer_id, batch.producer_epoch, batch.base_sequence))
        bench.respond(request)
    assert sequences == [(7, 0, 0), (7, 0, 1)]


def test_without_idempotence_batches_have_no_identity() -> None:
    bench = SenderBench(enable_idempotence=False)
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


def test_a_node_that_is_not_ready_is_connected_to_and_gets_the_request_again() -> None:
    bench = SenderBench()
    bench.client.unready.add(1)
    bench.send()
    assert bench.poll() == []
    assert bench.client.connected == [1]
    assert bench.next_poll_ms == bench.now_ms + 50
    bench.client.unready.clear()
    assert len(bench.poll()) == 1


def test_more_for_the_same_node_is_sent_in_the_next_turn_at_once() -> None:
    bench = SenderBench(leaders=(1, 1), max_request_size=1_000, batch_size=1_000)
    for partition in (0, 1):
        bench.send(bytes(700), partition=partition)
    assert len(bench.poll()) == 1
    assert bench.next_poll_ms == bench.now_ms
    assert len(bench.poll()) == 1
    assert bench.next_poll_ms > bench.now_ms


def test_what_lingers_behind_a_full_batch_is_sent_when_its_own_time_has_come() -> None:
    bench = SenderBench(batch_size=1_000, linger_ms=10)
    bench.send(bytes(920))
    bench.send(b"behind")
    (full,) = bench.poll()
    bench.respond(full)
    assert bench.next_poll_ms == bench.now_ms + 10
    assert [values_of(request) for request in bench.poll(after_ms=10)] == [[b"behind"]]


def test_a_partition_without_a_leader_requests_metadata_and_is_sent_when_it_has_one() -> None:
    bench = SenderBench(leaders=(None,))
    bench.send()
    assert bench.poll() == []
    assert bench.metadata.update_count == 1
    bench.lead(2)
    assert [request.node_id for request in bench.poll()] == [2]


@pytest.mark.promise("retries keep the order of records")
def test_one_request_in_flight_keeps_the_order_without_idempotence() -> None:
    bench = SenderBench(
        enable_idempotence=False, max_in_flight_requests_per_connection=1, batch_size=100
    )
    bench.send(bytes(50))
    bench.send(bytes(50))
    (first,) = bench.poll()
    bench.lead(2)  # another connection, which is free
    assert bench.poll() == []
    bench.respond(first)
    assert [request.node_id for request in bench.poll()] == [2]


def test_a_node_that_takes_nothing_for_too_long_loses_records_without_a_key() -> None:
    bench = SenderBench(leaders=(1, 2), partitioner_availability_timeout_ms=100, batch_size=1)
    bench.client.unready.add(1)
    bench.send(partition=0)
    bench.poll()
    bench.poll(after_ms=101)
    bench.send(partition=None)
    for _ in range(10):
        assert bench.send(partition=None).batch.partition.partition == 1  # type: ignore[union-attr]
    bench.client.unready.clear()
    bench.poll()
    bench.poll(after_ms=20)
    later = {
        bench.send(partition=None).batch.partition.partition  # type: ignore[union-attr]
        for _ in range(50)
    }
    assert later == {0, 1}


def test_a_node_that_takes_nothing_keeps_its_records_without_adaptive_partitioning() -> None:
    bench = SenderBench(
        leaders=(1, 2),
        partitioner_availability_timeout_ms=100,
        partitioner_adaptive_partitioning_enable=False,
        batch_size=1,
    )
    bench.client.unready.add(1)
    bench.send(partition=0)
    bench.poll()
    bench.poll(after_ms=101)
    chosen = {
        bench.send(partition=None).batch.partition.partition  # type: ignore[union-attr]
        for _ in range(50)
    }
    assert chosen == {0, 1}


# Success.


def test_the_records_of_a_written_batch_get_their_offsets() -> None:
    bench = SenderBench()
    deliveries = [bench.send() for _ in range(3)]
    (request,) = bench.poll()
    bench.respond(request, base_offset=40)
    assert [delivery.result() for delivery in deliveries] == [
        RecordMetadata(TOPIC, 0, offset, 5_000) for offset in (40, 41, 42)
    ]
    assert bench.pool.free_bytes == bench.pool.size_bytes


def test_the_brokers_time_is_reported_where_it_counts() -> None:
    bench = SenderBench()
    delivery = bench.send_batch()
    response = PartitionProduceResponse(index=0, base_offset=4, log_append_time_ms=9_999)
    bench.respond_to_each(bench.requests[0], {PARTITION: response})
    assert delivery.result().timestamp_ms == 9_999


@pytest.mark.promise("acks 0, 1 and all are supported")
def test_without_acknowledgements_sent_is_all_there_is_to_know() -> None:
    bench = SenderBench(acks=0, enable_idempotence=False)
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
    bench.respond(request, error_code=46)
    assert delivery.result().offset is None


# Time.


def test_what_is_not_sent_in_time_fails_with_the_cause() -> None:
    bench = SenderBench(leaders=(1, None), delivery_timeout_ms=1_000)
    bench.client.unready.add(1)
    bench.client.failures = "localhost:9001: connection refused"
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
    bench.respond(bench.requests[0], error_code=6)
    bench.client.unready.add(1)
    bench.client.errors[1] = DisconnectedError("broker 1 has hung up since")
    bench.poll(after_ms=1_000)
    error = delivery.exception()
    assert isinstance(error, DeliveryTimeoutError)
    assert isinstance(error.__cause__, NotLeaderOrFollowerError)
    assert str(error).endswith("; since then: broker 1 has hung up since")


def test_deliveries_that_run_out_of_time_fail_in_the_order_of_sending() -> None:
    bench = SenderBench(leaders=(None, None), delivery_timeout_ms=1_000)
    values: list[bytes] = []
    for number in range(6):
        value = b"%d" % number
        bench.send(
            value, partition=number % 2, on_delivery=lambda *_, value=value: values.append(value)
        )
    bench.poll(after_ms=1_000)
    bench.run_user_calls()
    assert values == [b"0", b"2", b"4", b"1", b"3", b"5"]


def test_memory_of_what_fails_in_flight_comes_back_only_with_its_request() -> None:
    """CVE-2026-35554: bytes that a request still uses must not be reused."""
    bench = SenderBench(delivery_timeout_ms=1_000)
    delivery = bench.send_batch()
    bench.poll(after_ms=1_000)
    bench.poll()  # in between, what has arrived was read
    assert isinstance(delivery.exception(), DeliveryTimeoutError)
    assert "response of broker 1 is still due" in str(delivery.exception())
    assert bench.pool.free_bytes < bench.pool.size_bytes
    bench.respond(bench.requests[0])
    assert isinstance(delivery.exception(), DeliveryTimeoutError)
    assert bench.pool.free_bytes == bench.pool.size_bytes


def test_a_response_that_has_come_meanwhile_counts_before_its_batch_is_given_up() -> None:
    # A callback took a minute, or the process was suspended: the response is in the socket.
    bench = SenderBench(delivery_timeout_ms=1_000)
    delivery = bench.send_batch()
    (request,) = bench.requests
    waiting = bench.send()
    assert bench.poll(after_ms=60_000) == []
    assert bench.next_poll_ms == bench.now_ms
    assert not delivery.done()
    assert not waiting.done()
    bench.respond(request)
    assert delivery.result(0).offset == 100
    bench.poll()
    assert isinstance(waiting.exception(0), DeliveryTimeoutError)


def test_a_late_response_to_a_failed_batch_still_counts_for_the_sequence() -> None:
    bench = SenderBench(delivery_timeout_ms=1_000)
    bench.send_batch()
    bench.respond(bench.requests[0])
    bench.send_batch()
    bench.poll(after_ms=1_000)
    bench.poll()  # in between, what has arrived was read
    bench.respond(bench.requests[0])
    bench.send_batch()
    batch = batches_of(bench.requests[0])[PARTITION]
    assert (batch.producer_epoch, batch.base_sequence) == (0, 2)


def test_callbacks_due_are_not_left_waiting_for_the_network() -> None:
    bench = SenderBench(leaders=(None,), delivery_timeout_ms=1_000)
    bench.send(on_delivery=lambda *_: None)
    bench.poll(after_ms=1_000)
    assert bench.user_calls
    assert bench.next_poll_ms == bench.now_ms


# Ending.


@pytest.mark.promise("`close` sends the remaining records, and ends in time")
def test_closing_sends_what_is_left_and_then_nothing_is() -> None:
    bench = SenderBench(linger_ms=1_000)
    delivery = bench.send()
    bench.sender.close(ClosedError("closed"), bench.now_ms, bench.now_ms + 5_000)
    (request,) = bench.poll()
    bench.respond(request)
    assert delivery.exception() is None
    assert bench.accumulator.is_empty
    with pytest.raises(ClosedError):
        bench.append()


@pytest.mark.promise("`close` sends the remaining records, and ends in time")
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


# Purging.


def purged(bench: SenderBench, *, queued: bool = True, in_flight: bool = True) -> int:
    return bench.sender.purge(bench.now_ms, is_queued_wanted=queued, is_in_flight_wanted=in_flight)


@pytest.mark.parametrize(("queued", "in_flight"), [(True, True), (True, False), (False, True)])
def test_purging_fails_what_waits_and_what_is_in_flight(queued: bool, in_flight: bool) -> None:
    bench = SenderBench(leaders=(1, None))
    under_way = bench.send_batch(partition=0)
    waiting = [bench.send(partition=1) for _ in range(2)]
    assert purged(bench, queued=queued, in_flight=in_flight) == 2 * queued + in_flight
    assert under_way.done() == in_flight
    assert [each.done() for each in waiting] == [queued] * 2
    for delivery, may_be_written in ((under_way, True), (waiting[0], False)):
        if delivery.done():
            error = delivery.exception()
            assert isinstance(error, PurgedError)
            assert error.may_be_written is may_be_written


def test_what_is_purged_between_attempts_may_be_in_the_log() -> None:
    bench = SenderBench()
    delivery = bench.send_batch()
    bench.lose(bench.requests[0])
    assert purged(bench, in_flight=False) == 1
    error = delivery.exception()
    assert isinstance(error, PurgedError)
    assert error.may_be_written


def test_after_purging_a_late_response_counts_for_the_sequence_and_for_memory() -> None:
    bench = SenderBench()
    purged_delivery = bench.send_batch()
    (request,) = bench.requests
    assert purged(bench) == 1
    assert bench.pool.free_bytes < bench.pool.size_bytes
    later = bench.send()
    bench.poll()
    bench.respond(request)
    assert isinstance(purged_delivery.exception(), PurgedError)
    bench.poll()
    (batch,) = batches_of(bench.requests[-1]).values()
    assert batch.base_sequence == 1
    bench.respond(bench.requests[-1], base_offset=101)
    assert later.result().offset == 101
    assert bench.accumulator.is_empty
    bench.run_user_calls()
    assert bench.pool.free_bytes == bench.pool.size_bytes


def test_a_flush_ends_with_what_was_purged() -> None:
    bench = SenderBench(linger_ms=1_000)
    bench.send(on_delivery=lambda *_: None)
    flush: Operation[None] = Operation()
    bench.accumulator.flush(flush)
    assert purged(bench) == 1
    assert not flush.is_done
    bench.run_user_calls()
    bench.poll()
    assert flush.is_done


@pytest.mark.promise("`flush` waits for every record sent before it")
def test_a_flush_ends_after_the_callbacks_have_run() -> None:
    bench = SenderBench(linger_ms=1_000)
    order: list[str] = []
    bench.send(on_delivery=lambda *_: order.append("callback"))
    operation: Operation[None] = Operation()
    operation.on_done(lambda _: order.append("flush"))
    bench.accumulator.flush(operation)
    (request,) = bench.poll()
    bench.respond(request)
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
    bench.respond(bench.requests[0], error_code=10)
    bench.poll()
    bench.respond(bench.requests[0])
    assert not operation.is_done
    bench.poll()
    bench.respond(bench.requests[0])
    assert operation.is_done


@pytest.mark.parametrize("error", [MemoryError(), ZeroDivisionError("a mistake of ours")])
def test_a_batch_that_cannot_be_encoded_fails_alone(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    bench = SenderBench(leaders=(1, 1))
    bad, good = bench.send(partition=0), bench.send(partition=1)
    real = ProducerBatch.encode

    def encode(batch: ProducerBatch, **keywords: bool) -> memoryview:
        if batch.partition.partition == 0:
            raise error
        return real(batch, **keywords)

    monkeypatch.setattr(ProducerBatch, "encode", encode)
    (request,) = bench.poll()
    bench.respond(request)
    assert good.result().offset == 100
    failure = bad.exception()
    assert isinstance(failure, KafkaError)
    assert failure.__cause__ is error
    monkeypatch.setattr(ProducerBatch, "encode", real)
    later = bench.send(partition=0)
    (request,) = bench.poll()
    bench.respond(request)
    assert later.done()
    assert bench.pool.free_bytes == bench.pool.size_bytes


def test_a_batch_that_cannot_be_split_fails_alone_and_keeps_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = SenderBench()
    deliveries = [bench.send(bytes(100)) for _ in range(4)]
    (request,) = bench.poll()

    def split(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(ProducerBatch, "split", split)
        bench.respond(request, MessageTooLargeError.code)
    assert all(isinstance(entry.exception(), MessageTooLargeError) for entry in deliveries)
    later = bench.send()
    (request,) = bench.poll()
    bench.respond(request)
    assert later.done()
    assert bench.pool.free_bytes == bench.pool.size_bytes


def test_refused_records_are_distinguished_from_those_refused_with_them() -> None:
    bench = SenderBench()
    deliveries = [bench.send() for _ in range(3)]
    bench.poll()
    response = PartitionProduceResponse(
        index=0,
        error_code=87,
        base_offset=-1,
        error_message="one or more records",
        record_errors=[BatchIndexAndErrorMessage(1, "no key in a compacted topic")],
    )
    bench.respond_to_each(bench.requests[0], {PARTITION: response})
    errors = [str(delivery.exception()) for delivery in deliveries]
    assert all(isinstance(delivery.exception(), InvalidRecordError) for delivery in deliveries)
    assert "no key in a compacted topic" in errors[1]
    assert "other records of its batch" in errors[0]
    assert errors[0] == errors[2]


def test_a_topic_without_an_id_is_named_in_a_version_that_has_names() -> None:
    bench = SenderBench()
    info = TopicInfo(TOPIC, bytes(16), False, (PartitionInfo(TOPIC, 0, 1, 1),))
    bench.metadata.take_over(Cluster(nodes=[Node(1, "localhost", 9_001)], topics=[info]))
    bench.send()
    (request,) = bench.poll()
    assert request.max_version == 12


@pytest.mark.parametrize(
    ("indexes", "complaint"),
    [
        ([5], "names t-5 twice, or it was not requested"),
        ([0, 5], "names t-5 twice, or it was not requested"),
        ([0, 1, 0], "names t-0 twice, or it was not requested"),
        ([0], "lacks t-1"),
        ([], "lacks t-0"),
    ],
)
def test_a_request_whose_response_contradicts_it_is_sent_again(
    indexes: list[int], complaint: str
) -> None:
    """Otherwise a flipped bit would fail a batch that a new connection delivers."""
    bench = SenderBench(leaders=(1, 1))
    deliveries = [bench.send(partition=partition) for partition in (0, 1)]
    (request,) = bench.poll()
    responses = [PartitionProduceResponse(index=index, base_offset=7) for index in indexes]
    error = bench.respond_with(request, responses)
    assert complaint in str(error)
    assert not any(delivery.done() for delivery in deliveries)
    (again,) = bench.poll(after_ms=100)
    assert batches_of(again)[PARTITION].base_sequence == 0
    bench.respond(again)
    assert [delivery.result().offset for delivery in deliveries] == [100, 100]


def test_a_response_with_a_topic_id_that_was_not_requested_contradicts_its_request() -> None:
    bench = SenderBench()
    bench.send()
    (request,) = bench.poll()
    response = PartitionProduceResponse(index=0, base_offset=7)
    assert bench.respond_with(request, [response], topic_id=bytes(16)) is not None
