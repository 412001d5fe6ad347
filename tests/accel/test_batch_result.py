"""Where the records of a batch stand, and what a delivery asks of that."""

from __future__ import annotations

import asyncio
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from types import ModuleType

    from pykclient.accel.pure import BatchResult


class Place(NamedTuple):
    """What a producer has as RecordMetadata."""

    topic: str
    partition: int
    offset: int | None
    timestamp_ms: int | None


TIMES_MS = (50, 50, 70, 60, 60)


def unexpected(function: object) -> None:
    pytest.fail(f"{function!r} failed")


@pytest.fixture
def result(core: ModuleType) -> BatchResult[Place]:
    """The result of a batch of five records."""
    made: BatchResult[Place] = core.BatchResult(Place, "t", 3)
    appender = core.RecordAppender(1000, None, nullcontext())
    made.follow(appender)
    for timestamp_ms in TIMES_MS:
        appender.append(timestamp_ms, None, b"")
    appender.seal()
    made.base_offset = 2**40
    return made


@pytest.mark.promise("deliveries and callbacks report each record's own offset and time")
def test_each_record_has_its_own_offset_and_time(result: BatchResult[Place]) -> None:
    places = [result.where(index) for index in range(5)]
    assert places == [
        Place("t", 3, 2**40 + index, timestamp_ms) for index, timestamp_ms in enumerate(TIMES_MS)
    ]
    assert {type(place) for place in places} == {Place}
    assert places[2].timestamp_ms == 70


def test_the_time_of_the_log_is_that_of_all_records(result: BatchResult[Place]) -> None:
    result.log_append_time_ms = 99
    assert {result.where(index).timestamp_ms for index in range(5)} == {99}


def test_an_offset_that_nobody_told_is_none(result: BatchResult[Place]) -> None:
    result.base_offset = None
    assert result.where(4) == Place("t", 3, None, 60)


@pytest.mark.promise("offsets and times are right up to the ends of 64 bits, and refused beyond")
def test_offsets_that_a_broker_lets_run_out_of_64_bits_do_not_begin_again(
    result: BatchResult[Place],
) -> None:
    result.base_offset = 2**63 - 2
    assert [result.where(index).offset for index in range(4)] == [
        2**63 - 2, 2**63 - 1, 2**63, 2**63 + 1,
    ]  # fmt: skip


@pytest.mark.promise("deliveries and callbacks report each record's own offset and time")
def test_callbacks_hear_where_their_records_stand_in_order(
    core: ModuleType, result: BatchResult[Place]
) -> None:
    told: list[tuple[Place, Exception | None]] = []

    def on_delivery(place: Place, error: Exception | None) -> None:
        told.append((place, error))

    appender = core.RecordAppender(1000, None, nullcontext())
    for index, timestamp_ms in enumerate(TIMES_MS):
        appender.append(timestamp_ms, None, b"", None, on_delivery if index != 1 else None)
    assert len(appender.callbacks) == 4
    result.report(appender.callbacks, unexpected)
    assert told == [(result.where(index), None) for index in (0, 2, 3, 4)]


@pytest.mark.promise("a callback that raises keeps no other callback from running")
@pytest.mark.parametrize(
    "error",
    [ZeroDivisionError, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError],
)
def test_a_callback_that_raises_anything_is_told_of_and_keeps_nobody_from_hearing(
    result: BatchResult[Place], error: type[BaseException]
) -> None:
    heard: list[int | None] = []
    failed: list[tuple[object, object]] = []

    def bad(_place: Place, _error: Exception | None) -> None:
        raise error

    def good(place: Place, _error: Exception | None) -> None:
        heard.append(place.offset)

    result.report(
        [(0, good), (1, bad), (2, good)],
        lambda function: failed.append((function, sys.exc_info()[0])),
    )
    assert heard == [2**40, 2**40 + 2]
    assert failed == [(bad, error)]


@pytest.mark.promise("deliveries and callbacks report each record's own offset and time")
def test_a_delivery_asks_no_further_once_all_is_well(
    core: ModuleType, result: BatchResult[Place]
) -> None:
    delivery = core.Delivery(result, 2)
    # A result alone has no answers to these: a producer's result, derived from it, has.
    with pytest.raises(AttributeError):
        delivery.done()
    result.is_well = True
    assert delivery.done() is True
    assert delivery.exception() is None
    assert delivery.result() == delivery.get(timeout=0) == Place("t", 3, 2**40 + 2, 70)
