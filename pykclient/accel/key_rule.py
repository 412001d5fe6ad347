"""A topic's rule for keys, as one number that both cores read.

The lowest two bits name the hash; 0 means none: records with a key are then treated like those
without. The other bits are exceptions. `ROUND_ROBIN` and `RANDOM` are used alone: each record gets
its own partition, whatever its key.

Owner: no state.
Source: Java classes ``BuiltInPartitioner``, ``RoundRobinPartitioner``; librdkafka's setting
``partitioner``.
"""

from __future__ import annotations

from typing import Final

IGNORE_KEYS: Final = 0
MURMUR2: Final = 1
"""Hash without its sign, modulo the number of partitions, as in Java."""

CRC32: Final = 2
FNV1A: Final = 3
"""32-bit hash, of which librdkafka (like Sarama) takes the absolute value."""

HASHES: Final = 3
NULL_IS_HASHED: Final = 4
"""A record without a key goes to the partition of the empty key instead of the sticky partition."""

EMPTY_IS_SPREAD: Final = 8
"""A record with an empty key goes to the sticky partition, as if it had none."""

ROUND_ROBIN: Final = 16
RANDOM: Final = 32
EACH_RECORD: Final = ROUND_ROBIN | RANDOM
NULL_IS_PLACED: Final = NULL_IS_HASHED | EACH_RECORD
"""Mask: without these bits, a record without a key goes to the sticky partition."""


def is_hashed(rule: int, key: bytes | None) -> bool:
    """Return whether a record's partition follows from its key."""
    if not rule & HASHES:
        return False
    if key is None:
        return bool(rule & NULL_IS_HASHED)
    return bool(key) or not rule & EMPTY_IS_SPREAD
