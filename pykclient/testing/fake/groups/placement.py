"""Which partition of ``__consumer_offsets`` a group belongs to; its leader is the coordinator.

Owner: none; it holds no state.
Source: Java's ``String.hashCode``; Java class ``GroupCoordinatorService`` (``partitionFor``).
"""

from __future__ import annotations

__all__ = ["java_string_hash", "place", "utf16_unit_count"]

_INT_MIN = -(2**31)


def java_string_hash(text: str) -> int:
    """Java's hash of a string, signed, over UTF-16 units."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for place_of_unit in range(0, len(units), 2):
        unit = units[place_of_unit] << 8 | units[place_of_unit + 1]
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def place(key: str, partition_count: int) -> int:
    """The partition of a group or a transactional id."""
    value = java_string_hash(key)
    return 0 if value == _INT_MIN else abs(value) % partition_count


def utf16_unit_count(text: str) -> int:
    """How long Java says that a string is."""
    return len(text.encode("utf-16-be", "surrogatepass")) // 2
