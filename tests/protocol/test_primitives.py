"""Writing the wire types: golden bytes from Kafka's protocol guide, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.errors.base import EncodeError
from pykclient.protocol import primitives
from pykclient.protocol.primitives import ZERO_UUID
from tests.protocol.golden_types import FIXED, GOLDEN, NULL_32

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(("name", "data", "value"), GOLDEN)
def test_writer_gives_the_bytes(name: str, data: bytes, value: object) -> None:
    out = bytearray()
    getattr(primitives, f"write_{name}")(out, value)
    assert out == data


@pytest.mark.parametrize(("name", "data", "value"), FIXED)
def test_pack_gives_the_bytes(name: str, data: bytes, value: object) -> None:
    assert getattr(primitives, f"pack_{name}")(value) == data


def test_counts_are_written_as_they_are_read() -> None:
    out = bytearray()
    primitives.write_count(out, [1, 2])
    primitives.write_nullable_count(out, None)
    primitives.write_compact_count(out, [1, 2])
    primitives.write_compact_nullable_count(out, None)
    assert out == b"\x00\x00\x00\x02" + NULL_32 + b"\x03" + b"\x00"


def test_tags_are_written_with_their_sizes() -> None:
    out = bytearray()
    primitives.write_tags(out, {0: bytearray(b"ab"), 3: bytearray()})
    assert out == b"\x02\x00\x02ab\x03\x00"


@pytest.mark.parametrize(
    "write", [primitives.write_string, primitives.write_compact_string], ids=["plain", "compact"]
)
def test_string_beyond_32767_bytes_is_refused(write: Callable[[bytearray, str], None]) -> None:
    out = bytearray()
    write(out, "x" * 32767)
    with pytest.raises(EncodeError, match="32768 bytes; at most 32767"):
        write(out, "é" * 16384)


@pytest.mark.parametrize("value", [b"", bytes(15), bytes(17)])
def test_uuid_of_the_wrong_length_is_refused(value: bytes) -> None:
    with pytest.raises(EncodeError, match="a UUID has 16 bytes"):
        primitives.write_uuid(bytearray(), value)


def test_zero_uuid_is_sixteen_zero_bytes() -> None:
    assert bytes(16) == ZERO_UUID
