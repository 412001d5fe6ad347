"""Iterating over a consumer: record by record, whatever happens inside the loop."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import pytest

from pykclient.consumer import poll as poll_module
from pykclient.consumer.poll import PollLoop
from pykclient.errors import ClosedError, RecordDeserializationError
from pykclient.types import TopicPartition
from tests.consumer.fetched_records import LEADER_EPOCH_AT, batch, marker
from tests.consumer.serving_port import (
    LONG_S,
    A,
    B,
    KeepEven,
    Log,
    consumer_over,
    offsets,
    refuse_twos,
)
from tests.records.batches import header_changed

if TYPE_CHECKING:
    from pykclient.consumer.consumer import Consumer
    from tests.consumer.serving_port import ServingPort


def test_iteration_goes_on_where_it_was_left(consumer: Consumer, port: ServingPort) -> None:
    port.logs[0].append(6)
    got = []
    for record in consumer:
        got.append(record.offset)
        if record.offset == 2:
            break
    assert consumer.position(A) == 3
    for record in consumer:
        got.append(record.offset)
        if record.offset == 4:
            break
    assert got == [0, 1, 2, 2, 3, 4], "the record in hand comes again"
    assert offsets(consumer.poll(LONG_S)) == [4, 5]


def test_the_position_moves_record_by_record(consumer: Consumer, port: ServingPort) -> None:
    port.logs[0].append(5)
    positions = []
    for record in consumer:
        positions.append((record.offset, consumer.position(A)))
        if record.offset == 4:
            break
    assert positions == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]


def test_what_is_at_hand_shares_turns_of_the_engine(
    port: ServingPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poll_module, "TURN_INTERVAL_MS", 3_600_000)
    port.logs[0].append(50)
    waits: list[int] = []
    port.on_wait = waits.append
    with consumer_over(port, A, max_poll_records=1) as consumer:
        wait_counts = [len(waits) for _ in islice(consumer, 50)]
    assert len(set(wait_counts)) == 1


def test_what_a_former_leader_sent_is_not_returned_once_another_one_is_known(
    consumer: Consumer, port: ServingPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn between finding and returning records may learn that the log was truncated."""
    turn = PollLoop._turn_if_due
    port.logs[0].append(3)

    def elect(poll_loop: PollLoop) -> None:
        monkeypatch.undo()
        assigned = consumer._wiring.subscription.require(A)
        consumer._wiring.buffer.drop(assigned)
        consumer._wiring.subscription.accept_leader(assigned, 1)
        port.logs[0] = Log()
        port.logs[0].append(1, header_changed(batch([0]), LEADER_EPOCH_AT, 1, 4))
        turn(poll_loop)

    monkeypatch.setattr(PollLoop, "_turn_if_due", elect)
    records = iter(consumer)
    first = next(records)
    assert (first.offset, first.leader_epoch) == (0, 1)
    assert consumer.position(A) == 1


def test_a_seek_inside_the_loop_counts_at_once(consumer: Consumer, port: ServingPort) -> None:
    port.logs[0].append(6)
    got: list[int] = []
    for record in consumer:
        got.append(record.offset)
        if len(got) == 2:
            consumer.seek(A, 4)
        if len(got) == 4:
            consumer.seek(A, 0)
        if len(got) == 5:
            break
    assert got == [0, 1, 4, 5, 0]


def test_a_pause_inside_the_loop_counts_at_once(port: ServingPort) -> None:
    port.logs[0].append(3)
    port.logs[1].append(3)
    with consumer_over(port, A, B, consumer_timeout_ms=250) as consumer:
        got: list[tuple[int, int]] = []
        for record in consumer:
            if not got:
                consumer.pause([TopicPartition(record.topic, record.partition)])
            got.append((record.partition, record.offset))
    first = got[0][0]
    assert got == [(first, 0)] + [(1 - first, offset) for offset in range(3)]


def test_a_poll_inside_the_loop_takes_its_records_out_of_it(
    consumer: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(6)
    got: list[int] = []
    for record in consumer:
        got.append(record.offset)
        if record.offset == 1:
            got += offsets(consumer.poll(LONG_S, 2))
        if record.offset == 5:
            break
    assert got == [0, 1, 2, 3, 4, 5]


def test_iteration_ends_when_nothing_comes_for_as_long_as_set(port: ServingPort) -> None:
    port.logs[0].append(2)
    port.logs[0].append(1, marker(2, 9))
    with consumer_over(port, A, consumer_timeout_ms=250) as consumer:
        assert [record.offset for record in consumer] == [0, 1]
        assert consumer.position(A) == 3
        assert list(consumer) == []


def test_an_unassign_inside_the_loop_ends_that_partition(port: ServingPort) -> None:
    port.logs[0].append(3)
    port.logs[1].append(1)
    with consumer_over(port, A, consumer_timeout_ms=250) as consumer:
        got = []
        for record in consumer:
            got.append((record.partition, record.offset))
            consumer.assign([B])
        assert got == [(0, 0), (1, 0)]


def test_a_close_inside_the_loop_ends_it_with_an_error(
    consumer: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(3)
    iterator = iter(consumer)
    assert next(iterator).offset == 0
    consumer.close()
    with pytest.raises(ClosedError):
        next(iterator)


def test_a_bad_record_ends_the_loop_where_it_stands(port: ServingPort) -> None:
    port.logs[0].append(4)
    with consumer_over(port, A, value_deserializer=refuse_twos) as consumer:
        iterator = iter(consumer)
        assert [next(iterator).value for _ in range(2)] == ["value 0", "value 1"]
        with pytest.raises(RecordDeserializationError):
            next(iterator)
        assert consumer.position(A) == 2


def test_iteration_returns_what_interceptors_leave(port: ServingPort) -> None:
    for _ in range(3):
        port.logs[0].append(2)
    with consumer_over(port, A, interceptors=[KeepEven], consumer_timeout_ms=250) as consumer:
        assert [record.offset for record in consumer] == [0, 2, 4]
        assert consumer.position(A) == 6
