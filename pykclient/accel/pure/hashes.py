"""The hash of a key and the checksum of a batch.

Owner: the hashes of the last keys, in a cache that any thread may use.
Source: KIP-98 (CRC32-C); Java class ``Utils``, method ``murmur2``.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

__all__ = ["crc32c", "murmur2"]

REMEMBERED_COUNT_MAX: Final = 4096
REMEMBERED_SIZE_BYTES_MAX: Final = 64
"""Keys up to this size have their hashes remembered, the last 4096: a megabyte at most."""


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """Return the CRC32-C of `data`, continuing from `crc`."""
    # Once per batch, so here: the package takes as long to import as all of ours together.
    import crc32c as library

    return int(library.crc32c(data, crc))


def murmur2(data: bytes) -> int:
    """Return Kafka's murmur2 of a key as a signed 32-bit number, as Java's partitioner has it."""
    # Keys come again and again, and hashing one here costs as much as the rest of a send.
    if len(data) <= REMEMBERED_SIZE_BYTES_MAX:
        return _remembered_murmur2(data)
    return _murmur2(data)


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
    return hashed - 0x100000000 if hashed & 0x80000000 else hashed


_remembered_murmur2 = lru_cache(REMEMBERED_COUNT_MAX)(_murmur2)
