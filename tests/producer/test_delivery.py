"""ProduceResult and its deliveries: available results, and the order of callbacks."""

from __future__ import annotations

import gc
import logging
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from pykclient.accel import RecordAppender
from pykclient.errors import (
    AuthenticationError,
    DeliveryTimeoutError,
    KafkaError,
    KafkaTimeoutError,
    UsageError,
)
from pykclient.producer.delivery import NEXT, ProduceResult, ResultState
from pykclient.producer.failure_reports import FailureReports
from pykclient.producer.record import RecordMetadata
from pykclient.types import OffsetAndTimestamp, TopicPartition
from tests.producer.sender_bench import NoWaiting

if TYPE_CHECKING:
    from pykclient.accel import Delivery
    from pykclient.accel.abc import OnDelivery

PARTITION = TopicPartition("t", 3)
REPORTS = FailureReports("", lambda: 0)


class OpenBatch:
    """A result and the appender that fills it."""

    def __init__(self) -> None:
        lock = threading.Lock()
        self.result = ProduceResult(PARTITION, REPORTS, NoWaiting())
        self.appender: RecordAppender[RecordMetadata] = RecordAppender(1_000, self.result, lock)
        self.result.follow(self.appender)

    def append(
        self, timestamp_ms: int = 7, on_delivery: OnDelivery[RecordMetadata] | None = None
    ) -> Delivery[RecordMetadata]:
        delivery = self.appender.append(timestamp_ms, None, b"v", (), on_delivery)
        assert delivery is not None
        return delivery

    def succeed(self, base_offset: int | None, log_append_time_ms: int | None) -> None:
        self.result.succeed(base_offset, log_append_time_ms)
        self.run_callbacks()

    def fail(self, error: KafkaError, *record_errors: Any, **counts: Any) -> None:
        self.result.fail(error, *record_errors, **counts)
        self.run_callbacks()

    def run_callbacks(self) -> None:
        """End a result as a driver does."""
        call = self.result.take_call()
        if call is not None:
            call()


@pytest.fixture
def batch() -> OpenBatch:
    return OpenBatch()


@pytest.mark.parametrize("timeout", [-1, -0.001, float("nan")])
def test_a_timeout_below_zero_does_not_wait(batch: OpenBatch, timeout: float) -> None:
    delivery = batch.append()
    for wait in (delivery.result, delivery.exception):
        with pytest.raises(UsageError, match="give seconds, from 0"):
            wait(timeout=timeout)


@pytest.mark.parametrize(
    ("timestamp_ms", "expected"),
    [(None, None), (-1, None), (1_500, datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC))],
)
def test_what_comes_back_has_its_time_as_a_datetime(
    timestamp_ms: int | None, expected: datetime | None
) -> None:
    assert RecordMetadata("t", 3, 100, timestamp_ms).timestamp == expected
    assert timestamp_ms is None or OffsetAndTimestamp(100, timestamp_ms).timestamp == expected


@pytest.mark.promise("`send` returns a delivery that reports partition, offset and timestamp")
def test_a_delivery_has_the_offset_of_its_place_and_its_own_timestamp(batch: OpenBatch) -> None:
    deliveries = [batch.append(timestamp_ms) for timestamp_ms in (7, 7, 9, 8, 8)]
    batch.succeed(100, None)
    assert [delivery.result() for delivery in deliveries] == [
        RecordMetadata("t", 3, 100, 7),
        RecordMetadata("t", 3, 101, 7),
        RecordMetadata("t", 3, 102, 9),
        RecordMetadata("t", 3, 103, 8),
        RecordMetadata("t", 3, 104, 8),
    ]


def test_the_broker_may_set_the_time_and_may_not_know_the_offset(batch: OpenBatch) -> None:
    delivery = batch.append()
    batch.succeed(None, 99)
    assert delivery.get() == RecordMetadata("t", 3, None, 99)
    assert delivery.exception() is None


def test_the_error_of_a_wait_that_runs_out_says_what_the_brokers_refuse(
    monkeypatch: pytest.MonkeyPatch, batch: OpenBatch
) -> None:
    refusal = AuthenticationError("bootstrap server b:1: the broker refused the user")
    monkeypatch.setattr(NoWaiting, "failures", lambda _: (str(refusal), refusal), raising=False)
    with pytest.raises(
        KafkaTimeoutError, match=r"delivery_timeout_ms; bootstrap server b:1: the broker"
    ) as raised:
        batch.append().result(timeout=1.5)
    assert raised.value.__cause__ is refusal


def test_a_wait_that_runs_out_is_no_failure_of_the_delivery(batch: OpenBatch) -> None:
    delivery = batch.append()
    with pytest.raises(KafkaTimeoutError, match=r"t-3.*1500 ms.*still under way") as raised:
        delivery.result(timeout=1.5)
    assert type(raised.value) is KafkaTimeoutError
    assert raised.value.__cause__ is None
    with pytest.raises(TimeoutError):
        delivery.exception(timeout=0)
    assert not delivery.done()


def test_all_deliveries_of_a_failed_batch_raise_its_error_without_piling_up_tracebacks(
    batch: OpenBatch,
) -> None:
    deliveries = [batch.append() for _ in range(3)]
    error = KafkaError("no")
    batch.fail(error)
    depths = []
    for delivery in deliveries:
        assert delivery.exception() is error
        with pytest.raises(KafkaError) as raised:
            delivery.result()
        depths.append(len(raised.traceback))
    assert len(set(depths)) == 1


def test_a_record_may_fail_by_an_error_of_its_own(batch: OpenBatch) -> None:
    deliveries = [batch.append() for _ in range(2)]
    whole, own = KafkaError("whole"), KafkaError("own")
    batch.fail(whole, {1: own})
    assert [delivery.exception() for delivery in deliveries] == [whole, own]


@pytest.mark.promise("callbacks run in order")
def test_callbacks_come_in_order_then_the_waiting_then_done_callbacks(batch: OpenBatch) -> None:
    order: list[object] = []
    second = batch.append(on_delivery=lambda metadata, _: order.append(("first", metadata.offset)))
    first = batch.append(
        on_delivery=lambda metadata, _: order.append(("second", metadata.offset, first.done()))
    )
    first.add_done_callback(lambda delivery: order.append(("done", delivery.result().offset)))
    second.add_done_callback(lambda delivery: order.append(("done", delivery.result().offset)))
    batch.result.add_waker(0, lambda: order.append("woken"))
    batch.result.succeed(10, None)
    assert order == []
    batch.run_callbacks()
    assert order == [("first", 10), ("second", 11, False), "woken", ("done", 10), ("done", 11)]


def test_a_callback_of_a_failure_has_metadata_without_an_offset(batch: OpenBatch) -> None:
    calls: list[object] = []
    batch.append(9, on_delivery=lambda *arguments: calls.append(arguments))
    error = KafkaError("no")
    batch.fail(error)
    assert calls == [(RecordMetadata("t", 3, None, 9), error)]


def test_one_callback_that_fails_is_logged_and_the_others_are_called(
    batch: OpenBatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int | None] = []

    def fail(metadata: RecordMetadata, error: Exception | None) -> None:
        raise ValueError("the application's own")

    def fail_too(delivery: Delivery[RecordMetadata]) -> None:
        raise ValueError("as well")

    batch.append(on_delivery=fail)
    delivery = batch.append(on_delivery=lambda metadata, _: calls.append(metadata.offset))
    delivery.add_done_callback(fail_too)
    delivery.add_done_callback(lambda delivery: calls.append(delivery.result().offset))
    batch.result.succeed(10, None)
    with caplog.at_level(logging.ERROR, "pykclient.producer"):
        batch.run_callbacks()
    assert calls == [11, 11]
    assert ["t-3" in record.getMessage() for record in caplog.records] == [True, True]


def test_a_callback_that_exits_does_not_keep_others_from_being_called(
    batch: OpenBatch, caplog: pytest.LogCaptureFixture
) -> None:
    def leave(metadata: RecordMetadata, error: Exception | None) -> None:
        raise SystemExit

    delivery = batch.append(on_delivery=leave)
    batch.succeed(10, None)
    assert delivery.done()
    assert "SystemExit" in caplog.text


def test_a_done_callback_that_comes_late_is_called_at_once(batch: OpenBatch) -> None:
    delivery = batch.append()
    batch.succeed(10, None)
    calls: list[int | None] = []
    delivery.add_done_callback(lambda delivery: calls.append(delivery.result().offset))
    assert calls == [10]


def test_a_waker_that_comes_late_is_called_at_once_and_one_removed_never(batch: OpenBatch) -> None:
    batch.append()
    woken: list[str] = []

    def removed() -> None:
        woken.append("removed")

    batch.result.add_waker(0, removed)
    batch.result.remove_waker(0, removed)
    batch.succeed(10, None)
    batch.result.add_waker(0, lambda: woken.append("late"))
    assert woken == ["late"]


def test_without_callbacks_nothing_has_to_be_called(batch: OpenBatch) -> None:
    delivery = batch.append()
    batch.result.succeed(10, None)
    assert batch.result.take_call() is None
    assert delivery.done()


def test_the_parts_of_a_split_batch_report_each_their_own_records() -> None:
    calls: list[object] = []
    whole, first, second = OpenBatch(), OpenBatch(), OpenBatch()
    deliveries = [whole.append() for _ in range(3)]
    deliveries[2].add_done_callback(lambda delivery: calls.append(delivery.exception()))
    whole.result.add_waker(0, lambda: calls.append("woken"))
    first.append()
    second.append(8)
    second.append(8)
    whole.result.split(((0, first.result), (1, second.result)))
    assert calls == ["woken"]
    assert [delivery.done() for delivery in deliveries] == [False] * 3
    first.succeed(10, None)
    assert [delivery.done() for delivery in deliveries] == [True, False, False]
    whole.result.add_waker(1, lambda: calls.append("second woken"))
    error = KafkaError("no")
    second.fail(error)
    assert calls == ["woken", "second woken", error]
    assert deliveries[0].result() == RecordMetadata("t", 3, 10, 7)
    assert deliveries[1].exception() is error
    assert whole.result.metadata(2) == RecordMetadata("t", 3, None, 8)


def test_a_result_ends_once() -> None:
    assert {state for state, following in NEXT.items() if following} == {ResultState.PENDING}
    batch = OpenBatch()
    batch.append()
    batch.result.succeed(1, None)
    with pytest.raises(AssertionError):
        batch.result.fail(KafkaError("too late"))


def test_it_shows_where_the_record_goes_and_how_it_ended(batch: OpenBatch) -> None:
    first, second = batch.append(), batch.append()
    assert repr(second) == "<Delivery: t-3, under way>"
    batch.succeed(100, None)
    assert (repr(first), repr(second)) == (
        "<Delivery: t-3, delivered at offset 100>",
        "<Delivery: t-3, delivered at offset 101>",
    )


def test_it_shows_a_failure_and_an_offset_that_is_not_known() -> None:
    failed, unknown = OpenBatch(), OpenBatch()
    deliveries = [failed.append(), unknown.append()]
    failed.result.fail(KafkaTimeoutError("too late"))
    unknown.result.succeed(None, None)
    for batch in (failed, unknown):
        batch.run_callbacks()
    assert list(map(repr, deliveries)) == [
        "<Delivery: t-3, failed by KafkaTimeoutError: too late>",
        "<Delivery: t-3, delivered>",
    ]


@pytest.mark.parametrize("is_seen", [False, True])
def test_an_unseen_failure_is_reported_when_its_delivery_is_dropped(
    caplog: pytest.LogCaptureFixture, is_seen: bool
) -> None:
    batch = OpenBatch()
    delivery = batch.append()
    batch.append(on_delivery=lambda *_: None)
    batch.fail(DeliveryTimeoutError("too late"), record_count=2)
    if is_seen:
        assert delivery.exception() is not None
    del delivery, batch
    gc.collect()
    REPORTS.log_unseen()
    assert ("1 records for t-3 were not delivered" in caplog.text) == (not is_seen)
