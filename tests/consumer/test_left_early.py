"""Batches that an application leaves early: records returned again, and commits."""

from __future__ import annotations

import gc
import logging
import pickle
import threading
import weakref
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from pykclient.consumer.offsets.unprocessed import AGAIN_COUNT_WARNED
from pykclient.consumer.record import ConsumerRecords
from pykclient.errors import WakeupError
from pykclient.types import OffsetAndMetadata, TopicPartition
from tests.consumer.fetched_records import LEADER_EPOCH_AT, batch, marker
from tests.consumer.serving_port import (
    LONG_S,
    SHORT_S,
    A,
    B,
    KeepEven,
    consumed,
    consumer_over,
    offsets,
    processed,
)
from tests.records.batches import header_changed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from pykclient.consumer.consumer import Consumer
    from tests.consumer.serving_port import ServingPort

pytestmark = pytest.mark.promise(
    "a batch that the loop leaves early is returned again from that record"
)


def leave_at(records: ConsumerRecords, count: int) -> list[int]:
    """Take some records, and leave the loop at the last one; return the ones before it."""
    taken = [record.offset for record in islice(records, count)]
    return taken[:-1]


@pytest.fixture
def member(port: ServingPort) -> Iterator[Consumer]:
    """Provide a consumer in a group, which reads both partitions from the start."""
    with consumer_over(port, A, B, group_id="g", enable_auto_commit=False) as consumer:
        consumer.seek(A, 0)
        consumer.seek(B, 0)
        yield consumer


def by_break(records: ConsumerRecords) -> None:
    for record in records:
        if record.offset == 3:
            break


def by_return(records: ConsumerRecords) -> None:
    for record in records:
        if record.offset == 3:
            return


def by_exception(records: ConsumerRecords) -> None:
    with suppress(ZeroDivisionError):
        for record in records:
            if record.offset == 3:
                raise ZeroDivisionError


def by_interrupt(records: ConsumerRecords) -> None:
    with suppress(KeyboardInterrupt):
        for record in records:
            if record.offset == 3:
                raise KeyboardInterrupt


def by_generator(records: ConsumerRecords) -> None:
    def pairs() -> Iterator[int]:
        for record in records:
            yield record.offset

    for offset in pairs():
        if offset == 3:
            break


def by_generator_that_is_closed(records: ConsumerRecords) -> None:
    each = (record.offset for record in records)
    while next(each) != 3:
        pass
    each.close()


def by_enumerate(records: ConsumerRecords) -> None:
    for number, _ in enumerate(records):
        if number == 3:
            break


@pytest.mark.parametrize(
    "leave",
    [
        by_break,
        by_return,
        by_exception,
        by_interrupt,
        by_generator,
        by_generator_that_is_closed,
        by_enumerate,
    ],
)
@pytest.mark.parametrize("deserializer", [None, bytes.decode])
def test_what_was_not_processed_is_returned_again(
    port: ServingPort, leave: Callable[[ConsumerRecords], None], deserializer: object
) -> None:
    port.logs[0].append(6)
    port.logs[0].append(2)
    with consumer_over(port, A, value_deserializer=deserializer) as consumer:
        leave(consumer.poll(LONG_S))
        assert consumer.position(A) == 8
        assert offsets(consumer.poll(LONG_S)) == [3, 4, 5, 6, 7]
        assert offsets(consumer.poll(SHORT_S)) == []


@pytest.mark.parametrize("count", range(9))
def test_each_place_in_a_batch_of_several_spans(
    consumer: Consumer, port: ServingPort, count: int
) -> None:
    for _ in range(4):
        port.logs[0].append(2, None)
        port.logs[0].append(1, marker(port.logs[0].end, 9))
    iterator = iter(consumer.poll(LONG_S))
    before = [record.offset for record in islice(iterator, count)][:-1]
    del iterator
    again = offsets(consumer.poll(LONG_S))
    assert [*before, *again] == [0, 1, 3, 4, 6, 7, 9, 10]


def test_an_iteration_that_ends_is_done_with(consumer: Consumer, port: ServingPort) -> None:
    port.logs[0].append(3)
    list(consumer.poll(LONG_S))
    assert offsets(consumer.poll(SHORT_S)) == []


@pytest.mark.parametrize(
    "look",
    [
        lambda records: records[0],
        lambda records: records[1:],
        lambda records: records[A],
        lambda records: records.by_partition(),
        lambda records: records[0] in records,
        len,
        repr,
        pickle.dumps,
        lambda records: list(islice(pickle.loads(pickle.dumps(records)), 1)),
    ],
)
def test_what_is_not_iterated_counts_as_before(
    consumer: Consumer, port: ServingPort, look: Callable[[ConsumerRecords], object]
) -> None:
    port.logs[0].append(3)
    look(consumer.poll(LONG_S))
    assert offsets(consumer.poll(SHORT_S)) == []


def test_arrow_counts_as_before(consumer: Consumer, port: ServingPort) -> None:
    pytest.importorskip("pyarrow")
    port.logs[0].append(3)
    batch = consumer.poll_arrow(LONG_S)
    assert next(iter(batch["offset"])).as_py() == 0
    assert offsets(consumer.poll(SHORT_S)) == []


def test_the_iteration_that_began_last_decides(consumer: Consumer, port: ServingPort) -> None:
    port.logs[0].append(5)
    records = consumer.poll(LONG_S)
    list(records)
    leave_at(records, 3)
    records = consumer.poll(LONG_S)
    assert offsets(ConsumerRecords(records._spans)) == [2, 3, 4]
    leave_at(records, 1)
    list(records)
    assert offsets(consumer.poll(SHORT_S)) == []


def test_an_iterator_of_which_nothing_was_taken_has_left_everything(
    consumer: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(3)
    assert list(islice(consumer.poll(LONG_S), 0)) == []
    assert offsets(consumer.poll(LONG_S)) == [0, 1, 2]


def in_a_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_an_iterator_of_another_thread_that_is_alive_is_work_in_progress(
    consumer: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(5)
    records = consumer.poll(LONG_S)
    kept: list[Iterator[Any]] = []

    def work() -> None:
        kept.append(iter(records))
        next(kept[0])

    in_a_thread(work)
    assert offsets(consumer.poll(SHORT_S)) == []
    del kept[:]
    assert offsets(consumer.poll(SHORT_S)) == []


def test_an_iterator_of_another_thread_that_was_left_counts(
    consumer: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(5)
    records = consumer.poll(LONG_S)
    in_a_thread(lambda: leave_at(records, 3))
    assert offsets(consumer.poll(LONG_S)) == [2, 3, 4]


def test_a_batch_polled_by_another_thread_and_left_here_counts(
    consumer: Consumer, port: ServingPort
) -> None:
    """E.g. a program that polls in an executor and iterates in the thread of its event loop."""
    port.logs[0].append(5)
    got: list[ConsumerRecords] = []
    in_a_thread(lambda: got.append(consumer.poll(LONG_S)))
    leave_at(got.pop(), 3)
    in_a_thread(lambda: got.append(consumer.poll(LONG_S)))
    assert offsets(got.pop()) == [2, 3, 4]


def test_each_partition_goes_back_to_its_own_first_record(
    member: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(2)
    port.logs[0].append(1, marker(2, 9))
    port.logs[1].append(4)
    records = member.poll(LONG_S, max_records=4)
    while len(records.partitions) < 2:
        member.seek(A, 0)
        member.seek(B, 0)
        records = member.poll(LONG_S, max_records=4)
    first, second = records.partitions
    ends = records.next_offsets
    for record in records:
        if record.topic_partition == second and record.offset == 1:
            break
    assert processed(member) == {first: ends[first].offset, second: 1}
    assert member.poll(LONG_S)[second][0].offset == 1
    assert member.position(first) >= ends[first].offset


def test_what_the_user_has_moved_or_given_up_is_left_alone(port: ServingPort) -> None:
    port.logs[0].append(5)
    port.logs[1].append(5)
    with consumer_over(port, A, B) as consumer:
        while len((records := consumer.poll(LONG_S)).partitions) < 2:
            consumer.seek_to_beginning()
        leave_at(records, 2)
        consumer.seek(A, 4)
        consumer.assign([A])
        consumer.assign([A, B])
        assert {p: each[0].offset for p, each in both(consumer).items()} == {A: 4, B: 0}


def both(consumer: Consumer) -> dict[TopicPartition, list[Any]]:
    """Poll until both partitions have records."""
    got: dict[TopicPartition, list[Any]] = {}
    while len(got) < 2:
        for partition, records in consumer.poll(LONG_S).by_partition().items():
            got.setdefault(partition, []).extend(records)
    return got


def test_a_seek_past_the_record_in_hand_counts(consumer: Consumer, port: ServingPort) -> None:
    port.logs[0].append(6)
    for record in consumer.poll(LONG_S, max_records=4):
        if record.offset == 2:
            consumer.seek(A, 3)
            break
    assert offsets(consumer.poll(LONG_S)) == [3, 4, 5]


@pytest.mark.parametrize("place", [2, OffsetAndMetadata(2, leader_epoch=0)])
def test_a_loop_that_goes_on_after_a_seek_to_its_next_record_may_be_left(
    member: Consumer, port: ServingPort, place: int | OffsetAndMetadata
) -> None:
    port.logs[0].append(5)
    taken = []
    for record in member:
        taken.append(record.offset)
        if record.offset == 1:
            member.seek(A, place)
        if record.offset == 2:
            break
    assert taken == [0, 1, 2]
    assert processed(member)[A] == 2
    assert offsets(member.poll(LONG_S)) == [2, 3, 4]


def test_a_paused_partition_goes_back_and_comes_after_it_is_resumed(
    consumer: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(5)
    leave_at(consumer.poll(LONG_S), 3)
    consumer.pause([A])
    assert offsets(consumer.poll(SHORT_S)) == []
    assert consumer.position(A) == 2
    consumer.resume([A])
    assert offsets(consumer.poll(LONG_S)) == [2, 3, 4]


def test_a_limit_on_records_changes_nothing(consumer: Consumer, port: ServingPort) -> None:
    port.logs[0].append(9)
    leave_at(consumer.poll(LONG_S, max_records=4), 3)
    assert leave_at(consumer.poll(LONG_S, max_records=3), 3) == [2, 3]
    assert offsets(consumer.poll(LONG_S)) == [4, 5, 6, 7, 8]


def test_a_poll_that_raises_has_gone_back(consumer: Consumer, port: ServingPort) -> None:
    port.logs[0].append(5)
    leave_at(consumer.poll(LONG_S), 3)
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.poll(LONG_S)
    assert consumer.position(A) == 2
    assert offsets(consumer.poll(LONG_S)) == [2, 3, 4]


def test_the_first_time_is_logged_and_names_the_rule(
    consumer: Consumer, port: ServingPort, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pykclient.consumer")
    port.logs[0].append(5)
    for _ in range(3):
        leave_at(consumer.poll(LONG_S), 2)
    assert offsets(consumer.poll(LONG_S)) == [3, 4]
    (line,) = [text for text in caplog.messages if "was left before its end" in text]
    assert "(t-0; this is logged once)" in line


def test_a_record_that_comes_again_and_again_is_a_warning_once(
    consumer: Consumer, port: ServingPort, caplog: pytest.LogCaptureFixture
) -> None:
    """E.g. a helper that returns the first record from inside a loop."""
    port.logs[0].append(3)
    for _ in range(2 * AGAIN_COUNT_WARNED):
        assert next(iter(consumer.poll(LONG_S, 1))).offset == 0
    [warning] = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "offset 0" in warning.getMessage()
    assert "records[0]" in warning.getMessage()


def test_records_that_come_again_further_on_each_time_are_no_warning(
    consumer: Consumer, port: ServingPort, caplog: pytest.LogCaptureFixture
) -> None:
    port.logs[0].append(2 * AGAIN_COUNT_WARNED)
    for offset in range(2 * AGAIN_COUNT_WARNED - 1):
        assert leave_at(consumer.poll(LONG_S, 2), 2) == [offset]
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


def test_records_keep_no_consumer_alive(port: ServingPort) -> None:
    port.logs[0].append(3)
    consumer = consumer_over(port, A)
    records = consumer.poll(LONG_S)
    iterator = iter(records)
    next(iterator)
    consumer.close()
    gone = weakref.ref(consumer)
    gc.disable()
    try:
        del consumer
        assert gone() is None
    finally:
        gc.enable()
    assert [record.offset for record in iterator] == [1, 2]


def test_records_that_were_dropped_are_not_kept(consumer: Consumer, port: ServingPort) -> None:
    """The consumer tracks an iteration; when it has ended, it keeps no reference to the batch."""
    port.logs[0].append(3)
    list(consumer.poll(LONG_S))
    progress = consumer._wiring.unprocessed._progress
    assert progress is not None
    assert progress.iteration is not None
    assert progress.iteration._spans == ()


# Interceptors.


def test_interceptors_may_change_what_is_iterated(port: ServingPort) -> None:
    port.logs[0].append(9)
    with consumer_over(port, A, interceptors=[KeepEven]) as consumer:
        assert leave_at(consumer.poll(LONG_S), 3) == [0, 2]
        assert consumer.position(A) == 9
        assert offsets(consumer.poll(LONG_S)) == [4, 6, 8]


class Stopping:
    """An interceptor that stops iterating in the middle."""

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        leave_at(records, 2)
        return records


def test_an_iteration_of_an_interceptor_does_not_count(port: ServingPort) -> None:
    port.logs[0].append(5)
    with consumer_over(port, A, interceptors=[Stopping]) as consumer:
        assert len(consumer.poll(LONG_S)) == 5
        assert offsets(consumer.poll(SHORT_S)) == []


class Adding:
    """An interceptor that adds older records, and records of a partition that is not read."""

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        spans = records._spans
        other = spans[0]._replace(partition=B)
        return ConsumerRecords([other, *spans, spans[0]])


def test_records_that_an_interceptor_added_move_nothing(port: ServingPort) -> None:
    port.logs[0].append(5)
    with consumer_over(port, A, interceptors=[Adding]) as consumer:
        assert leave_at(consumer.poll(LONG_S), 7) == [0, 1, 2, 3, 4, 0]
        assert consumer.poll(LONG_S)[A][0].offset == 1


# Commits.


def test_a_commit_inside_the_loop_covers_the_record_in_hand(
    member: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(5)
    covered = []
    for record in member.poll(LONG_S):
        covered.append(consumed(member)[A])
        assert processed(member)[A] == record.offset
    assert covered == [1, 2, 3, 4, 5]
    assert consumed(member)[A] == 5
    assert processed(member)[A] == 0, "an exception after the loop commits nothing of the batch"


def test_a_commit_after_a_loop_that_was_left_ends_before_the_record_in_hand(
    member: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(5)
    leave_at(member.poll(LONG_S), 3)
    assert consumed(member)[A] == 2
    assert processed(member)[A] == 2
    assert offsets(member.poll(LONG_S)) == [2, 3, 4]
    assert consumed(member)[A] == 5


def test_a_commit_without_an_iteration_covers_everything(
    member: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(5)
    assert len(member.poll(LONG_S)) == 5
    assert consumed(member)[A] == 5
    assert processed(member)[A] == 0


def test_the_last_record_of_a_partition_covers_what_has_no_record_behind_it(
    member: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(2)
    port.logs[0].append(1, marker(2, 9))
    for record in member.poll(LONG_S):
        assert consumed(member)[A] == {0: 1, 1: 3}[record.offset]


def test_a_commit_has_the_leader_epoch_of_the_record_before(
    member: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(2, header_changed(batch([0, 1]), LEADER_EPOCH_AT, 0, 4))
    port.logs[0].append(2)  # of unknown epoch
    member.pause([B])
    commits = member._wiring.require_commits("commit")
    committed = [commits.processed()[A] for _ in member.poll(LONG_S)]
    assert [(each.offset, each.leader_epoch) for each in committed] == [
        (0, None),
        (1, 0),
        (2, 0),
        (3, None),
    ]
    assert commits.consumed()[A] == OffsetAndMetadata(4)


@pytest.mark.parametrize("finished", [1, 3, 4, 5, 9])
def test_what_is_committed_is_not_returned_again(
    member: Consumer, port: ServingPort, finished: int
) -> None:
    port.logs[0].append(5)
    leave_at(member.poll(LONG_S), 3)
    member.commit_async({A: finished})
    again = list(range(max(2, finished), 5))
    assert offsets(member.poll(LONG_S if again else SHORT_S)) == again


def test_a_commit_of_an_earlier_batch_does_not_count_for_the_next(
    member: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(5)
    list(member.poll(LONG_S, max_records=1))
    member.commit_async({A: 4})
    leave_at(member.poll(LONG_S), 2)
    assert offsets(member.poll(LONG_S)) == [2, 3, 4]


def test_what_is_stored_is_not_returned_again(port: ServingPort) -> None:
    port.logs[0].append(3)
    port.logs[0].append(3)
    settings = {"group_id": "g", "enable_auto_commit": False, "enable_auto_offset_store": False}
    with consumer_over(port, A, **settings) as consumer:
        consumer.seek(A, 0)
        records = consumer.poll(LONG_S)
        for record in records:
            if record.offset == 2:
                break
            consumer.store_offset(record)
        again = consumer.poll(LONG_S)
        assert offsets(ConsumerRecords(again._spans)) == [2, 3, 4, 5]
        for record in again:
            consumer.store_offset(record)
            if record.offset == 3:
                break
        assert offsets(consumer.poll(LONG_S)) == [4, 5]
        assert processed(consumer)[A] == 4
        consumer.store_offset({A: 6})
        assert processed(consumer)[A] == 6


def test_a_record_that_is_stored_out_of_order_is_in_work_elsewhere(port: ServingPort) -> None:
    port.logs[0].append(5)
    settings = {"group_id": "g", "enable_auto_commit": False, "enable_auto_offset_store": False}
    with consumer_over(port, A, **settings) as consumer:
        consumer.seek(A, 0)
        records = consumer.poll(LONG_S)
        leave_at(records, 3)
        consumer.store_offset(records[2])
        assert offsets(consumer.poll(LONG_S)) == [3, 4]
        assert processed(consumer)[A] == 0
        consumer.store_offset({A: 5})
        assert processed(consumer)[A] == 5


# The final commit.


def leave_by_break(consumer: Consumer) -> None:
    for record in consumer.poll(LONG_S):
        if record.offset == 3:
            break


def leave_by_error(consumer: Consumer) -> None:
    for record in consumer.poll(LONG_S):
        if record.offset == 3:
            raise ZeroDivisionError


def leave_after_a_commit(consumer: Consumer) -> None:
    for record in consumer.poll(LONG_S):
        if record.offset == 3:
            consumer.commit()
            raise ZeroDivisionError


def leave_a_loop_over_the_consumer(consumer: Consumer) -> None:
    for record in consumer:
        if record.offset == 3:
            break


def leave_a_loop_over_the_consumer_by_error(consumer: Consumer) -> None:
    for record in consumer:
        if record.offset == 3:
            raise ZeroDivisionError


def close_inside_the_loop(consumer: Consumer) -> None:
    for record in consumer.poll(LONG_S):
        if record.offset == 3:
            consumer.close()


def fail_after_the_loop(consumer: Consumer) -> None:
    rows = list(consumer.poll(LONG_S))
    raise ZeroDivisionError(len(rows))


def fail_without_a_loop(consumer: Consumer) -> None:
    raise ZeroDivisionError(len(consumer.poll(LONG_S)))


def fail_without_a_loop_after_a_commit(consumer: Consumer) -> None:
    consumer.commit(consumer.poll(LONG_S)[1])
    raise ZeroDivisionError


def end_the_loop(consumer: Consumer) -> None:
    list(consumer.poll(LONG_S))


@pytest.mark.parametrize(
    ("end", "committed"),
    [
        (leave_by_break, 3),
        (leave_by_error, 3),
        (leave_after_a_commit, 4),
        (leave_a_loop_over_the_consumer, 3),
        (leave_a_loop_over_the_consumer_by_error, 3),
        (close_inside_the_loop, 3),
        (fail_after_the_loop, 0),
        (fail_without_a_loop, 0),
        (fail_without_a_loop_after_a_commit, 2),
        (end_the_loop, 6),
    ],
)
def test_a_close_commits_what_was_processed(
    port: ServingPort, end: Callable[[Consumer], None], committed: int
) -> None:
    port.logs[0].append(6)
    with suppress(ZeroDivisionError), consumer_over(port, A, group_id="g") as consumer:
        consumer.seek(A, 0)
        end(consumer)
    assert port.committed == {0: committed}


# Loops over the consumer itself.


def test_a_commit_inside_a_loop_over_the_consumer_covers_the_record_in_hand(
    member: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(4)
    for record in member:
        assert consumed(member)[A] == record.offset + 1
        assert processed(member)[A] == record.offset
        if record.offset == 2:
            break
    assert consumed(member)[A] == 2
    assert processed(member)[A] == 2
    assert member.position(A) == 3
    assert offsets(member.poll(LONG_S)) == [2, 3]


def test_what_is_committed_in_a_loop_over_the_consumer_does_not_come_again(
    member: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(4)
    for record in member:
        if record.offset == 2:
            member.commit_async(record)
            break
    assert consumed(member)[A] == 3
    assert offsets(member.poll(LONG_S)) == [3]


def test_a_loop_over_the_consumer_that_ends_is_done_with(port: ServingPort) -> None:
    port.logs[0].append(4)
    settings = {"group_id": "g", "enable_auto_commit": False}
    with consumer_over(port, A, consumer_timeout_ms=250, **settings) as consumer:
        consumer.seek(A, 0)
        assert [record.offset for record in consumer] == [0, 1, 2, 3]
        assert processed(consumer)[A] == consumed(consumer)[A] == 4
        assert offsets(consumer.poll(SHORT_S)) == []


def test_records_may_be_taken_ahead_without_a_word(
    port: ServingPort, caplog: pytest.LogCaptureFixture
) -> None:
    """The consumer cannot detect that: the docstring states the rule."""
    port.logs[0].append(20)
    with consumer_over(port, A, group_id="g", enable_auto_commit=False) as consumer:
        consumer.seek(A, 0)
        kept = list(islice(consumer, 10))
    assert len(kept) == 10
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
