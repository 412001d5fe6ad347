"""Flushes: which batches each one waits for, and how it ends."""

from __future__ import annotations

import pytest

from pykclient.errors import ClosedError
from pykclient.network.manager import Operation
from pykclient.producer.accumulator.accumulator import Flushes
from tests.producer.test_batch import new_batch


def wanted(flushes: Flushes) -> Operation[None]:
    operation: Operation[None] = Operation()
    flushes.want(operation)
    return operation


def test_a_flush_of_nothing_ends_at_once() -> None:
    flushes = Flushes()
    operation = wanted(flushes)
    flushes.begin(flushes.take_wanted(), ())
    assert operation.is_done
    assert operation.error is None


@pytest.mark.promise("`flush` waits for every record that was sent before it")
def test_a_flush_waits_for_the_batches_of_its_moment_only() -> None:
    flushes = Flushes()
    first, second, later = (new_batch(1) for _ in range(3))
    operation = wanted(flushes)
    flushes.begin(flushes.take_wanted(), [first, second])
    flushes.on_done(later)
    flushes.on_done(second)
    assert not operation.is_done
    flushes.on_done(first)
    assert operation.is_done


@pytest.mark.promise("a flush that timed out leaves nothing behind")
def test_a_flush_that_nobody_waits_for_is_forgotten() -> None:
    flushes = Flushes()
    batch = new_batch(1)
    forgotten, awaited = wanted(flushes), wanted(flushes)
    flushes.begin(flushes.take_wanted(), [batch])
    flushes.forget(forgotten)
    flushes.on_done(batch)
    assert (forgotten.is_done, awaited.is_done) == (False, True)


def test_the_parts_of_a_split_batch_are_waited_for_in_its_place() -> None:
    flushes = Flushes()
    whole, first, second = (new_batch(1) for _ in range(3))
    operation = wanted(flushes)
    flushes.begin(flushes.take_wanted(), [whole])
    flushes.on_split(whole, (first, second))
    flushes.on_done(first)
    assert not operation.is_done
    flushes.on_done(second)
    assert operation.is_done


def test_a_failure_ends_all_flushes_those_to_come_as_well() -> None:
    flushes = Flushes()
    under_way = wanted(flushes)
    flushes.begin(flushes.take_wanted(), [new_batch(1)])
    early = wanted(flushes)
    flushes.fail(ClosedError("closed"))
    for operation in (under_way, early, wanted(flushes)):
        with pytest.raises(ClosedError):
            operation.result()
