"""ConsumerMetrics: the metrics of a consumer that has read records."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from pykclient.consumer.metrics import ConsumerMetrics
from pykclient.consumer.subscription import SubscriptionState
from pykclient.metrics import CONSUMER, FETCHING, MetricName
from pykclient.types import IsolationLevel, TopicPartition
from tests.consumer.serving_port import (
    LONG_S,
    A,
    B,
    ServingPort,
    consumer_over,
    poll_until,
    refuse_twos,
)
from tests.metrics_table import documented

if TYPE_CHECKING:
    from pykclient.consumer.consumer import Consumer

START_MS = 1_000_000


def of(consumer: Consumer, name: str, partition: TopicPartition | None = None) -> float | None:
    tags = () if partition is None else (("topic", "t"), ("partition", str(partition.partition)))
    return consumer.metrics().get(MetricName(name, FETCHING, tags))


@pytest.mark.promise("metrics, including lag by partition, match `docs/metrics.md`")
def test_what_is_reported_is_documented_and_what_is_documented_is_reported(
    consumer: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(3)
    consumer.poll(LONG_S)
    consumer.poll(0)
    consumer._wiring.subscription.require(A).log_start_offset = 0
    reported = {(metric.group, metric.name) for metric in consumer.metrics()}
    assert reported == documented("consumer")


def test_records_bytes_and_fetches_are_counted(consumer: Consumer, port: ServingPort) -> None:
    port.logs[0].append(30)
    assert len(poll_until(consumer, 30)) == 30
    assert of(consumer, "records-consumed-total") == 30
    size_bytes = sum(len(b"key") + len(b"value %d" % number) for number in range(30))
    encoded_bytes = of(consumer, "bytes-consumed-total")
    fetch_count, fetched_bytes = of(consumer, "fetch-total"), of(consumer, "fetch-size-max")
    assert encoded_bytes is not None
    assert fetch_count is not None
    assert fetched_bytes is not None
    assert size_bytes < encoded_bytes < fetched_bytes
    assert fetch_count >= 1


def test_iteration_counts_too(port: ServingPort) -> None:
    port.logs[0].append(4)
    with consumer_over(port, A, consumer_timeout_ms=250) as consumer:
        assert len(list(consumer)) == 4
        assert of(consumer, "records-consumed-total") == 4


@pytest.mark.promise("metrics, including lag by partition, match `docs/metrics.md`")
def test_lag_is_reported_by_partition_and_moves_with_the_position(
    consumer: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(10)
    port.logs[1].append(4)
    consumer.assign([A, B])
    assert of(consumer, "records-lag", A) is None
    poll_until(consumer, 14)
    consumer.seek(A, 3)
    assert (of(consumer, "records-lag", A), of(consumer, "records-lag", B)) == (7, 0)
    assert of(consumer, "records-lag-max") == 7 == consumer.current_lag(A)
    consumer.assign([B])
    assert of(consumer, "records-lag", A) is None


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_a_request_of_the_end_offset_brings_the_lag_up_to_date(
    port: ServingPort, level: str
) -> None:
    port.logs[0].append(10)
    with consumer_over(port, A, isolation_level=level) as consumer:
        poll_until(consumer, 10)
        consumer.pause([A])
        port.logs[0].append(5)
        assert not consumer.current_lag(A)
        assert consumer.end_offsets([A, B]) == {A: 15, B: 0}
        assert consumer.current_lag(A) == 5 == of(consumer, "records-lag", A)


def test_what_was_passed_over_is_counted(port: ServingPort) -> None:
    port.logs[0].append(4)
    with consumer_over(port, A, value_deserializer=refuse_twos, on_record_error="skip") as consumer:
        poll_until(consumer, 3)
        assert of(consumer, "records-skipped-total") == 1


@pytest.mark.promise("metrics, including lag by partition, match `docs/metrics.md`")
def test_another_thread_may_call(consumer: Consumer) -> None:
    reported: list[object] = []
    with consumer._wiring.guard:
        other = threading.Thread(target=lambda: reported.append(consumer.metrics()))
        other.start()
        other.join()
    assert reported


def test_polls_are_timed_from_one_to_the_next() -> None:
    metrics = ConsumerMetrics(SubscriptionState(), IsolationLevel.READ_UNCOMMITTED)
    for now_ms in (START_MS, START_MS + 100, START_MS + 400):
        metrics.on_poll(now_ms)
    metrics_now = metrics.snapshot(START_MS + 1_400)
    assert metrics_now[MetricName("time-between-poll-avg", CONSUMER)] == 200
    assert metrics_now[MetricName("time-between-poll-max", CONSUMER)] == 300
    assert metrics_now[MetricName("last-poll-seconds-ago", CONSUMER)] == 1


def test_lag_is_counted_to_the_end_of_the_isolation_level() -> None:
    subscription = SubscriptionState()
    subscription.assign([A])
    assigned = subscription.require(A)
    subscription.seek(assigned, 10)
    assigned.high_watermark, assigned.last_stable_offset, assigned.log_start_offset = 50, 30, 4
    for level, lag in (
        (IsolationLevel.READ_UNCOMMITTED, 40),
        (IsolationLevel.READ_COMMITTED, 20),
    ):
        metrics_now = ConsumerMetrics(subscription, level).snapshot(START_MS)
        assert metrics_now[MetricName("records-lag-max", FETCHING)] == lag
        assert metrics_now[MetricName("records-lead-min", FETCHING)] == 6
