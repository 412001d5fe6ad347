"""Zigzag varints, the numbers inside a record.

Owner: no state.
Source: Kafka protocol guide, "Protocol Primitive Types", VARINT and VARLONG.
"""

from __future__ import annotations

from typing import Final

from pykclient.errors.base import DecodeError


def encode_varint(number: int) -> bytes:
    """Return a signed number of up to 64 bits as a zigzag varint of 1 to 10 bytes."""
    rest = number << 1 ^ number >> 63
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


SMALL_COUNT: Final = 8192
SMALL: Final = tuple(
    [bytes((number << 1,)) for number in range(64)]
    + [bytes((number << 1 & 0x7F | 0x80, number >> 6)) for number in range(64, SMALL_COUNT)]
)
"""The varints of one and two bytes, which lengths and offset deltas usually have."""


def varint(number: int) -> bytes:
    """Return the same as `encode_varint`, from the table if possible."""
    return SMALL[number] if 0 <= number < SMALL_COUNT else encode_varint(number)


def read_long(data: bytes, number: int, position: int) -> tuple[int, int]:
    """Continue a varint of three bytes or more; return it in zigzag form, and its end.

    `number` is the sum of the first two bytes as `decode_records` computes it: it still has the
    second byte's continuation bit.
    """
    number -= 1 << 14
    for shift in range(14, 64, 7):
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >> 64:
                break
            return number, position
    raise DecodeError("a number is longer than 64 bits")


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at `position` and its end; IndexError if `data` ends before.

    Raises:
        DecodeError: it is longer than 64 bits.
    """
    number = data[position]
    position += 1
    if number >= 0x80:
        byte = data[position]
        position += 1
        number += (byte << 7) - 0x80
        if byte >= 0x80:
            number, position = read_long(data, number, position)
    return number >> 1 ^ -(number & 1), position
