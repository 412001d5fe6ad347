"""A delivery calls its batch with its own index; what the records of a batch have in common."""

from __future__ import annotations

import asyncio
import copy
import pickle
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pykclient.errors import UsageError

if TYPE_CHECKING:
    from types import ModuleType

    from pykclient.accel.pure import BatchResult

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


class Batch:
    """A batch whose records all have the result "their index"."""

    def __init__(self) -> None:
        self.received: list[tuple[object, ...]] = []
        self.calls: list[Callable[[], object]] = []

    def is_done(self, index: int) -> bool:
        self.received.append(("is_done", index))
        return True

    def result(self, index: int, timeout: float | None) -> str:
        self.received.append(("result", index, timeout))
        return f"record {index}"

    def exception(self, index: int, timeout: float | None) -> Exception | None:
        self.received.append(("exception", index, timeout))
        return None

    def add_done_callback(self, index: int, function: Callable[[], object]) -> None:
        self.received.append(("add_done_callback", index))
        self.calls.append(function)

    def describe(self, index: int) -> str:
        return f"record {index}"


def test_it_shows_the_state_of_its_batch(core: ModuleType) -> None:
    assert repr(core.Delivery(Batch(), 7)) == "<Delivery: record 7>"
    assert repr(core.Delivery(None, 7)) == "<Delivery: without a batch>"


@pytest.mark.parametrize("send", [pickle.dumps, copy.copy, copy.deepcopy])
def test_it_refuses_to_be_pickled_or_copied(
    core: ModuleType, send: Callable[[object], object]
) -> None:
    with pytest.raises(UsageError, match=r"a Delivery cannot be pickled.*result\(\)"):
        send(core.Delivery(Batch(), 7))


def test_each_method_calls_the_batch_with_its_index(core: ModuleType) -> None:
    batch = Batch()
    delivery = core.Delivery(batch, 7)
    assert delivery.done() is True
    assert delivery.result() == "record 7"
    assert delivery.result(timeout=1.5) == "record 7"
    assert delivery.get(2) == "record 7"
    assert delivery.exception(0) is None
    assert batch.received == [
        ("is_done", 7),
        ("result", 7, None),
        ("result", 7, 1.5),
        ("result", 7, 2),
        ("exception", 7, 0),
    ]


def test_a_done_callback_is_called_with_the_delivery(core: ModuleType) -> None:
    batch = Batch()
    delivery = core.Delivery(batch, 2)
    seen: list[object] = []
    delivery.add_done_callback(seen.append)
    assert seen == []
    for call in batch.calls:
        call()
    assert seen == [delivery]


class Place(NamedTuple):
    """A stand-in for the producer's RecordMetadata."""

    topic: str
    partition: int
    offset: int | None
    timestamp_ms: int | None


TIMES_MS = (50, 50, 70, 60, 60)


def unexpected(function: object) -> None:
    pytest.fail(f"{function!r} failed")


@pytest.fixture
def result(core: ModuleType) -> BatchResult[Place]:
    """Provide the result of a batch of five records."""
    made: BatchResult[Place] = core.BatchResult(Place, "t", 3)
    appender = core.RecordAppender(1000, None, nullcontext())
    made.follow(appender)
    for timestamp_ms in TIMES_MS:
        appender.append(timestamp_ms, None, b"")
    appender.seal()
    made.base_offset = 2**40
    return made


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


def test_an_offset_that_the_response_lacks_is_none(result: BatchResult[Place]) -> None:
    result.base_offset = None
    assert result.where(4) == Place("t", 3, None, 60)


def test_offsets_that_a_broker_lets_run_out_of_64_bits_do_not_begin_again(
    result: BatchResult[Place],
) -> None:
    result.base_offset = 2**63 - 2
    assert [result.where(index).offset for index in range(4)] == [
        2**63 - 2, 2**63 - 1, 2**63, 2**63 + 1,
    ]  # fmt: skip


def test_callbacks_get_the_offsets_of_their_records_in_order(
    core: ModuleType, result: BatchResult[Place]
) -> None:
    reported: list[tuple[Place, Exception | None]] = []

    def on_delivery(place: Place, error: Exception | None) -> None:
        reported.append((place, error))

    appender = core.RecordAppender(1000, None, nullcontext())
    for index, timestamp_ms in enumerate(TIMES_MS):
        appender.append(timestamp_ms, None, b"", None, on_delivery if index != 1 else None)
    assert len(appender.callbacks) == 4
    result.report(appender.callbacks, unexpected)
    assert reported == [(result.where(index), None) for index in (0, 2, 3, 4)]


@pytest.mark.parametrize(
    "error",
    [ZeroDivisionError, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError],
)
def test_a_callback_that_raises_is_logged_and_does_not_keep_others_from_being_called(
    result: BatchResult[Place], error: type[BaseException]
) -> None:
    offsets: list[int | None] = []
    failed: list[tuple[object, object]] = []

    def bad(_place: Place, _error: Exception | None) -> None:
        raise error

    def good(place: Place, _error: Exception | None) -> None:
        offsets.append(place.offset)

    result.report(
        [(0, good), (1, bad), (2, good)],
        lambda function: failed.append((function, sys.exc_info()[0])),
    )
    assert offsets == [2**40, 2**40 + 2]
    assert failed == [(bad, error)]


def test_a_delivery_of_a_successful_batch_needs_no_other_call(
    core: ModuleType, result: BatchResult[Place]
) -> None:
    delivery = core.Delivery(result, 2)
    # A result alone lacks these methods: a producer's result, derived from it, has them.
    with pytest.raises(AttributeError):
        delivery.done()
    result.is_well = True
    assert delivery.done() is True
    assert delivery.exception() is None
    assert delivery.result() == delivery.get(timeout=0) == Place("t", 3, 2**40 + 2, 70)
