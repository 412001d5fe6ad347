"""The partition of a key, and the checksum of a batch.

Owner: the hashes of the last keys, in a cache that any thread may use.
Source: KIP-98 (CRC32-C); Java classes ``BuiltInPartitioner``; ``Utils``, method ``murmur2``;
librdkafka's setting ``partitioner`` (CRC32, FNV-1a).
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final
from zlib import crc32

from pykclient.accel.key_rule import CRC32, FNV1A, HASHES, MURMUR2

REMEMBERED_COUNT_MAX: Final = 4096
REMEMBERED_SIZE_BYTES_MAX: Final = 64
"""Maximum size of keys whose hashes are cached, the last 4096: a megabyte at most."""


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """Return the CRC32-C of `data`, continuing from `crc`."""
    # Once per batch, so here: the package takes as long to import as all of ours together.
    import crc32c as library

    return int(library.crc32c(data, crc))


def partition_of_key(key: bytes, partition_count: int, rule: int = MURMUR2) -> int:
    """Return the partition of a key by the hash of a rule, which must have one."""
    # Keys come again and again, and hashing one here costs as much as the rest of a send.
    is_remembered = len(key) <= REMEMBERED_SIZE_BYTES_MAX
    if rule & HASHES == MURMUR2:
        hashed = _remembered_murmur2(key) if is_remembered else _murmur2(key)
        return (hashed & 0x7FFFFFFF) % partition_count
    if rule & HASHES == CRC32:
        return crc32(key) % partition_count
    assert rule & HASHES == FNV1A, "a rule that hashes"
    hashed = _remembered_fnv1a(key) if is_remembered else _fnv1a(key)
    return (hashed if hashed < 0x80000000 else 0x100000000 - hashed) % partition_count


def _murmur2(data: bytes) -> int:
    length = len(data)
    hashed = 0x9747B28C ^ length
    for word in struct.unpack_from(f"<{length >> 2}I", data):
        mixed = word * 0x5BD1E995 & 0xFFFFFFFF
        mixed ^= mixed >> 24
        hashed = (hashed * 0x5BD1E995 ^ mixed * 0x5BD1E995) & 0xFFFFFFFF
    if rest := length & 3:
        hashed ^= int.from_bytes(data[-rest:], "little")
        hashed = hashed * 0x5BD1E995 & 0xFFFFFFFF
    hashed ^= hashed >> 13
    hashed = hashed * 0x5BD1E995 & 0xFFFFFFFF
    hashed ^= hashed >> 15
    return hashed


def _fnv1a(data: bytes) -> int:
    hashed = 0x811C9DC5
    for byte in data:
        hashed = (hashed ^ byte) * 0x01000193 & 0xFFFFFFFF
    return hashed


_remembered_fnv1a = lru_cache(REMEMBERED_COUNT_MAX)(_fnv1a)
_remembered_murmur2 = lru_cache(REMEMBERED_COUNT_MAX)(_murmur2)
