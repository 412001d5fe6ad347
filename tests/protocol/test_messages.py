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
from hypothesis import given, settings
from hypothesis import strategies as st

from pykclient.errors.base import DecodeError
from pykclient.protocol.reader import Reader
from tests.protocol.instances import DrawnChoices, SeededChoices
from tests.protocol.schemas import generated, generated_versions, jar_or_skip

if TYPE_CHECKING:
    from pykclient.protocol.message import Structure

jar_or_skip()

every_version = pytest.mark.parametrize(("name", "version"), generated_versions())

MEMORY_BYTES_MAX = 1_000_000
"""Far more than reading any of the small messages below may take."""


def written(message: Structure, version: int) -> bytes:
    out = bytearray()
    message.write(out, version)
    return bytes(out)


def read(name: str, version: int, data: bytes) -> Structure:
    reader = Reader(data)
    message = generated()[name].type.read(reader, version)
    reader.end()
    return message


def seeded(name: str, version: int, seed: int) -> Structure:
    choices = SeededChoices(Random(f"{name} {version} {seed}"))
    return generated()[name].make(version, choices)


@pytest.mark.promise("every message is read back as it was written, in every version")
@every_version
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_message_survives_writing_and_reading(name: str, version: int, data: st.DataObject) -> None:
    message = generated()[name].make(version, DrawnChoices(data))
    encoded = written(message, version)
    assert read(name, version, encoded) == message
    assert written(read(name, version, encoded), version) == encoded


@pytest.mark.promise("every message is read back as it was written, in every version")
@every_version
def test_default_message_survives_writing_and_reading(name: str, version: int) -> None:
    message = generated()[name].type()
    assert read(name, version, written(message, version)) == message


@pytest.mark.promise("malformed bytes raise `DecodeError`, and take no memory")
@every_version
def test_message_that_is_cut_short_is_a_decode_error(name: str, version: int) -> None:
    encoded = written(seeded(name, version, 0), version)
    for size in range(len(encoded)):
        with pytest.raises(DecodeError):
            read(name, version, encoded[:size])


@every_version
def test_trailing_byte_is_a_decode_error(name: str, version: int) -> None:
    encoded = written(seeded(name, version, 0), version)
    with pytest.raises(DecodeError, match="1 bytes remain"):
        read(name, version, encoded + b"\x00")


@pytest.mark.promise("malformed bytes raise `DecodeError`, and take no memory")
@every_version
def test_corrupt_message_is_read_or_is_a_decode_error(name: str, version: int) -> None:
    random = Random(f"{name} {version}")
    for seed in range(20):
        encoded = bytearray(written(seeded(name, version, seed), version))
        if not encoded:
            continue
        for _ in range(random.randint(1, 4)):
            encoded[random.randrange(len(encoded))] = random.choice((0, 0x7F, 0x80, 0xFF))
        read_or_refuse(name, version, bytes(encoded))


@pytest.mark.promise("malformed bytes raise `DecodeError`, and take no memory")
@every_version
def test_forged_length_is_refused_before_memory_is_taken(name: str, version: int) -> None:
    """Goal: no announced count or size is believed. Method: put a huge one at every place."""
    encoded = written(seeded(name, version, 1), version)
    huge = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x7f\xff")
    tracemalloc.start()
    try:
        for position in range(min(len(encoded), 300)):
            for value in huge:
                read_or_refuse(name, version, encoded[:position] + value + encoded[position:])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_BYTES_MAX


def read_or_refuse(name: str, version: int, data: bytes) -> None:
    """Read bytes that may be wrong: whatever else than a `DecodeError` comes out fails the test."""
    with suppress(DecodeError):
        read(name, version, data)
