"""Consumer: whole calls over a broker that serves a log, without sockets."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pykclient.consumer.fetch import stalls
from pykclient.errors import (
    CorruptRecordError,
    NoOffsetForPartitionError,
    NotSubscribedError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    UsageError,
)
from pykclient.protocol.messages.fetch import FetchRequest
from pykclient.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from pykclient.types import OffsetAndMetadata, TopicPartition
from tests.consumer.fetched_records import batch, marker, value_at
from tests.consumer.serving_port import (
    LONG_S,
    SHORT_S,
    UNKNOWN,
    A,
    B,
    KeepEven,
    Log,
    ServingPort,
    consumer_over,
    offsets,
    poll_until,
    refuse_twos,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.consumer.consumer import Consumer


# Polling.


def test_a_poll_returns_what_there_is_and_moves_the_position(
    consumer: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(3)
    assert consumer.current_lag(A) is None
    records = consumer.poll(LONG_S)
    assert [(r.topic, r.partition, r.offset, r.value) for r in records] == [
        ("t", 0, offset, value_at(offset)) for offset in range(3)
    ]
    assert consumer.position(A) == 3
    assert consumer.current_lag(A) == 0


def test_without_a_partition_the_positions_of_all_are_returned(port: ServingPort) -> None:
    port.logs[1] = Log()
    port.logs[0].append(3)
    port.logs[1].append(2)
    with consumer_over(port, A, B, auto_offset_reset="latest") as consumer:
        assert consumer.position() == {A: 3, B: 2}
        consumer.seek(B, 1)
        assert consumer.position() == {A: 3, B: 1}
        consumer.assign([])
        assert consumer.position() == {}


def test_the_next_fetch_is_sent_before_records_are_returned(
    consumer: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(3)
    consumer.poll(LONG_S)
    (fetch,) = port.pending(FetchRequest)
    assert isinstance(fetch, FetchRequest)
    assert fetch.topics[0].partitions[0].fetch_offset == 3


@pytest.mark.promise("`poll` returns available records within its timeout")
def test_a_poll_returns_no_more_than_requested_and_the_rest_next_time(
    consumer: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(1_200)
    assert len(consumer.poll(LONG_S)) == 500
    assert len(consumer.poll(LONG_S, max_records=600)) == 600
    assert len(consumer.poll(LONG_S)) == 100


@pytest.mark.promise("`poll` returns available records within its timeout")
def test_an_empty_poll_ends_in_time(consumer: Consumer) -> None:
    started_s = time.monotonic()
    records = consumer.poll(SHORT_S)
    assert len(records) == 0
    # Its clock counts whole milliseconds.
    assert SHORT_S - 0.002 <= time.monotonic() - started_s < SHORT_S + 1


def test_polling_without_time_gets_there_in_the_end(consumer: Consumer, port: ServingPort) -> None:
    port.logs[0].append(2)
    got: list[int] = []
    for _ in range(20):
        got += offsets(consumer.poll(0))
    assert got == [0, 1]


def test_nothing_assigned_is_an_error(port: ServingPort) -> None:
    with consumer_over(port) as consumer, pytest.raises(NotSubscribedError, match=r"assign\(\)"):
        consumer.poll(SHORT_S)


@pytest.mark.promise("`auto_offset_reset` is earliest, latest or none")
def test_without_a_reset_a_poll_without_a_position_raises(port: ServingPort) -> None:
    with consumer_over(port, A, auto_offset_reset="none") as consumer:
        for _ in range(2):
            with pytest.raises(NoOffsetForPartitionError, match="t-0"):
                consumer.poll(LONG_S)
        consumer.seek(A, 0)
        port.logs[0].append(1)
        assert offsets(consumer.poll(LONG_S)) == [0]


@pytest.mark.promise("`auto_offset_reset` is earliest, latest or none")
def test_a_position_outside_the_log_is_reset_by_the_setting(
    consumer: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(3)
    port.logs[0].start = 2
    port.logs[0].append(1)
    consumer.seek(A, 0)
    assert consumer.poll(LONG_S)
    assert consumer.position(A) == 4


def test_without_a_reset_a_position_outside_the_log_is_reported_until_the_user_seeks(
    port: ServingPort,
) -> None:
    port.logs[0].append(5)
    with consumer_over(port, A, auto_offset_reset="none", retry_backoff_ms=1) as consumer:
        consumer.seek(A, 50)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError, match=r"t-0: offset 50.*0 to 5"):
                consumer.poll(LONG_S)
        assert consumer.position(A) == 50
        consumer.seek(A, 4)
        assert offsets(consumer.poll(LONG_S)) == [4]


@pytest.mark.promise(
    "malformed records raise `CorruptRecordError` with topic, partition and offset"
)
def test_corrupt_records_are_raised_and_can_be_sought_past(
    consumer: Consumer, port: ServingPort
) -> None:
    damaged = bytearray(batch(range(2, 4)))
    damaged[-1] ^= 1
    port.logs[0].append(2)
    port.logs[0].append(2, bytes(damaged))
    port.logs[0].append(2)
    assert offsets(consumer.poll(LONG_S)) == [0, 1]
    for _ in range(2):
        with pytest.raises(CorruptRecordError) as raised:
            consumer.poll(LONG_S)
        assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("t", 0, 2)
        assert consumer.position(A) == 2
    consumer.seek(A, 4)
    assert poll_until(consumer, 2) == [4, 5]


def test_interceptors_see_records_first(port: ServingPort) -> None:
    port.logs[0].append(2)
    with consumer_over(port, A, interceptors=[KeepEven]) as consumer:
        assert offsets(consumer.poll(LONG_S)) == [0]
        assert consumer.position(A) == 2


# Errors that end a wait early.


def test_an_unknown_topic_is_reported_once_when_polls_stay_empty(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalls, "UNKNOWN_TOPIC_MS", round(SHORT_S * 500))
    consumer.assign([UNKNOWN])
    with pytest.raises(UnknownTopicOrPartitionError, match=r"'absent'.*create_topics"):
        consumer.poll(SHORT_S)
    assert not consumer.poll(SHORT_S)


def test_a_fatal_error_is_raised_at_once_by_every_call_and_the_next_one_tries_anew(
    consumer: Consumer, port: ServingPort
) -> None:
    calls: list[Callable[[], object]] = [
        lambda: consumer.poll(LONG_S),
        lambda: consumer.position(A, LONG_S),
        lambda: consumer.end_offsets([A], LONG_S),
        lambda: consumer.partitions_for("t", LONG_S),
        lambda: consumer.list_topics(LONG_S),
        lambda: next(iter(consumer)),
    ]
    for call in calls:
        consumer._wiring.metadata.on_verdict(UnsupportedVersionError("too old"))
        with pytest.raises(UnsupportedVersionError):
            call()
    port.logs[0].append(10)
    assert consumer.poll(LONG_S)


# Seeking, pausing.


@pytest.mark.promise("`seek` moves the position and drops fetched records")
def test_a_seek_decides_what_comes_next(consumer: Consumer, port: ServingPort) -> None:
    port.logs[0].append(10)
    assert consumer.poll(LONG_S)
    consumer.seek(A, 2)
    assert consumer.position(A) == 2
    assert offsets(consumer.poll(LONG_S, 1)) == [2]
    consumer.seek(A, OffsetAndMetadata(8))
    assert poll_until(consumer, 2) == [8, 9]


def test_a_seek_with_a_leader_epoch_is_held_against_the_log_of_the_leader(
    consumer: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(10)
    assert consumer.poll(LONG_S, 1)
    consumer.seek(A, OffsetAndMetadata(5, leader_epoch=0))
    assert poll_until(consumer, 5) == [5, 6, 7, 8, 9]
    assert port.responded.count(OffsetForLeaderEpochRequest) == 1


@pytest.mark.promise("`seek` moves the position and drops fetched records")
def test_seeks_to_the_ends_send_a_request(consumer: Consumer, port: ServingPort) -> None:
    port.logs[0].append(10)
    consumer.seek_to_end()
    assert consumer.position(A) == 10
    consumer.seek_to_beginning([A])
    assert consumer.position(A) == 0


@pytest.mark.parametrize("offset", [-1, "5", 2.0, None, True, 2**63])
def test_an_offset_that_is_none_is_refused(consumer: Consumer, offset: object) -> None:
    with pytest.raises(UsageError, match=r"seek\(t-0\): offset is .*; give an integer from 0"):
        consumer.seek(A, offset)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong", ["t", ("t", 0), TopicPartition("t", -1), TopicPartition("t", 2**31), None]
)
def test_what_is_no_partition_cannot_be_assigned(consumer: Consumer, wrong: object) -> None:
    with pytest.raises(UsageError, match="TopicPartition"):
        consumer.assign([wrong])  # type: ignore[list-item]
    assert consumer.assignment() == {A}


def test_a_paused_partition_returns_nothing_and_loses_nothing(port: ServingPort) -> None:
    port.logs[0].append(600)
    port.logs[1].append(2)
    with consumer_over(port, A, B) as consumer:
        consumer.poll(LONG_S, 100)
        consumer.pause([A])
        assert consumer.paused() == {A}
        before = consumer.position(A)
        for _ in range(5):
            assert A not in consumer.poll(SHORT_S).partitions
        consumer.resume([A])
        assert consumer.paused() == frozenset()
        assert offsets(consumer.poll(LONG_S, 1)) == [before]


def test_only_what_is_assigned_can_be_sought_paused_and_named(consumer: Consumer) -> None:
    calls: list[Callable[[], object]] = [
        lambda: consumer.seek(B, 1),
        lambda: consumer.seek_to_end([B]),
        lambda: consumer.pause([B]),
        lambda: consumer.resume([B]),
        lambda: consumer.position(B),
        lambda: consumer.current_lag(B),
        lambda: consumer.poll_arrow(0, until={B: 1}),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="t-1 is not assigned"):
            call()


def test_subscribe_is_refused_with_what_to_use_instead(consumer: Consumer) -> None:
    with pytest.raises(UsageError, match=r"assign\(\)"):
        consumer.subscribe(["t"])


# Arrow.


def test_a_bounded_scan_ends_at_its_limits_and_reports_it(port: ServingPort) -> None:
    port.logs[0].append(5)
    port.logs[1].append(2)
    port.logs[1].append(1, marker(2, 9))
    until = {A: 3, B: 3}
    with consumer_over(port, A, B) as consumer:
        rows: list[tuple[int, int]] = []
        while any(consumer.position(p) < end for p, end in until.items()):
            table = consumer.poll_arrow(LONG_S, until=until)
            rows += zip(
                table.column("partition").to_pylist(),
                table.column("offset").to_pylist(),
                strict=True,
            )
        assert sorted(rows) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
        started_s = time.monotonic()
        assert consumer.poll_arrow(LONG_S, until=until).num_rows == 0
        assert time.monotonic() - started_s < LONG_S / 2
        assert offsets(consumer.poll(LONG_S)) == [3, 4]


def test_an_arrow_batch_has_all_that_is_at_hand_unless_set_otherwise(port: ServingPort) -> None:
    port.logs[0].append(4)
    with consumer_over(port, A, max_poll_records=1) as consumer:
        assert consumer.poll_arrow(LONG_S, max_records=1).num_rows == 1
        assert consumer.poll_arrow(LONG_S).num_rows == 3


def test_an_arrow_batch_is_bounded_in_bytes(port: ServingPort) -> None:
    port.logs[0].append(5)
    with consumer_over(port, A) as consumer:
        size_bytes = 2 * len(value_at(0)) + 20
        batches = [consumer.poll_arrow(LONG_S, max_bytes=size_bytes) for _ in range(3)]
        assert [batch.column("offset").to_pylist() for batch in batches] == [[0, 1], [2, 3], [4]]
        consumer.seek(A, 0)
        assert consumer.poll_arrow(LONG_S, max_bytes=1).num_rows == 1
        with pytest.raises(UsageError, match="poll_arrow: max_bytes=0: give a number from 1"):
            consumer.poll_arrow(0, max_bytes=0)


def test_arrow_batches_are_not_deserialized(port: ServingPort) -> None:
    port.logs[0].append(4)
    with consumer_over(port, A, value_deserializer=refuse_twos) as consumer:
        table = consumer.poll_arrow(LONG_S, include_headers=True)
        assert table.column("value").to_pylist() == [value_at(n) for n in range(4)]
        assert "headers" in table.schema.names
