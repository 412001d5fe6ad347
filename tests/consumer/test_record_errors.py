"""RecordReader: how it handles records that cannot be read, by `on_record_error`."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from pykclient.errors import (
    ConfigError,
    CorruptRecordError,
    RecordDeserializationError,
    WakeupError,
)
from pykclient.network.drive import now_ms
from pykclient.protocol.messages.fetch import FetchRequest
from tests.consumer.fetched_records import LAST_OFFSET_DELTA_AT, batch, value_at
from tests.consumer.serving_port import (
    LONG_S,
    SHORT_S,
    A,
    B,
    ServingPort,
    consumer_over,
    offsets,
    poll_until,
    refuse_twos,
)
from tests.records.batches import resealed
from tests.records.test_legacy import message

if TYPE_CHECKING:
    from pykclient.consumer.consumer import Consumer
    from pykclient.consumer.fetch.read import BadRecord
    from pykclient.consumer.record import ConsumerRecords


def damaged(first: int, count: int) -> bytes:
    data = bytearray(batch(range(first, first + count)))
    data[-1] ^= 1
    return bytes(data)


def refuse_all(value: bytes) -> str:
    raise ValueError(value)


class Notes:
    """A function for `on_record_error` that records its arguments, and may do more."""

    def __init__(self) -> None:
        self.errors: list[BadRecord] = []
        self.consumer: Consumer | None = None

    def __call__(self, error: BadRecord) -> None:
        self.errors.append(error)


@pytest.mark.promise(
    "a bad record raises an error with place, bytes and cause, or is skipped as configured"
)
def test_the_default_is_to_raise_and_reading_goes_on_behind_it(port: ServingPort) -> None:
    port.logs[0].append(4)
    with consumer_over(port, A, value_deserializer=refuse_twos) as consumer:
        assert [record.value for record in consumer.poll(LONG_S)] == ["value 0", "value 1"]
        for _ in range(2):
            with pytest.raises(RecordDeserializationError) as raised:
                consumer.poll(LONG_S)
        error = raised.value
        assert (error.topic, error.partition, error.offset, error.next_offset) == ("t", 0, 2, 3)
        assert (error.key, error.value) == (b"key", value_at(2))
        assert isinstance(error.__cause__, ValueError)
        assert consumer.position(A) == 2
        fetch_count = port.responded.count(FetchRequest)
        consumer.seek(A, 3)
        assert offsets(consumer.poll(LONG_S)) == [3]
        assert port.responded.count(FetchRequest) == fetch_count, "nothing needed fetching anew"


@pytest.mark.promise(
    "a bad record raises an error with place, bytes and cause, or is skipped as configured"
)
def test_skip_goes_on_behind_a_record_and_logs_it(
    port: ServingPort, caplog: pytest.LogCaptureFixture
) -> None:
    port.logs[0].append(5)
    with consumer_over(
        port, A, value_deserializer=refuse_twos, on_record_error="skip"
    ) as consumer, caplog.at_level(logging.WARNING, "pykclient.consumer"):  # fmt: skip
        assert poll_until(consumer, 4) == [0, 1, 3, 4]
    assert "t-0: skipped bad data from offset 2 to 2: ValueError: no twos" in caplog.text


def test_records_that_are_skipped_alike_are_one_line_and_its_count(
    port: ServingPort, caplog: pytest.LogCaptureFixture
) -> None:
    port.logs[0].append(50)

    def refuse(value: bytes) -> str:
        raise ValueError("never")

    with caplog.at_level(logging.WARNING, "pykclient.consumer"):
        with consumer_over(port, A, value_deserializer=refuse, on_record_error="skip") as consumer:
            while consumer.position(A) < 50:
                consumer.poll(SHORT_S)
        first, rest = [line.getMessage() for line in caplog.records]
    assert "t-0: skipped bad data from offset 0 to 0" in first
    assert rest.endswith("(49 times since it was last logged)")


def test_the_log_does_not_have_the_bytes_of_what_was_skipped(
    port: ServingPort, caplog: pytest.LogCaptureFixture
) -> None:
    port.logs[0].append(1)

    def decode(value: bytes) -> str:
        return (b"\xffa secret" + value).decode()

    with consumer_over(
        port, A, value_deserializer=decode, on_record_error="skip"
    ) as consumer, caplog.at_level(logging.WARNING, "pykclient.consumer"):  # fmt: skip
        while consumer.position(A) < 1:
            assert offsets(consumer.poll(SHORT_S)) == []
    assert "skipped bad data from offset 0 to 0: UnicodeDecodeError: " in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.promise(
    "a bad record raises an error with place, bytes and cause, or is skipped as configured"
)
@pytest.mark.parametrize("is_woken", [False, True])
def test_many_bad_records_do_not_hold_a_call_beyond_its_time(
    port: ServingPort, is_woken: bool
) -> None:
    """Each takes time, as sending to a dead-letter topic would; no call waits for all of them."""
    port.logs[0].append(500)
    calls: list[int] = []

    def spend(error: BadRecord) -> None:
        calls.append(1)
        if is_woken:
            consumer.wakeup()
        deadline_ms = now_ms() + 2
        while now_ms() < deadline_ms:
            pass

    with consumer_over(port, A, value_deserializer=refuse_all, on_record_error=spend) as consumer:
        while not calls:
            with pytest.raises(WakeupError) if is_woken else nullcontext():
                assert offsets(consumer.poll(LONG_S if is_woken else SHORT_S)) == []
        assert len(calls) < 100
        assert consumer.position(A) == len(calls)


def test_iteration_skips_as_well(port: ServingPort) -> None:
    port.logs[0].append(5)
    with consumer_over(
        port, A, value_deserializer=refuse_twos, on_record_error="skip", consumer_timeout_ms=250
    ) as consumer:
        assert [record.offset for record in consumer] == [0, 1, 3, 4]


@pytest.mark.promise(
    "a bad record raises an error with place, bytes and cause, or is skipped as configured"
)
def test_what_the_function_raises_comes_out_and_the_record_is_not_passed_over(
    port: ServingPort,
) -> None:
    port.logs[0].append(3)

    def refuse(error: BadRecord) -> None:
        raise RuntimeError("the dead letters cannot be reached")

    with consumer_over(port, A, value_deserializer=refuse_twos, on_record_error=refuse) as consumer:
        assert offsets(consumer.poll(LONG_S)) == [0, 1]
        for _ in range(2):
            with pytest.raises(RuntimeError, match="dead letters"):
                consumer.poll(LONG_S)
        assert consumer.position(A) == 2


@pytest.mark.promise(
    "a bad record raises an error with place, bytes and cause, or is skipped as configured"
)
@pytest.mark.parametrize("sought", [0, 3, 5])
def test_a_function_gets_the_raw_bytes_and_may_seek(port: ServingPort, sought: int) -> None:
    port.logs[0].append(6)
    calls: list[int] = []

    def seek(error: BadRecord) -> None:
        assert isinstance(error, RecordDeserializationError)
        assert (error.offset, error.value) == (2, value_at(2))
        calls.append(1)
        if len(calls) == 1:
            consumer.seek(A, sought)

    with consumer_over(port, A, value_deserializer=refuse_twos, on_record_error=seek) as consumer:
        assert poll_until(consumer, 2) == [0, 1]
        rest = [offset for offset in range(sought, 6) if offset != 2]
        assert poll_until(consumer, len(rest)) == rest
    assert len(calls) == (1 if sought > 2 else 2)


def test_a_function_may_pause_or_give_up_the_partition(port: ServingPort) -> None:
    port.logs[0].append(4)
    port.logs[1].append(2)

    def pause(error: BadRecord) -> None:
        consumer.pause([A])

    with consumer_over(port, A, value_deserializer=refuse_twos, on_record_error=pause) as consumer:
        assert poll_until(consumer, 2) == [0, 1]
        assert offsets(consumer.poll(SHORT_S)) == []
        assert consumer.position(A) == 3
        consumer.resume([A])
        assert poll_until(consumer, 1) == [3]

    def leave(error: BadRecord) -> None:
        consumer.assign([B])

    port = ServingPort(2)
    port.logs[0].append(4)
    port.logs[1].append(2)
    with consumer_over(port, A, value_deserializer=refuse_twos, on_record_error=leave) as consumer:
        assert poll_until(consumer, 2) == [0, 1]
        assert poll_until(consumer, 2) == [0, 1]


def test_a_damaged_batch_is_passed_over_once_it_came_damaged_twice(port: ServingPort) -> None:
    port.logs[0].append(2)
    port.logs[0].append(2, damaged(2, 2))
    port.logs[0].append(2)
    notes = Notes()
    with consumer_over(port, A, on_record_error=notes, retry_backoff_ms=1) as consumer:
        assert poll_until(consumer, 4) == [0, 1, 4, 5]
    (error,) = notes.errors
    assert isinstance(error, CorruptRecordError)
    assert (error.topic, error.partition, error.offset, error.next_offset) == ("t", 0, 2, 4)
    assert error.raw == damaged(2, 2)
    assert isinstance(error.__cause__, CorruptRecordError)


@pytest.mark.timeout(30)  # passed over, its records never come
def test_a_batch_that_was_damaged_on_its_way_only_is_read(port: ServingPort) -> None:
    log = port.logs[0]
    log.append(2, damaged(0, 2))
    notes = Notes()
    fetches: list[object] = []

    def heal_after_one(_: int) -> None:
        if port.last_fetch is not None and not fetches:
            fetches.append(port.last_fetch)
            log._batches[:] = [(2, batch(range(2)))]

    port.on_wait = heal_after_one
    with consumer_over(port, A, on_record_error=notes, retry_backoff_ms=1) as consumer:
        assert poll_until(consumer, 2) == [0, 1]
    assert notes.errors == []
    assert fetches


def test_partitions_that_are_given_up_are_forgotten() -> None:
    port = ServingPort(2)
    for log in port.logs.values():
        log.append(2, damaged(0, 2))
    with consumer_over(port, on_record_error="skip", retry_backoff_ms=60_000) as consumer:
        for partition in (A, B):
            consumer.assign([partition])
            while port.last_fetch is None:
                consumer.poll(SHORT_S)
            consumer.poll(SHORT_S)
            noted = [assigned.partition for assigned in consumer._wiring.records._damaged]
            assert noted == [partition]
            port.last_fetch = None


@pytest.mark.parametrize("policy", ["skip", Notes()])
def test_a_damaged_batch_whose_end_cannot_be_true_is_raised(
    port: ServingPort, policy: object
) -> None:
    """No checksum covers it; a jump to a wrong offset would skip good records."""
    data = bytearray(batch(range(2)))
    data[LAST_OFFSET_DELTA_AT : LAST_OFFSET_DELTA_AT + 4] = (1 << 20).to_bytes(4, "big")
    port.logs[0].append(2, bytes(data))
    port.logs[0].append(2)
    with consumer_over(port, A, on_record_error=policy, retry_backoff_ms=1) as consumer:
        with pytest.raises(CorruptRecordError) as raised:
            consumer.poll(LONG_S)
        assert raised.value.next_offset is None
        assert raised.value.raw is not None
        assert raised.value.raw.startswith(bytes(data))
        assert consumer.position(A) == 0


UNKNOWN_CODEC = resealed(batch(range(2, 4))[:22] + b"\x05" + batch(range(2, 4))[23:])
LOST_MESSAGES = message(3, None, b"not gzip", attributes=1)
"""Messages of the old format; of the first ones only the last offset is known."""


@pytest.mark.parametrize(
    "bad", [damaged(2, 2), UNKNOWN_CODEC, LOST_MESSAGES], ids=["damaged", "codec", "old"]
)
def test_all_that_is_lost_is_reported_and_what_follows_is_read(
    port: ServingPort, caplog: pytest.LogCaptureFixture, bad: bytes
) -> None:
    port.logs[0].append(2)
    port.logs[0].append(2, bad)
    port.logs[0].append(2)
    with consumer_over(port, A, on_record_error="skip", retry_backoff_ms=1) as consumer:
        assert poll_until(consumer, 4) == [0, 1, 4, 5]
    assert "skipped bad data from offset 2 to 3" in caplog.text
    notes = Notes()
    with consumer_over(port, A, on_record_error=notes, retry_backoff_ms=1) as consumer:
        assert poll_until(consumer, 4) == [0, 1, 4, 5]
    (error,) = notes.errors
    assert isinstance(error, CorruptRecordError)
    assert (error.offset, error.next_offset, error.raw) == (2, 4, bad)


@pytest.mark.parametrize("policy", [None, 5, "no_such_module:name", "neither", object()])
def test_what_is_no_policy_is_refused(policy: object) -> None:
    with pytest.raises(ConfigError, match="on_record_error"):
        consumer_over(ServingPort(), on_record_error=policy)


@pytest.mark.promise("the application's code does not delay heartbeats")
def test_heartbeats_go_on_while_the_function_or_an_interceptor_runs(port: ServingPort) -> None:
    """The application's code never runs under the core lock, which heartbeats need."""
    port.logs[0].append(3)
    locked: list[bool] = []

    def look(error: BadRecord) -> None:
        locked.append(consumer._wiring.guard.is_held)

    class Interceptor:
        def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
            locked.append(consumer._wiring.guard.is_held)
            return records

    with consumer_over(
        port, A, value_deserializer=refuse_twos, on_record_error=look, interceptors=[Interceptor()]
    ) as consumer:
        assert poll_until(consumer, 2) == [0, 1]
        consumer.poll(SHORT_S)
        assert consumer.position(A) == 3
    assert locked == [False, False]
