"""Serializers write the bytes that Kafka's own classes write, and read what those write."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pykclient import serialization
from tests.java_mirror import JavaMirror

if TYPE_CHECKING:
    from collections.abc import Iterator

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "String": st.text(),
    "Short": st.integers(-(2**15), 2**15 - 1),
    "Integer": st.integers(-(2**31), 2**31 - 1),
    "Long": st.integers(-(2**63), 2**63 - 1),
    "Float": st.floats(-3e38, 3e38) | st.sampled_from([math.inf, -math.inf, math.nan]),
    "Double": st.floats(),
    "UUID": st.uuids(),
    "Boolean": st.booleans(),
    "Bytes": st.binary(),
}
JAVA_NAMES = {"Bytes": "ByteArray"}


@pytest.fixture(scope="module")
def java() -> Iterator[JavaMirror]:
    with JavaMirror(Path(__file__).with_name("SerializationMirror.java")) as mirror:
        yield mirror


def written(value: object) -> str:
    """Return a value as the Java program reads and writes it."""
    if isinstance(value, str):
        return f"={value.encode('utf-16-be').hex()}"
    if isinstance(value, bytes):
        return f"={value.hex()}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return struct.pack(">d", value).hex()
    return "null" if value is None else str(value)


@given(
    case=st.one_of(
        [st.tuples(st.just(name), st.none() | values) for name, values in VALUES.items()]
    )
)
@example(case=("String", "\U0001f600 Grüße"))
@example(case=("Double", struct.unpack(">d", b"\xff\xf8\x00\x00\x00\x00\x00\x01")[0]))
@example(case=("Float", 0.1))
@example(case=("Float", 1e-46))
@example(case=("UUID", UUID(int=0)))
@settings(
    max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_the_bytes_are_javas_and_come_back(java: JavaMirror, case: tuple[str, Any]) -> None:
    name, value = case
    serializer = getattr(serialization, f"{name}Serializer")()
    deserializer = getattr(serialization, f"{name}Deserializer")()
    in_java, read_by_java = java.call(f"{JAVA_NAMES.get(name, name)} {written(value)}").split(" ")
    data = serializer.serialize("t", value)
    assert written(data) == in_java
    # A NaN reads as one of ours, whichever it was.
    read = deserializer.deserialize("t", data)
    assert written(read) == read_by_java
