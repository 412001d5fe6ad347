"""BulkResult: what it reports for many rows whose batches end one by one."""

from __future__ import annotations

import logging
from array import array

import pytest

from pykclient.errors import BatchDeliveryError, KafkaError, KafkaTimeoutError, UsageError
from pykclient.producer.accumulator.append import AppendedRows
from pykclient.producer.bulk.delivery import BulkResult, RecordMetadataRange
from pykclient.producer.delivery import ProduceResult
from pykclient.producer.failure_reports import FailureReports
from pykclient.types import TopicPartition
from tests.producer.sender_bench import NoWaiting


def batch(partition: int = 0) -> ProduceResult:
    return ProduceResult(TopicPartition("t", partition), FailureReports("", lambda: 0), NoWaiting())


def end(
    result: ProduceResult, base_offset: int | None = 0, error: KafkaError | None = None
) -> None:
    """End a batch as sender and driver do."""
    if error is None:
        result.succeed(base_offset, 7)
    else:
        result.fail(error)
    run_callbacks(result)


def run_callbacks(result: ProduceResult) -> None:
    call = result.take_call()
    if call is not None:
        call()


def filled(row_count: int, *appended: AppendedRows) -> BulkResult:
    bulk = BulkResult(row_count, FailureReports("", lambda: 0), NoWaiting())
    for rows in appended:
        bulk.add(rows)
    bulk.seal()
    return bulk


def test_it_is_done_when_its_last_batch_is() -> None:
    first, second = batch(0), batch(1)
    bulk = filled(5, AppendedRows(first, 10, range(3)), AppendedRows(second, 0, range(3, 5)))
    end(second, 40)
    assert not bulk.is_done(0)
    assert not bulk.is_decided(0)
    end(first, 100)
    assert bulk.is_done(0)
    assert bulk.result(0, None) == [
        RecordMetadataRange("t", 0, 110, 3),
        RecordMetadataRange("t", 1, 40, 2),
    ]


def test_batches_may_end_while_rows_are_still_appended() -> None:
    result = batch()
    bulk = BulkResult(4, FailureReports("", lambda: 0), NoWaiting())
    had_rows = [bulk.has_rows]
    bulk.add(AppendedRows(result, 0, range(2)))
    assert [*had_rows, bulk.has_rows] == [False, True]
    end(result, 5)
    later = batch()
    bulk.add(AppendedRows(later, 0, range(2, 4)))
    assert not bulk.is_done(0)
    bulk.seal()
    end(later, 7)
    assert bulk.result(0, None) == [RecordMetadataRange("t", 0, 5, 4)]


def test_contiguous_spans_are_one_part() -> None:
    result = batch()
    spans = [AppendedRows(result, start, range(start, start + 10)) for start in (0, 10, 20)]
    bulk = filled(30, *spans)
    end(result, 3)
    assert bulk.result(0, None) == [RecordMetadataRange("t", 0, 3, 30)]


def test_ranges_without_offsets_are_not_joined() -> None:
    first, second = batch(), batch()
    bulk = filled(2, AppendedRows(first, 0, range(1)), AppendedRows(second, 0, range(1, 2)))
    end(first, None)
    end(second, None)
    assert bulk.result(0, None) == [RecordMetadataRange("t", 0, None, 1)] * 2


def test_what_failed_is_reported_by_its_rows() -> None:
    good, bad = batch(0), batch(1)
    rows = array("q", [1, 2, 5, 9])
    bulk = filled(
        10, AppendedRows(good, 0, array("q", [0, 3, 4, 6, 7, 8])), AppendedRows(bad, 0, rows)
    )
    end(good)
    reason = KafkaError("no room")
    end(bad, error=reason)
    with pytest.raises(BatchDeliveryError) as raised:
        bulk.result(0, None)
    error = raised.value
    assert str(error) == (
        "4 of 10 records were not delivered, the first of them at index 1: no room"
    )
    assert error.failed == (range(1, 3), range(5, 6), range(9, 10))
    assert error.sent == (range(1), range(3, 5), range(6, 9))
    assert error.errors == (reason,) * 3
    assert error.__cause__ is reason


def test_neighbours_that_failed_alike_are_one_range_and_others_are_not() -> None:
    first, second, third = batch(), batch(), batch()
    parts = [
        AppendedRows(result, 0, range(start, start + 2))
        for start, result in ((0, first), (2, second), (4, third))
    ]
    bulk = filled(6, *parts)
    end(first, error=KafkaError("same"))
    end(third, error=KafkaError("other"))
    end(second, error=KafkaError("same"))
    error = bulk.exception(0, None)
    assert error is not None
    assert error.failed == (range(4), range(4, 6))
    assert list(map(str, error.errors)) == ["same", "other"]
    assert error.sent == ()


@pytest.mark.promise("a partial failure reports which rows were sent, which were not, and why")
def test_records_that_a_broker_refused_have_their_own_reasons() -> None:
    result = batch()
    bulk = filled(4, AppendedRows(result, 0, range(4)))
    culprit = KafkaError("not signed")
    others = {index: KafkaError("refused with another") for index in (0, 1, 3)}
    result.fail(KafkaError("batch"), {**others, 2: culprit})
    run_callbacks(result)
    error = bulk.exception(0, None)
    assert error is not None
    assert error.failed == (range(2), range(2, 3), range(3, 4))
    assert error.errors[1] is culprit


@pytest.mark.promise("a partial failure reports which rows were sent, which were not, and why")
def test_rows_of_a_split_batch_end_with_its_parts() -> None:
    result = batch()
    bulk = filled(10, AppendedRows(result, 5, range(10)))
    left, middle, right = result.another(), result.another(), result.another()
    result.split(((0, left), (8, middle), (12, right)))
    end(middle, 50)
    assert not bulk.is_done(0)
    end(left, 100)
    assert not bulk.is_done(0)
    end(right, error=KafkaError("no"))
    error = bulk.exception(0, None)
    assert error is not None
    assert (error.sent, error.failed) == ((range(7),), (range(7, 10),))


def test_what_was_never_appended_has_failed() -> None:
    result = batch()
    bulk = BulkResult(10, FailureReports("", lambda: 0), NoWaiting())
    bulk.add(AppendedRows(result, 0, range(4)))
    bulk.refuse(array("q", [4, 6]), KafkaError("stuck"))
    bulk.refuse(range(7, 10), KafkaError("stuck"))
    bulk.refuse(range(5, 6), KafkaError("stuck"))
    bulk.seal()
    end(result)
    error = bulk.exception(0, None)
    assert error is not None
    assert (error.sent, error.failed) == ((range(4),), (range(4, 10),))


def test_a_wait_that_runs_out_is_no_failure() -> None:
    bulk = filled(3, AppendedRows(batch(), 0, range(3)))
    with pytest.raises(KafkaTimeoutError, match=r"not all of 3 records .* 1500 ms"):
        bulk.result(0, 1.5)
    with pytest.raises(UsageError, match="give seconds, from 0"):
        bulk.exception(0, -1)


def test_wakers_that_left_are_not_called() -> None:
    result = batch()
    bulk = filled(1, AppendedRows(result, 0, range(1)))
    called: list[str] = []

    def leave() -> None:
        called.append("left")

    bulk.add_waker(0, leave)
    bulk.remove_waker(0, leave)
    bulk.add_waker(0, lambda: called.append("stayed"))
    end(result)
    bulk.add_waker(0, lambda: called.append("late"))
    assert called == ["stayed", "late"]


def test_a_done_callback_that_fails_is_logged_and_the_next_is_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    result = batch()
    bulk = filled(1, AppendedRows(result, 0, range(1)))
    called: list[int] = []
    bulk.add_done_callback(0, lambda: called.append(1 // 0))
    bulk.add_done_callback(0, lambda: called.append(2))
    with caplog.at_level(logging.ERROR, "pykclient.producer"):
        end(result)
    assert called == [2]
    assert "a done callback for 1 records failed" in caplog.text


def test_a_part_that_is_reported_keeps_no_batch_and_no_row_numbers() -> None:
    result = batch()
    bulk = filled(3, AppendedRows(result, 0, array("q", [0, 1, 2])))
    end(result)
    (part,) = bulk._parts
    assert part.result is None
    assert part.rows == ()


def test_it_shows_how_many_rows_there_are_and_how_they_ended() -> None:
    good, bad = batch(0), batch(1)
    sent = filled(2, AppendedRows(good, 0, range(2)))
    failed = filled(3, AppendedRows(bad, 0, range(3)))
    assert sent.describe(0) == "2 records, under way"
    end(good)
    end(bad, error=KafkaError("no room"))
    assert sent.describe(0) == "2 records delivered"
    assert failed.describe(0).startswith("3 of 3 records were not delivered")
