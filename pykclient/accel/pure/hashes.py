"""The partition of a key, and the checksum of a batch.

Owner: the hashes of the last keys, in a cache that any thread may use.
Source: KIP-98 (CRC32-C); Java classes ``BuiltInPartitioner``; ``Utils``, method ``murmur2``.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

REMEMBERED_COUNT_MAX: Final = 4096
REMEMBERED_SIZE_BYTES_MAX: Final = 64
"""Keys up to this size have their hashes remembered, the last 4096: a megabyte at most."""


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """Return the CRC32-C of `data`, continuing from `crc`."""
    # Once per batch, so here: the package takes as long to import as all of ours together.
    import crc32c as library

    return int(library.crc32c(data, crc))


def partition_of_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a key, as Java's producer chooses it."""
    # Keys come again and again, and hashing one here costs as much as the rest of a send.
    is_remembered = len(key) <= REMEMBERED_SIZE_BYTES_MAX
    hashed = _remembered_murmur2(key) if is_remembered else _murmur2(key)
    return (hashed & 0x7FFFFFFF) % partition_count


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


_remembered_murmur2 = lru_cache(REMEMBERED_COUNT_MAX)(_murmur2)
