"""ProducerMetrics: the metrics of batches, memory and connections."""

from __future__ import annotations

import itertools
import sys
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pykclient.errors import (
    BatchDeliveryError,
    BufferExhaustedError,
    CorruptMessageError,
    KafkaTimeoutError,
    MessageTooLargeError,
)
from pykclient.metrics import PRODUCER, PRODUCER_TOPIC, WINDOWS, MetricName
from pykclient.producer.config import ProducerConfig
from pykclient.producer.metrics import CallMetrics, Memory, Wait
from tests.metrics_table import documented
from tests.producer.scripted_producer import ScriptedBulkProducer, ScriptedProducer
from tests.producer.sender_bench import TOPIC, SenderBench

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.producer.record import ProducerRecord, RecordMetadata

NODE = (("node-id", "node-1"),)


def of(bench: SenderBench, name: str, topic: str | None = None) -> float | None:
    metrics = bench.sender.metrics.snapshot(bench.now_ms, Memory(0, 0, 0), metadata_ms=None)
    if topic is None:
        return metrics.get(MetricName(name, PRODUCER))
    return metrics.get(MetricName(name, PRODUCER_TOPIC, (("topic", topic),)))


def metric(producer: ScriptedProducer, name: str) -> float | None:
    return producer.core.metrics().get(MetricName(name, PRODUCER))


@pytest.mark.promise("metrics, including lag by partition, match `docs/metrics.md`")
def test_what_a_producer_reports_is_documented_and_the_other_way_round() -> None:
    producer = ScriptedProducer()
    producer.await_metadata("t")
    producer.send("t", b"v", partition=0)
    producer.turn(6, after_ms=5)
    metrics = producer.core.metrics()
    assert {(metric.group, metric.name) for metric in metrics} == documented("producer")
    assert metrics[MetricName("buffer-total-bytes", PRODUCER)] == 33_554_432
    assert metrics[MetricName("connection-count", PRODUCER)] >= 1
    # Metadata, InitProducerId and Produce, and ApiVersions on each connection.
    assert metrics[MetricName("request-total", PRODUCER)] >= 4
    assert metrics[MetricName("response-total", PRODUCER)] >= 4


def test_the_age_of_metadata_is_the_time_since_the_last_good_response() -> None:
    producer = ScriptedProducer()
    assert metric(producer, "metadata-age") is None
    producer.await_metadata("t")
    updated_ms = producer.core.metadata.updated_ms
    assert updated_ms is not None
    assert metric(producer, "metadata-age") == (producer.clock_ms - updated_ms) / 1_000
    producer.clock_ms = updated_ms + 1_500
    assert metric(producer, "metadata-age") == 1.5
    producer.core.want_topic("other")
    producer.turn(8)
    assert metric(producer, "metadata-age") == 0
    producer.metadata_error = 35  # UNSUPPORTED_VERSION
    producer.core.want_topic("another")
    producer.turn(8, after_ms=2_000)
    assert metric(producer, "metadata-age") == 2


def test_records_and_batches_are_counted_in_all_and_by_topic() -> None:
    bench = SenderBench(leaders=(1, 1), compression_type="gzip", linger_ms=10)
    for partition in (0, 0, 0, 1):
        bench.send(bytes(2_000), partition=partition)
    (request,) = bench.poll(after_ms=10)
    bench.respond(request)
    for topic in (None, TOPIC):
        assert of(bench, "record-send-total", topic) == 4
        assert of(bench, "record-error-total", topic) == 0
        compression_rate = of(bench, "compression-rate-avg", topic)
        assert compression_rate is not None
        assert 0 < compression_rate < 0.2
        size_bytes = of(bench, "byte-total", topic)
        assert size_bytes is not None
        assert 100 < size_bytes < 1_000
    assert of(bench, "record-send-total", "other") is None
    assert of(bench, "records-per-request-avg") == 4
    assert of(bench, "record-queue-time-avg") == 10
    batch_bytes = of(bench, "batch-size-avg")
    assert batch_bytes is not None
    assert 2 * batch_bytes == of(bench, "byte-total")


def test_what_is_sent_again_counts_again_but_waited_once() -> None:
    bench = SenderBench()
    bench.send_batch()
    bench.respond(bench.requests[0], error_code=CorruptMessageError.code)
    bench.poll(after_ms=100)
    bench.respond(bench.requests[0])
    assert of(bench, "record-send-total") == 2
    assert of(bench, "record-retry-total") == of(bench, "record-retry-total", TOPIC) == 1
    assert of(bench, "record-error-total") == 0
    assert of(bench, "record-queue-time-max") == 0


def test_records_that_fail_and_batches_that_are_split_are_counted() -> None:
    bench = SenderBench(linger_ms=5)
    for _ in range(2):
        bench.send(bytes(100))
    bench.poll(after_ms=5)
    bench.respond(bench.requests[0], error_code=MessageTooLargeError.code)
    assert of(bench, "batch-split-total") == 1
    assert of(bench, "record-error-total") == 0
    bench.poll()
    bench.respond(bench.requests[0], error_code=MessageTooLargeError.code)
    assert of(bench, "record-error-total") == of(bench, "record-error-total", TOPIC) == 1


# Waiting times of calls. Time passes only while they wait, so it is exact to the nanosecond.

WAITS = ("metadata-wait-time-ns-total", "bufferpool-wait-time-ns-total", "bufferpool-wait-ratio")
NS_PER_MS = 1_000_000
PIECE = pa.table({"value": [b"v"] * 2_000, "partition": [1] * 2_000})  # one block of rows


def waits(producer: ScriptedProducer) -> list[float | None]:
    return [metric(producer, name) for name in WAITS]


def exhausted(producer: ScriptedProducer) -> list[float | None]:
    return [metric(producer, f"buffer-exhausted-{kind}") for kind in ("total", "rate")]


def knowing(**settings: object) -> ScriptedBulkProducer:
    """Return a producer that knows topic t and has delivered a record to each partition."""
    producer = ScriptedBulkProducer(**settings)
    producer.await_metadata("t")
    for partition in range(3):
        producer.send("t", b"v", partition=partition)
        producer.turn(6, after_ms=10)  # which gives its memory back
    assert len(producer.logs) == 3
    return producer


def test_calls_that_need_not_wait_report_no_wait() -> None:
    producer = knowing()
    started_ms = producer.clock_ms
    producer.send("t", b"v", partition=0)
    producer.send_batch("t", [b"v"] * 1_000)
    producer.send_arrow("t", pa.table({"value": [b"v"] * 1_000}))
    producer.core.partitions_for("t")
    assert waits(producer) == [0, 0, 0]
    assert producer.clock_ms == started_ms


@pytest.mark.parametrize(
    "call",
    [
        lambda producer: producer.send("t", b"v"),
        lambda producer: producer.send_batch("t", [b"v"] * 10),
        lambda producer: producer.send_arrow("t", pa.table({"value": [b"v"] * 10})),
        lambda producer: producer.core.partitions_for("t"),
    ],
)
def test_waits_for_metadata_are_counted_whatever_call_waits(
    call: Callable[[ScriptedBulkProducer], object],
) -> None:
    producer = ScriptedBulkProducer()
    started_ms = producer.clock_ms
    call(producer)
    elapsed_ns = (producer.clock_ms - started_ms) * NS_PER_MS
    assert elapsed_ns > 0
    assert waits(producer) == [elapsed_ns, 0, 0]


def test_waits_for_metadata_that_never_come_are_counted() -> None:
    producer = ScriptedBulkProducer(max_block_ms=700)
    with pytest.raises(KafkaTimeoutError):
        producer.send("unheard", b"v")
    counted_ns = metric(producer, "metadata-wait-time-ns-total")
    assert counted_ns is not None
    assert counted_ns >= 700 * NS_PER_MS


@pytest.mark.parametrize(
    "call",
    [
        lambda producer: producer.send("t", bytes(15_000), partition=1),
        lambda producer: producer.send_batch("t", [bytes(15_000)], partition=1),
        lambda producer: producer.send_arrow(
            "t", pa.table({"value": [bytes(15_000)], "partition": [1]})
        ),
    ],
)
def test_waits_for_memory_are_counted_whatever_call_waits(
    call: Callable[[ScriptedBulkProducer], object],
) -> None:
    producer = knowing(buffer_memory=20_000, linger_ms=0)
    producer.send("t", bytes(15_000), partition=0)
    assert waits(producer) == [0, 0, 0]
    started_ms = producer.clock_ms
    call(producer)
    elapsed_ms = producer.clock_ms - started_ms
    assert elapsed_ms > 0
    ratio = elapsed_ms / WINDOWS.window_ms
    assert waits(producer) == [0, elapsed_ms * NS_PER_MS, pytest.approx(ratio)]
    producer.clock_ms += 3 * WINDOWS.window_ms
    assert waits(producer) == [0, elapsed_ms * NS_PER_MS, 0]


class Inert:
    """An interceptor that does nothing; with it, bulk calls send records one by one."""

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        pass


@pytest.mark.parametrize("settings", [{}, {"interceptors": [Inert()]}])
@pytest.mark.parametrize(
    ("call", "record_count"),
    [
        (lambda producer: producer.send("t", b"v", partition=1), 1),
        (lambda producer: producer.send_batch("t", [b"v"] * 7, partition=1), 7),
        (
            lambda producer: producer.send_arrow(
                "t", pa.table({"value": [b"v"] * 7, "partition": [1, 2, 1, 2, 1, 2, 1]})
            ),
            7,
        ),
        (lambda producer: producer.send_arrow("t", pa.concat_tables([PIECE] * 3)), 6_000),
    ],
)
def test_records_for_which_there_was_no_memory_are_counted(
    settings: dict[str, object], call: Callable[[ScriptedBulkProducer], object], record_count: int
) -> None:
    producer = knowing(buffer_memory=20_000, max_block_ms=500, **settings)
    producer.send("t", bytes(15_000), partition=0)
    assert exhausted(producer) == [0, 0]
    producer.makes_turns = False
    for times in (1, 2):
        with pytest.raises(BufferExhaustedError):
            call(producer)
        lost_count = times * record_count
        assert exhausted(producer) == [
            lost_count,
            pytest.approx(lost_count * 1_000 / WINDOWS.window_ms),
        ]
        assert waits(producer)[1] == times * 500 * NS_PER_MS


@pytest.mark.parametrize("settings", [{}, {"interceptors": [Inert()]}])
def test_of_a_bulk_call_that_stops_midway_what_is_left_is_counted(
    settings: dict[str, object],
) -> None:
    producer = knowing(buffer_memory=40_000, **settings)
    producer.makes_turns = False
    delivery = producer.send_batch("t", [b"%d" % number for number in range(5_000)])
    producer.turn(30, after_ms=10)
    error = delivery.exception()
    assert isinstance(error, BatchDeliveryError)
    (failed,) = error.failed
    assert 0 < len(failed) < 5_000
    assert metric(producer, "buffer-exhausted-total") == len(failed)


def test_a_record_that_a_callback_sends_without_memory_is_counted() -> None:
    producer = ScriptedProducer(buffer_memory=20_000)  # whose thread is always the sender's
    producer.await_metadata("t")
    producer.send("t", bytes(15_000), partition=0)
    with pytest.raises(BufferExhaustedError, match="in a delivery callback"):
        producer.send("t", b"v", partition=1)
    assert metric(producer, "buffer-exhausted-total") == 1
    assert waits(producer) == [0, 0, 0]


def test_a_record_that_a_callback_sends_without_metadata_had_no_want_of_memory() -> None:
    producer = ScriptedProducer()
    with pytest.raises(BufferExhaustedError, match="metadata"):
        producer.send("t", b"v")
    assert metric(producer, "buffer-exhausted-total") == 0


def test_what_threads_measure_at_the_same_time_is_all_counted() -> None:
    """The clock advances at each reading, so that each window ends then, where threads collide."""
    numbers = itertools.count(step=NS_PER_MS)
    calls = CallMetrics(
        ProducerConfig.from_settings(
            {"bootstrap_servers": "localhost:9092", "metrics_sample_window_ms": 1}
        ),
        lambda: next(numbers),
    )
    thread_count, wait_count = 4, 10_000
    start = threading.Barrier(thread_count)

    def wait() -> None:
        start.wait()
        for _ in range(wait_count):
            with calls.waiting(Wait.FLUSH):
                pass

    threads = [threading.Thread(target=wait) for _ in range(thread_count)]
    previous_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(previous_s)
    assert calls._waited_ns[Wait.FLUSH].count == thread_count * wait_count
