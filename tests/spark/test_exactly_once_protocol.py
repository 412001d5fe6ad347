"""Steps of the exactly-once sink's protocol whose order counts, one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_connector.exactly_once.names import ATOMIC_TASK, SlotName, slot_id
from spark_connector.exactly_once.protocol import (
    AbortOpen,
    Action,
    End,
    Fence,
    FindClosed,
    ListOpen,
    OldBatchError,
    Read,
    RepeatedOtherwiseError,
    Report,
    Result,
    SinkProtocol,
    SinkTakenOverError,
    Steps,
    Write,
)
from spark_connector.exactly_once.record import Missing, SinkRecord, Stage, Written

SINK = "orders"
PROTOCOL = SinkProtocol(SINK, ATOMIC_TASK)
LEFT = slot_id(SINK, SlotName(5, "w", 1))


@pytest.mark.parametrize("call", ["claim", "settle"])
def test_what_is_open_of_a_sink_whose_record_has_expired_is_aborted(call: str) -> None:
    steps = getattr(PROTOCOL, call)()
    assert next(steps) == Fence()
    assert steps.send(None) == ListOpen()
    assert steps.send(frozenset({LEFT, "of another sink"})) == Write(SinkRecord(turn=1))
    assert steps.send(None) == AbortOpen((LEFT,))


@pytest.mark.parametrize("call", ["claim", "settle"])
def test_nothing_is_aborted_of_a_driver_that_has_begun_since_the_fence(call: str) -> None:
    steps = getattr(PROTOCOL, call)()
    next(steps)
    steps.send(None)
    steps.send(frozenset({LEFT}))
    with pytest.raises(SinkTakenOverError):
        steps.throw(SinkTakenOverError("fenced"))


# Batches that the sink has written already.

LAST = (
    SinkRecord(turn=1, number=5).decided(7, "query", (), topic="a", task_count=1).ended(frozenset())
)
A, B = (SinkProtocol(SINK, ATOMIC_TASK, topic) for topic in "ab")
SKIPS = SinkProtocol(SINK, ATOMIC_TASK, "a", skips_old=True)


def action(protocol: SinkProtocol, batch: int, record: SinkRecord = LAST) -> Action:
    return protocol.action(protocol.view(record), batch=batch, query="query", task=0)


def report(*, is_written: bool = True, skipped_count: int = 0) -> Report:
    written = Written(0, 3, LEFT, 7, 0, 2) if is_written else None
    return Report(1, "query", 0, written, skipped_count)


def test_a_repeat_of_the_last_batch_is_skipped_and_its_rows_are_counted() -> None:
    assert action(A, 7) is Action.SKIP
    steps = A.commit(7, [report(is_written=False, skipped_count=count) for count in (3, 4)])
    assert next(steps) == Read()
    assert returned(steps, LAST) == 7


def test_a_repeat_that_was_planned_before_the_decision_is_counted() -> None:
    steps = A.commit(7, [report()])
    assert next(steps) == Fence()
    assert isinstance(steps.send(LAST), End)
    assert returned(steps, frozenset()) == 3


def test_an_old_batch_fails_unless_it_is_to_be_skipped() -> None:
    with pytest.raises(OldBatchError, match=r"has written batch 7, so batch 6 is old.*=skip"):
        action(A, 6)
    assert action(SKIPS, 6) is Action.SKIP
    steps = SKIPS.commit(6, [report(is_written=False, skipped_count=9)])
    next(steps)
    assert returned(steps, LAST) == 9


def test_an_old_batch_fails_where_a_later_one_was_decided_meanwhile() -> None:
    steps = A.commit(6, [report()])
    next(steps)
    assert steps.send(LAST) == End((Written(0, 3, LEFT, 7, 0, 2),), is_commit=False)
    with pytest.raises(OldBatchError, match="batch 6 is old"):
        steps.send(frozenset())


def test_a_repeat_to_another_topic_is_refused() -> None:
    with pytest.raises(RepeatedOtherwiseError, match=r"batch 7 was written to topic 'a'.*'b'"):
        action(B, 7)
    with pytest.raises(RepeatedOtherwiseError, match="is to topics that rows name"):
        action(PROTOCOL, 7)
    assert action(B, 8) is Action.WRITE
    before = SinkRecord.from_text(SINK, 5, FORMAT_1)
    assert action(B, 7, before) is Action.SKIP


def test_a_repeat_to_another_topic_is_refused_where_it_was_decided_meanwhile() -> None:
    steps = B.commit(7, [report()])
    next(steps)
    assert isinstance(steps.send(LAST), End)
    with pytest.raises(RepeatedOtherwiseError, match="Its rows were not written"):
        steps.send(frozenset())


INCOMPLETE = SinkRecord(turn=1, number=5).decided(
    7, "query", (Written(0, 3, LEFT, 7, 0, 2, 11),), topic="a", task_count=1
)
INCOMPLETE = INCOMPLETE.ended(frozenset({LEFT}))


@pytest.mark.parametrize("checksum", [None, 10])
def test_a_repeat_with_other_rows_is_refused(checksum: int | None) -> None:
    repeated = report()._replace(written=Written(0, 3, LEFT, 7, 0, 2, checksum))
    steps = A.commit(7, [repeated])
    next(steps)
    with pytest.raises(RepeatedOtherwiseError, match=r"tasks 0 \(3 rows\) got other rows"):
        steps.send(INCOMPLETE)


@pytest.mark.parametrize(("row_count", "task_count"), [(2, 1), (3, 2)])
def test_a_repeat_with_other_tasks_is_refused(row_count: int, task_count: int) -> None:
    repeated = report()._replace(written=Written(0, row_count, LEFT, 7, 0, 2, 11))
    others = [report(is_written=False)] * (task_count - 1)
    steps = A.commit(7, [repeated, *others])
    next(steps)
    with pytest.raises(RepeatedOtherwiseError, match=rf"repeated with {task_count} tasks"):
        steps.send(INCOMPLETE)


@pytest.mark.parametrize("before", [11, None], ids=["same rows", "of format 1"])
def test_a_repeat_with_the_same_rows_is_decided(before: int | None) -> None:
    record = replace(INCOMPLETE, missing=(Missing(0, 3, before),))
    repeated = report()._replace(written=Written(0, 3, LEFT, 8, 0, 2, 11))
    steps = A.commit(7, [repeated])
    next(steps)
    assert isinstance(steps.send(record), FindClosed)
    assert isinstance(steps.send(frozenset()), Write)


FORMAT_1 = (
    '{"format":1,"turn":1,"stage":"complete","batch":7,"query":"query","tasks":1,"written":[],'
    '"missing":[]}'
)


def returned(steps: Steps[int], result: Result) -> int:
    with pytest.raises(StopIteration) as stopped:
        steps.send(result)
    found: int = stopped.value.value
    return found


def test_a_process_goes_on_with_the_turn_of_its_application() -> None:
    record = replace(LAST, application="app")
    for turn, application in ((None, "app"), (1, "other"), (1, "")):
        steps = PROTOCOL.look(turn, application)
        assert next(steps) == Read()
        with pytest.raises(StopIteration) as stopped:
            steps.send(record)
        assert stopped.value.value == record


@pytest.mark.parametrize("application", ["other", ""])
def test_a_process_of_another_application_takes_the_next_turn(application: str) -> None:
    record = replace(LAST, application="app")
    steps = PROTOCOL.look(None, application)
    step = next(steps)
    if application:
        assert step == Read()
        step = steps.send(record)
    assert step == Fence()
    assert steps.send(record) == Write(record.taken_over(application))


def test_a_process_whose_application_has_decided_finishes_the_batch_first() -> None:
    record = replace(LAST, application="app", stage=Stage.DECIDED)
    steps = PROTOCOL.look(None, "app")
    next(steps)
    assert steps.send(record) == Fence()
