"""Zigzag varints: known bytes, every length, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.accel.pure.varint import SMALL, SMALL_COUNT, encode_varint, read_varint, varint
from pykclient.errors.base import DecodeError


@pytest.mark.parametrize(
    ("number", "data"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_known_numbers_have_their_bytes(number: int, data: str) -> None:
    assert encode_varint(number).hex() == data
    assert varint(number).hex() == data
    assert read_varint(bytes.fromhex(data), 0) == (number, len(data) // 2)


def test_the_table_holds_what_the_definition_gives() -> None:
    assert list(SMALL) == [encode_varint(number) for number in range(SMALL_COUNT)]


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_every_number_comes_back_from_the_middle_of_bytes(
    number: int, before: bytes, after: bytes
) -> None:
    data = before + encode_varint(number) + after
    assert read_varint(data, len(before)) == (number, len(data) - len(after))


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_number_cut_off_anywhere_is_an_index_error(number: int) -> None:
    data = encode_varint(number)
    for end in range(len(data)):
        with pytest.raises(IndexError):
            read_varint(data[:end], 0)


@pytest.mark.parametrize("data", [b"\x80" * 10 + b"\x00", b"\xff" * 9 + b"\x02", b"\xff" * 20])
def test_a_number_of_more_than_64_bits_is_a_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError, match="longer than 64 bits"):
        read_varint(data, 0)
