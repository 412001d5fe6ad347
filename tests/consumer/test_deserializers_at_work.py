"""The application's deserializers: they run without the core lock, and may call the consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.errors import ClosedError, RecordDeserializationError
from tests.consumer.fetched_records import marker, value_at
from tests.consumer.serving_port import (
    LONG_S,
    SHORT_S,
    A,
    B,
    ServingPort,
    consumer_over,
    offsets,
    poll_until,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class Deserializer:
    """A deserializer that does something once, at one record, and notes the records it got."""

    def __init__(self, at: int, act: Callable[[], object]) -> None:
        self.values: list[bytes] = []
        self._at = value_at(at)
        self._act: Callable[[], object] | None = act

    def __call__(self, data: bytes) -> str:
        self.values.append(data)
        act = self._act
        if act is not None and data == self._at:
            self._act = None
            act()
        return data.decode()


def three_runs(port: ServingPort) -> None:
    """Fill the first partition with offsets 0 to 7 without 2 and 5: three runs of records."""
    port.logs[0].append(2)
    port.logs[0].append(1, marker(2, 9))
    port.logs[0].append(2)
    port.logs[0].append(1, marker(5, 9))
    port.logs[0].append(2)


OFFSETS = [0, 1, 3, 4, 6, 7]


@pytest.mark.parametrize("is_iterated", [False, True])
def test_they_run_without_the_core_lock(port: ServingPort, is_iterated: bool) -> None:
    three_runs(port)
    held: list[bool] = []
    deserializer = Deserializer(4, lambda: held.append(consumer._wiring.guard.is_held))
    with consumer_over(port, A, value_deserializer=deserializer) as consumer:
        records = iter(consumer)
        if is_iterated:
            assert [next(records).offset for _ in range(6)] == OFFSETS
        else:
            assert poll_until(consumer, 6) == OFFSETS
    assert held == [False]


@pytest.mark.parametrize("sought", [0, 4, 7])
def test_one_may_seek_and_reading_goes_on_there(port: ServingPort, sought: int) -> None:
    three_runs(port)
    deserializer = Deserializer(4, lambda: consumer.seek(A, sought))
    with consumer_over(port, A, value_deserializer=deserializer) as consumer:
        rest = [offset for offset in OFFSETS if offset >= sought]
        assert poll_until(consumer, 2 + len(rest)) == [0, 1, *rest]


def test_one_may_pause_and_nothing_of_that_run_is_returned(port: ServingPort) -> None:
    three_runs(port)
    deserializer = Deserializer(4, lambda: consumer.pause([A]))
    with consumer_over(port, A, value_deserializer=deserializer) as consumer:
        assert poll_until(consumer, 2) == [0, 1]
        assert offsets(consumer.poll(SHORT_S)) == []
        assert consumer.position(A) == 3
        consumer.resume([A])
        assert poll_until(consumer, 4) == [3, 4, 6, 7]


def test_one_that_seeks_and_fails_has_sought(port: ServingPort) -> None:
    three_runs(port)

    def seek_and_fail() -> None:
        consumer.seek(A, 6)
        raise ValueError

    with consumer_over(port, A, value_deserializer=Deserializer(3, seek_and_fail)) as consumer:
        assert poll_until(consumer, 4) == [0, 1, 6, 7]


def test_one_may_give_the_partition_up(port: ServingPort) -> None:
    """Records of a partition that is no longer assigned are not returned."""
    three_runs(port)
    port.logs[1].append(2)
    deserializer = Deserializer(4, lambda: consumer.assign([B]))
    with consumer_over(port, A, value_deserializer=deserializer) as consumer:
        records = consumer.poll(LONG_S)
        assert records.partitions == (B,)
        assert offsets(records) == [0, 1]


@pytest.mark.parametrize("is_iterated", [False, True])
def test_one_may_close_the_consumer(port: ServingPort, is_iterated: bool) -> None:
    three_runs(port)
    consumer = consumer_over(port, A, value_deserializer=Deserializer(4, lambda: consumer.close()))
    with pytest.raises(ClosedError):
        list(consumer) if is_iterated else poll_until(consumer, 6)
    assert port.is_shut_down


@pytest.mark.parametrize("is_iterated", [False, True])
def test_one_that_reads_is_refused(port: ServingPort, is_iterated: bool) -> None:
    three_runs(port)

    def read() -> None:
        if is_iterated:
            next(iter(consumer))
        else:
            consumer.poll(LONG_S)

    with consumer_over(port, A, value_deserializer=Deserializer(0, read)) as consumer:
        with pytest.raises(RecordDeserializationError, match="bytes that it gets, and poll after"):
            consumer.poll(LONG_S)
        assert consumer.position(A) == 0


def interrupt() -> None:
    raise KeyboardInterrupt


def test_an_interrupt_in_one_loses_nothing(port: ServingPort) -> None:
    three_runs(port)
    with consumer_over(port, A, value_deserializer=Deserializer(4, interrupt)) as consumer:
        with pytest.raises(KeyboardInterrupt):
            poll_until(consumer, 6)
        assert consumer.position(A) == 0
        assert poll_until(consumer, 6) == OFFSETS


def test_an_interrupt_in_one_ends_an_iteration_where_it_is(port: ServingPort) -> None:
    three_runs(port)
    with consumer_over(port, A, value_deserializer=Deserializer(4, interrupt)) as consumer:
        records = iter(consumer)
        assert [next(records).offset for _ in range(2)] == [0, 1]
        with pytest.raises(KeyboardInterrupt):
            next(records)
        assert consumer.position(A) == 2
        assert poll_until(consumer, 4) == [3, 4, 6, 7]


def test_an_interrupt_leaves_a_position_that_one_has_set(port: ServingPort) -> None:
    three_runs(port)

    def seek_and_interrupt() -> None:
        consumer.seek(A, 6)
        raise KeyboardInterrupt

    deserializer = Deserializer(1, seek_and_interrupt)
    with consumer_over(port, A, value_deserializer=deserializer) as consumer:
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(LONG_S)
        assert consumer.position(A) == 6
        assert poll_until(consumer, 2) == [6, 7]
