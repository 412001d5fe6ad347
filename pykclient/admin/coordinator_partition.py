"""Which partition of ``__consumer_offsets`` a group belongs to; its leader coordinates the group.

Owner: no state.
Source: Java's ``String.hashCode``; Java classes ``Utils`` (``abs``) and ``GroupCoordinatorService``
(``partitionFor``).
"""

from __future__ import annotations

from struct import unpack
from typing import Final

__all__ = ["OFFSETS_TOPIC", "coordinator_partition", "java_string_hash"]

OFFSETS_TOPIC: Final = "__consumer_offsets"

INT_MIN: Final = -(2**31)
SIGN_BIT: Final = 2**31
INT_MASK: Final = 2**32 - 1


def java_string_hash(text: str) -> int:
    """Return what Java's ``hashCode`` gives for a string: signed, over its UTF-16 units."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in unpack(f">{len(data) // 2}H", data):
        value = (31 * value + unit) & INT_MASK
    return (value ^ SIGN_BIT) - SIGN_BIT


def coordinator_partition(group: str, partition_count: int) -> int:
    """Return the partition of a group where ``__consumer_offsets`` has `partition_count`."""
    value = java_string_hash(group)
    # Java has no positive number for it, and takes 0.
    return 0 if value == INT_MIN else abs(value) % partition_count
