"""Both cores make the same bytes of the same records, and refuse the same ones alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.accel import pure
from pykclient.accel.key_rule import RANDOM, ROUND_ROBIN
from tests.accel.fuzzing import fuzz
from tests.accel.records import RULES, new_appender, sealed_bytes

if TYPE_CHECKING:
    from types import ModuleType

COMPILED: ModuleType = pytest.importorskip("pykclient.accel.compiled", reason="not built")

NOW_MS = 1_700_000_000_000

FIELDS = (
    st.none()
    | st.binary(max_size=9)
    | st.sampled_from([bytes(size) for size in (63, 64, 8191, 8192)])
    | st.binary(max_size=9).map(bytearray)
    | st.binary(max_size=9).map(lambda data: memoryview(data))
    | st.sampled_from(["text", 5, 1.5, ["list"]])
)
NAMES = st.text(max_size=5) | st.sampled_from([b"bytes", None, 7, "\ud800", "n" * 70])
PAIRS = (
    st.tuples(NAMES, st.none() | st.binary(max_size=9) | st.sampled_from(["text", 5]))
    | st.sampled_from([("only one",), ("a", b"b", b"c"), "ab", None])
    | st.lists(st.binary(max_size=3), min_size=2, max_size=2)
    | st.tuples(st.text(max_size=3), st.binary(max_size=3).map(bytearray))
)
HEADERS = st.none() | st.lists(PAIRS, max_size=3) | st.lists(PAIRS, max_size=3).map(tuple)
TIMES_MS = st.integers(NOW_MS, NOW_MS + 2) | st.sampled_from(
    [0, -1, 2**31, 2**63 - 1, 2**63, -(2**70)]
)
RECORDS = st.lists(st.tuples(TIMES_MS, FIELDS, FIELDS, HEADERS, st.booleans()), max_size=12)


def on_delivery(_place: object, _error: object) -> None:
    pytest.fail("no broker takes these records")


def result_of(call: Any, *arguments: object, **keywords: object) -> tuple[object, ...]:
    """Make a call and return its result, or its error with the text."""
    try:
        delivery = call(*arguments, **keywords)
    except Exception as error:  # noqa: BLE001  # whatever it is, it is to be the same
        return type(error), str(error)
    return ("refused",) if delivery is None else ("taken", delivery.index)


def state_of(appender: Any) -> tuple[object, ...]:
    """Everything that can be seen of an appender."""
    return (
        appender.count,
        appender.size_bytes,
        appender.base_timestamp_ms,
        appender.max_timestamp_ms,
        list(appender.first_indexes),
        list(appender.timestamps_ms),
        list(appender.callbacks),
    )


@pytest.mark.promise(
    "both cores write the same bytes for the same records, and raise the same errors"
)
@fuzz
@given(records=RECORDS, capacity_bytes=st.integers(0, 400) | st.just(100_000))
def test_appending(records: list[tuple[Any, ...]], capacity_bytes: int) -> None:
    appenders = [new_appender(core, capacity_bytes) for core in (pure, COMPILED)]
    for timestamp_ms, key, value, headers, has_callback in records:
        callback = on_delivery if has_callback else None
        first, second = (
            result_of(appender.append, timestamp_ms, key, value, headers, callback)
            for appender in appenders
        )
        assert first == second
    first_state, second_state = map(state_of, appenders)
    assert first_state == second_state
    assert sealed_bytes(appenders[0]) == sealed_bytes(appenders[1])
    assert bytes(appenders[0].frame(61)) == bytes(appenders[1].frame(61))


PARTITIONS = st.none() | st.integers(-1, 4) | st.sampled_from([True, "1", 2**70, 1.0])


@pytest.mark.promise(
    "both cores write the same bytes for the same records, and raise the same errors"
)
@fuzz
@given(
    records=st.lists(
        st.tuples(
            st.sampled_from(["t", "t", "t", "unknown", ("a", "tuple")]),
            FIELDS,
            FIELDS,
            PARTITIONS,
            st.none() | TIMES_MS | st.sampled_from(["now", 1.5, True]),
            HEADERS,
        ),
        max_size=12,
    ),
    is_open=st.lists(st.booleans(), min_size=4, max_size=4),
    key_rule=RULES | st.sampled_from([ROUND_ROBIN, RANDOM]),
    choices=st.lists(st.integers(-1, 5), max_size=4),
)
def test_sending(
    records: list[tuple[Any, ...]], is_open: list[bool], key_rule: int, choices: list[int]
) -> None:
    states = []
    for core in (pure, COMPILED):
        slow_calls: list[tuple[object, ...]] = []
        send_core: Any = core.SendCore(
            lambda *arguments, calls=slow_calls: calls.append(arguments), lambda: NOW_MS * 10**6
        )
        topic = core.TopicAppenders(4, key_rule=key_rule, turn=2**32 - 2)
        appenders = [new_appender(core, 500) for _ in range(4)]
        topic.open[:] = [
            appender if opened else None
            for appender, opened in zip(appenders, is_open, strict=True)
        ]
        topic.sticky = topic.open[2]
        topic.choices = choices
        send_core.topics["t"] = topic
        results = [
            result_of(
                send_core.send,
                name,
                value,
                key,
                partition=partition,
                timestamp_ms=timestamp_ms,
                headers=headers,
            )
            for name, value, key, partition, timestamp_ms, headers in records
        ]
        seen = [state_of(appender) for appender in appenders]
        states.append((results, slow_calls, seen, [sealed_bytes(each) for each in appenders]))
        assert 0 <= topic.turn < 2**32
    assert states[0] == states[1]
