"""The key hash and the checksum: known values, and a slow definition of each to compare with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from types import ModuleType

HASH_LIMIT = 2**31
"""With this many partitions a key's partition is its hash without the sign."""

same_core = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        # The values that Kafka's own UtilsTest lists.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (b"", 275646681),
    ],
)
def test_murmur2_has_the_values_of_java(core: ModuleType, key: bytes, hashed: int) -> None:
    assert core.partition_of_key(key, HASH_LIMIT) == hashed & 0x7FFFFFFF


def _murmur2_by_definition(data: bytes) -> int:
    """Austin Appleby's MurmurHash2 with Kafka's seed, step by step."""
    mask, factor = 0xFFFFFFFF, 0x5BD1E995
    hashed = 0x9747B28C ^ len(data)
    for start in range(0, len(data) - 3, 4):
        word = int.from_bytes(data[start : start + 4], "little") * factor & mask
        word = (word ^ word >> 24) * factor & mask
        hashed = hashed * factor & mask ^ word
    if len(data) % 4:
        hashed ^= int.from_bytes(data[len(data) // 4 * 4 :], "little")
        hashed = hashed * factor & mask
    hashed = (hashed ^ hashed >> 13) * factor & mask
    hashed ^= hashed >> 15
    return hashed


@same_core
@given(st.binary(max_size=200))
def test_murmur2_is_the_same_each_time_and_by_its_definition(core: ModuleType, key: bytes) -> None:
    expected = _murmur2_by_definition(key) & 0x7FFFFFFF
    for _ in range(2):
        assert core.partition_of_key(key, HASH_LIMIT) == expected


def test_crc32c_has_the_check_value_of_its_definition(core: ModuleType) -> None:
    assert core.crc32c(b"123456789") == 0xE3069283


def _crc32c_bit_by_bit(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@same_core
@given(st.binary(), st.binary())
def test_crc32c_is_the_castagnoli_checksum_and_can_go_on(
    core: ModuleType, first: bytes, second: bytes
) -> None:
    whole = core.crc32c(memoryview(first + second))
    assert whole == _crc32c_bit_by_bit(first + second)
    assert core.crc32c(bytearray(second), core.crc32c(first)) == whole
