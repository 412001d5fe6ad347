"""Every generated message in every version: there and back, cut short, and corrupted.

Method: instances are made from Kafka's schemas, not from the generated code, so that a field that
the generator forgot is missed here.
"""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pykclient.errors.base import DecodeError
from pykclient.protocol.reader import Reader
from tests.protocol.instances import DrawnChoices, SeededChoices
from tests.protocol.schemas import generated, jar_or_skip

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.protocol.message import Structure

jar_or_skip()

every_message = pytest.mark.parametrize("name", generated())

MEMORY_BYTES_MAX = 1_000_000
"""Far more than reading any of the small messages below may take."""


def versions(name: str) -> Iterable[int]:
    return generated()[name].schema.versions.each()


def written(message: Structure, version: int) -> bytes:
    out = bytearray()
    message.write(out, version)
    return bytes(out)


def read(name: str, version: int, data: bytes) -> Structure:
    reader = Reader(data)
    message = generated()[name].type.read(reader, version)
    reader.end()
    return message


def seeded(name: str, version: int, seed: int) -> bytes:
    choices = SeededChoices(Random(f"{name} {version} {seed}"))
    return written(generated()[name].make(version, choices), version)


@every_message
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_message_survives_writing_and_reading(name: str, data: st.DataObject) -> None:
    for version in versions(name):
        message = generated()[name].make(version, DrawnChoices(data))
        encoded = written(message, version)
        assert read(name, version, encoded) == message, version
        assert written(read(name, version, encoded), version) == encoded


@every_message
def test_default_message_survives_writing_and_reading(name: str) -> None:
    message = generated()[name].type()
    for version in versions(name):
        assert read(name, version, written(message, version)) == message, version


@pytest.mark.promise("malformed bytes raise `DecodeError` and allocate no memory")
@every_message
def test_message_of_another_size_is_a_decode_error(name: str) -> None:
    for version in versions(name):
        encoded = seeded(name, version, 0)
        for size in range(len(encoded)):
            with pytest.raises(DecodeError):
                read(name, version, encoded[:size])
        with pytest.raises(DecodeError, match="1 bytes remain"):
            read(name, version, encoded + b"\x00")


@pytest.mark.promise("malformed bytes raise `DecodeError` and allocate no memory")
@every_message
def test_corrupt_message_is_read_or_is_a_decode_error(name: str) -> None:
    for version in versions(name):
        random = Random(f"{name} {version}")
        for seed in range(20):
            encoded = bytearray(seeded(name, version, seed))
            if not encoded:
                continue
            for _ in range(random.randint(1, 4)):
                encoded[random.randrange(len(encoded))] = random.choice((0, 0x7F, 0x80, 0xFF))
            read_or_refuse(name, version, bytes(encoded))


@pytest.mark.promise("malformed bytes raise `DecodeError` and allocate no memory")
@every_message
def test_forged_length_is_refused_before_memory_is_taken(name: str) -> None:
    """Goal: no announced count or size is trusted. Method: put a huge one at every place."""
    huge = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x7f\xff")
    every = list(versions(name))
    for version in {every[0], every[-1]}:  # both encodings, and all fields that are still there
        encoded = seeded(name, version, 1)
        tracemalloc.start()
        try:
            for position in range(min(len(encoded), 300)):
                for value in huge:
                    read_or_refuse(name, version, encoded[:position] + value + encoded[position:])
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < MEMORY_BYTES_MAX, version


def read_or_refuse(name: str, version: int, data: bytes) -> None:
    """Read bytes that may be wrong: whatever else than a `DecodeError` comes out fails the test."""
    with suppress(DecodeError):
        read(name, version, data)
