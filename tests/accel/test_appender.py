"""The appender: bytes that can be checked by hand, its limits, and many threads at once."""

from __future__ import annotations

import threading
from array import array
from typing import TYPE_CHECKING, Any

import pytest

from pykclient.accel.pure.appender import HEADER_COUNT_MAX
from pykclient.errors.base import EncodeError, SerializationError
from tests.accel.records import decoded, new_appender, records_of, sealed_bytes

if TYPE_CHECKING:
    from types import ModuleType


def test_a_record_has_the_bytes_of_the_protocol(core: ModuleType) -> None:
    appender = new_appender(core)
    appender.append(1000, b"key", b"value", [("h", b"x"), ("null", None)])
    appender.append(1001, None, None)
    appender.append(999, b"", b"")
    # length, attributes, timestamp delta, offset delta, key length and key, value length and
    # value, header count, then name and value of each header; all numbers in zigzag form.
    first = "30 00 00 00 06 6b6579 0a 76616c7565 04 02 68 02 78 08 6e756c6c 01"
    second = "0c 00 02 02 01 01 00"
    third = "0c 00 01 04 00 00 00"
    assert sealed_bytes(appender).hex(" ") == bytes.fromhex(first + second + third).hex(" ")


def test_lengths_take_as_many_bytes_as_they_need(core: ModuleType) -> None:
    appender = new_appender(core)
    for size in (63, 64, 8191, 8192, 1_100_000):
        appender = new_appender(core)
        appender.append(0, None, b"v" * size)
        assert appender.size_bytes == len(sealed_bytes(appender))
        assert decoded(core, sealed_bytes(appender)).values == [b"v" * size]


def test_a_delivery_has_its_place_in_the_batch(core: ModuleType) -> None:
    appender = new_appender(core)
    deliveries = [appender.append(0, None, b"") for _ in range(3)]
    assert [delivery and delivery.index for delivery in deliveries] == [0, 1, 2]
    assert appender.count == 3


def test_a_full_appender_refuses_and_stays_as_it_was(core: ModuleType) -> None:
    appender = new_appender(core, 20)
    assert appender.append(1000, None, b"0123456789")
    size_bytes = appender.size_bytes
    assert appender.append(2000, None, b"0123456789", None, print) is None
    assert (appender.size_bytes, appender.count) == (size_bytes, 1)
    assert (appender.base_timestamp_ms, appender.max_timestamp_ms) == (1000, 1000)
    assert list(appender.timestamps_ms) == [1000]
    assert list(appender.callbacks) == []


def test_capacity_is_exact(core: ModuleType) -> None:
    record_bytes = 17
    appender = new_appender(core, 2 * record_bytes)
    assert appender.append(0, None, b"0123456789")
    assert appender.append(0, None, b"0123456789")
    assert appender.size_bytes == 2 * record_bytes
    assert appender.append(0, None, None) is None


def test_the_first_record_is_taken_whatever_its_size(core: ModuleType) -> None:
    appender = new_appender(core, 1)
    assert appender.append(0, None, b"v" * 1000)
    assert appender.append(0, None, b"") is None


def test_growing_makes_room(core: ModuleType) -> None:
    appender = new_appender(core, 20)
    appender.append(0, None, b"0123456789")
    assert appender.append(0, None, b"0123456789") is None
    appender.grow(40)
    assert appender.append(0, None, b"0123456789")
    appender.grow(1)
    assert appender.capacity_bytes == 40


def test_a_sealed_appender_takes_nothing_also_when_it_is_empty_or_grows(core: ModuleType) -> None:
    appender = new_appender(core)
    appender.seal()
    appender.grow(10**6)
    assert appender.append(0, None, b"v") is None
    assert appender.count == 0
    assert (appender.base_timestamp_ms, appender.max_timestamp_ms) == (-1, -1)
    assert sealed_bytes(appender) == b""
    assert bytes(appender.frame(3)) == bytes(3)


def test_timestamps_are_kept_by_run(core: ModuleType) -> None:
    appender = new_appender(core)
    for timestamp_ms in (50, 50, 70, 60, 60, 60, 70):
        appender.append(timestamp_ms, None, b"")
    assert list(appender.first_indexes) == [0, 2, 3, 6]
    assert list(appender.timestamps_ms) == [50, 70, 60, 70]
    assert (appender.base_timestamp_ms, appender.max_timestamp_ms) == (50, 70)


def test_callbacks_are_kept_with_the_indexes_of_their_records(core: ModuleType) -> None:
    appender = new_appender(core)
    appender.append(0, None, b"")
    appender.append(0, None, b"", None, print)
    assert list(appender.callbacks) == [(1, print)]


@pytest.mark.parametrize(
    "odd",
    [
        bytearray(b"abcd"),
        memoryview(b"abcd"),
        memoryview(b"xabcdx")[1:5],
        memoryview(b"abcd").cast("I"),
    ],
)
def test_other_buffers_of_bytes_are_taken_as_bytes(core: ModuleType, odd: Any) -> None:
    appender = new_appender(core)
    appender.append(0, odd, odd)
    columns = decoded(core, sealed_bytes(appender))
    assert (columns.keys, columns.values) == ([b"abcd"], [b"abcd"])


def test_a_later_change_of_a_mutable_value_does_not_reach_the_batch(core: ModuleType) -> None:
    value = bytearray(b"before")
    appender = new_appender(core)
    appender.append(0, None, value)  # type: ignore[arg-type]
    value[:] = b"after!"
    assert b"before" in sealed_bytes(appender)


@pytest.mark.parametrize("odd", ["text", 5, 1.5, ["list"], object()])
def test_a_key_or_value_that_is_not_bytes_is_an_error_with_the_cure(
    core: ModuleType, odd: Any
) -> None:
    appender = new_appender(core)
    with pytest.raises(SerializationError, match=r"value is of type .* set value_serializer"):
        appender.append(0, None, odd)
    with pytest.raises(SerializationError, match=r"key is of type .* set key_serializer"):
        appender.append(0, odd, None)
    assert (appender.count, appender.size_bytes) == (0, 0)


@pytest.mark.parametrize(
    "headers",
    [
        [("name", "text")],
        [(b"name", b"x")],
        [("name",)],
        [("name", b"x", b"y")],
        ["ab"],
        [None],
        [("\ud800", b"")],
        [("name", array("i", [1]))],
        [("name", 5)],
    ],
)
def test_headers_of_another_form_are_an_error_that_names_its_place(
    core: ModuleType, headers: Any
) -> None:
    appender = new_appender(core)
    with pytest.raises(
        SerializationError, match=r"headers: number 0 is wrong .* pass pairs of a str and bytes"
    ) as caught:
        appender.append(0, None, b"", headers)
    assert appender.count == 0
    assert "text" not in str(caught.value), "it is a record's"


@pytest.mark.parametrize(
    "kind", [iter, *(pytest.param(kind, marks=pytest.mark.soak) for kind in (list, tuple))]
)
def test_more_headers_than_a_consumer_reads_are_refused(core: ModuleType, kind: Any) -> None:
    headers = [("", None)] * (HEADER_COUNT_MAX + 1)
    appender = new_appender(core)
    with pytest.raises(SerializationError, match=f"at most {HEADER_COUNT_MAX} headers, this one"):
        appender.append(0, None, b"", kind(headers))
    assert appender.count == 0
    appender.append(0, None, b"", kind(headers[1:]))
    assert appender.count == 1


def test_headers_may_be_any_iterable(core: ModuleType) -> None:
    appender = new_appender(core)
    appender.append(0, None, b"", ((str(n), b"") for n in range(3)))
    assert decoded(core, sealed_bytes(appender)).headers == [(("0", b""), ("1", b""), ("2", b""))]


@pytest.mark.parametrize("timestamp_ms", [-1, -2, -(10**9), 2**63])
def test_a_timestamp_out_of_range_is_an_error_and_changes_nothing(
    core: ModuleType, timestamp_ms: int
) -> None:
    appender = new_appender(core)
    for count in range(2):
        size_bytes = appender.size_bytes
        with pytest.raises(EncodeError, match=f"timestamp_ms is {timestamp_ms}"):
            appender.append(timestamp_ms, None, b"")
        assert (appender.count, appender.size_bytes) == (count, size_bytes)
        appender.append(5, None, b"")


def test_the_largest_timestamp_after_the_smallest_is_kept(core: ModuleType) -> None:
    appender = new_appender(core)
    appender.append(0, None, b"")
    appender.append(2**63 - 1, None, b"")
    assert decoded(core, sealed_bytes(appender), 2).timestamps_ms == [0, 2**63 - 1]


@pytest.mark.parametrize("head_bytes", [0, 61, 64, 65, 1000])
def test_a_frame_is_the_records_behind_room_for_a_header(core: ModuleType, head_bytes: int) -> None:
    appender = new_appender(core)
    for _ in range(1000):
        appender.append(0, None, b"v" * 100)
    records = sealed_bytes(appender)
    frame = appender.frame(head_bytes)
    frame[:head_bytes] = b"h" * head_bytes
    assert bytes(frame) == b"h" * head_bytes + records
    assert bytes(appender.view()) == records


def test_a_frame_outlives_its_appender_and_is_not_touched_by_a_later_one(core: ModuleType) -> None:
    appender = new_appender(core)
    appender.append(0, None, b"value")
    records = sealed_bytes(appender)
    first, second = appender.frame(4), appender.frame(4)
    first[:4], second[:4] = b"1111", b"2222"
    del appender
    others = [new_appender(core) for _ in range(10)]  # which would get its memory, were it free
    for other in others:
        other.append(0, None, b"other")
    assert bytes(first) == b"1111" + records
    assert bytes(second) == b"2222" + records


def test_memory_that_batches_gave_back_is_as_good_as_new(core: ModuleType) -> None:
    values = [bytes([65 + number]) * 70_000 for number in range(5)]
    for _ in range(3):
        appenders = [new_appender(core) for _ in values]
        for _ in range(4):
            for appender, value in zip(appenders, values, strict=True):
                appender.append(0, None, value)
        for appender, value in zip(appenders, values, strict=True):
            assert sealed_bytes(appender).count(value) == 4


def test_many_threads_append_and_none_is_lost_or_doubled(core: ModuleType) -> None:
    """Several threads append while one seals: what got a delivery is in the batch, once."""
    appender = new_appender(core, lock=threading.Lock())
    taken: list[dict[int, bytes]] = [{} for _ in range(4)]
    half_way = threading.Event()

    def send(number: int) -> None:
        for count in range(5000):
            value = b"%d-%d" % (number, count)
            delivery = appender.append(count, None, value)
            if delivery is None:
                return
            taken[number][delivery.index] = value
            if count == 1000:
                half_way.set()

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    assert half_way.wait(30)
    appender.seal()
    for thread in threads:
        thread.join()
    expected = {index: value for part in taken for index, value in part.items()}
    assert dict(enumerate(records_of(appender).values)) == expected
    assert sum(map(len, taken)) == appender.count


def test_an_error_while_the_lock_is_held_gives_it_back(core: ModuleType) -> None:
    lock = threading.Lock()
    appender = new_appender(core, 100, lock)
    with pytest.raises(EncodeError):
        appender.append(-5, None, b"")
    assert not lock.locked()
