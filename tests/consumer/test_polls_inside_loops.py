"""Polls inside a loop over records that continues after them: no record is repeated or lost."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, cast

import pytest

from tests.consumer.serving_port import (
    LONG_S,
    SHORT_S,
    A,
    B,
    consumed,
    consumer_over,
    offsets,
    processed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from typing import Any

    from pykclient.consumer.consumer import Consumer
    from tests.consumer.serving_port import ServingPort

    Over = Callable[[Consumer], Iterable[Any]]


def over_a_batch(consumer: Consumer) -> Iterable[Any]:
    return consumer.poll(LONG_S)


def over_the_consumer(consumer: Consumer) -> Iterable[Any]:
    return islice(consumer, 100)


LOOPS = pytest.mark.parametrize("over", [over_a_batch, over_the_consumer])


@pytest.fixture
def member(port: ServingPort) -> Iterator[Consumer]:
    """Provide a consumer in a group, which reads both partitions from the start."""
    settings = {"group_id": "g", "enable_auto_commit": False, "consumer_timeout_ms": 250}
    with consumer_over(port, A, B, **settings) as consumer:
        consumer.seek(A, 0)
        consumer.seek(B, 0)
        yield consumer


def stay_a_member(consumer: Consumer) -> None:
    """Poll as an application does that works on one record for a long time."""
    active = consumer.assignment() - consumer.paused()
    consumer.pause(active)
    assert offsets(consumer.poll(0)) == []
    consumer.resume(active)


@LOOPS
def test_a_poll_that_keeps_the_membership_disturbs_no_loop(
    member: Consumer, port: ServingPort, over: Over
) -> None:
    port.logs[0].append(3)
    port.logs[0].append(3)
    got = []
    for record in over(member):
        got.append(record.offset)
        stay_a_member(member)
        assert processed(member)[A] == record.offset
        assert consumed(member)[A] == record.offset + 1
        stay_a_member(member)
    assert got == [0, 1, 2, 3, 4, 5]
    assert consumed(member)[A] == 6
    assert offsets(member.poll(SHORT_S)) == []
    assert processed(member)[A] == 6


@LOOPS
def test_a_loop_that_is_left_after_such_a_poll_goes_back(
    member: Consumer, port: ServingPort, over: Over
) -> None:
    port.logs[0].append(6)
    for record in over(member):
        stay_a_member(member)
        if record.offset == 3:
            break
    assert processed(member)[A] == consumed(member)[A] == 3
    assert offsets(member.poll(LONG_S)) == [3, 4, 5]
    assert offsets(member.poll(SHORT_S)) == []


@LOOPS
def test_a_poll_inside_may_return_what_is_behind(
    member: Consumer, port: ServingPort, over: Over
) -> None:
    port.logs[0].append(3)
    got = []
    for record in over(member):
        got.append(record.offset)
        if record.offset == 1:
            port.logs[0].append(3)
            for _ in range(2):
                got += [each.offset for each in member.poll(LONG_S, 1)]
                assert processed(member)[A] == 1, "the record in hand of the outer loop"
                assert consumed(member)[A] == 2
    got += [record.offset for record in member.poll(SHORT_S)]
    assert sorted(got) == [0, 1, 2, 3, 4, 5]
    assert offsets(member.poll(SHORT_S)) == []
    assert processed(member)[A] == 6


@LOOPS
def test_what_a_poll_inside_returned_comes_again_when_the_outer_loop_is_left(
    member: Consumer, port: ServingPort, over: Over
) -> None:
    port.logs[0].append(3)
    for record in over(member):
        if record.offset == 1:
            port.logs[0].append(3)
            list(member.poll(LONG_S, 2))
            break
    assert offsets(member.poll(LONG_S, 10)) == [1, 2, 3, 4, 5]
    assert offsets(member.poll(SHORT_S)) == []


def test_an_iterator_that_is_kept_holds_the_commits_until_it_is_dropped(
    member: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(5)
    iterator = iter(member.poll(LONG_S))
    next(iterator)
    next(iterator)
    assert offsets(member.poll(SHORT_S)) == []
    assert next(iterator).offset == 2
    assert offsets(member.poll(SHORT_S)) == []
    assert processed(member)[A] == 2
    del iterator
    assert offsets(member.poll(LONG_S)) == [2, 3, 4]
    assert offsets(member.poll(SHORT_S)) == []
    assert processed(member)[A] == 5


def test_a_loop_that_ended_with_an_error_is_left_though_the_error_is_kept(
    member: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(5)
    iterator = iter(member)
    assert [next(iterator).offset, next(iterator).offset] == [0, 1]
    error = ZeroDivisionError()
    with suppress(ZeroDivisionError):
        cast("Generator[Any, None, None]", iterator).throw(error)
    assert error.__traceback__ is not None, "it holds the frame of the loop"
    assert processed(member)[A] == consumed(member)[A] == 1
    assert offsets(member.poll(LONG_S, 2)) == [1, 2]
    del iterator, error
    assert offsets(member.poll(LONG_S)) == [3, 4]
    assert offsets(member.poll(SHORT_S)) == []
    assert processed(member)[A] == 5


def test_a_batch_inside_that_comes_again_holds_nothing(member: Consumer, port: ServingPort) -> None:
    port.logs[0].append(6)
    outer = iter(member.poll(LONG_S, 2))
    inner = iter(member.poll(LONG_S, 2))
    assert [next(outer).offset, next(inner).offset] == [0, 2]
    assert offsets(member.poll(LONG_S, 1)) == [4]
    del outer
    assert offsets(member.poll(LONG_S, 6)) == [0, 1, 2, 3, 4, 5]
    assert offsets(member.poll(SHORT_S)) == []
    assert processed(member)[A] == 6, "the inner iterator is alive, and its records came again"
    del inner
    assert offsets(member.poll(SHORT_S)) == []


def test_loops_over_the_consumer_inside_each_other(member: Consumer, port: ServingPort) -> None:
    port.logs[0].append(5)
    got = []
    for outer in member:
        got.append(outer.offset)
        for inner in member:
            got.append(inner.offset)
            assert processed(member)[A] == outer.offset
            assert consumed(member)[A] == outer.offset + 1
            if inner.offset > outer.offset + 1:
                break
    assert got == [0, 1, 2, 2, 3, 4, 4]


@LOOPS
def test_what_is_committed_inside_does_not_come_again(
    member: Consumer, port: ServingPort, over: Over
) -> None:
    port.logs[0].append(6)
    for record in over(member):
        stay_a_member(member)
        if record.offset == 3:
            member.commit_async(record)
            break
    assert processed(member)[A] == 4
    assert offsets(member.poll(LONG_S)) == [4, 5]


@LOOPS
def test_a_seek_inside_counts(member: Consumer, port: ServingPort, over: Over) -> None:
    port.logs[0].append(6)
    for record in over(member):
        stay_a_member(member)
        if record.offset == 3:
            member.seek(A, 5)
            break
    assert processed(member)[A] == 5
    assert offsets(member.poll(LONG_S)) == [5]


@LOOPS
def test_stored_offsets_go_on_behind_such_a_poll(port: ServingPort, over: Over) -> None:
    port.logs[0].append(4)
    settings = {"group_id": "g", "enable_auto_commit": False, "consumer_timeout_ms": 250}
    with consumer_over(port, A, enable_auto_offset_store=False, **settings) as consumer:
        consumer.seek(A, 0)
        got = []
        for record in over(consumer):
            got.append(record.offset)
            stay_a_member(consumer)
            assert processed(consumer)[A] == record.offset
            consumer.store_offset(record)
            assert processed(consumer)[A] == record.offset + 1
        assert got == [0, 1, 2, 3]


@LOOPS
@pytest.mark.parametrize("is_error", [True, False])
def test_a_close_inside_commits_what_is_before_the_record_in_hand(
    port: ServingPort, over: Over, *, is_error: bool
) -> None:
    port.logs[0].append(6)
    with suppress(ZeroDivisionError), consumer_over(port, A, group_id="g") as consumer:
        consumer.seek(A, 0)
        for record in over(consumer):
            stay_a_member(consumer)
            if record.offset == 3:
                if is_error:
                    raise ZeroDivisionError
                consumer.close()
                break
    assert port.committed == {0: 3}
