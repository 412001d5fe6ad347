"""Golden bytes of the wire types, from Kafka's protocol guide."""

from __future__ import annotations

__all__ = ["FIXED", "GOLDEN", "NULL_16", "NULL_32"]

NULL_16, NULL_32 = b"\xff\xff", b"\xff\xff\xff\xff"

# What a reader's method gives for which bytes; the writer of the same name gives those bytes.
GOLDEN: list[tuple[str, bytes, object]] = [
    ("uuid", bytes(range(16)), bytes(range(16))),
    ("string", b"\x00\x03a\xc3\xa9", "aé"),
    ("string", b"\x00\x00", ""),
    ("nullable_string", b"\x00\x01a", "a"),
    ("nullable_string", NULL_16, None),
    ("compact_string", b"\x04a\xc3\xa9", "aé"),
    ("compact_string", b"\x81\x01" + b"x" * 128, "x" * 128),
    ("compact_nullable_string", b"\x02a", "a"),
    ("compact_nullable_string", b"\x00", None),
    ("bytes", b"\x00\x00\x00\x02ab", b"ab"),
    ("nullable_bytes", b"\x00\x00\x00\x00", b""),
    ("nullable_bytes", NULL_32, None),
    ("compact_bytes", b"\x03ab", b"ab"),
    ("compact_nullable_bytes", b"\x01", b""),
    ("compact_nullable_bytes", b"\x00", None),
    ("records", b"\x00\x00\x00\x02ab", b"ab"),
    ("nullable_records", b"\x00\x00\x00\x02ab", b"ab"),
    ("nullable_records", NULL_32, None),
    ("compact_records", b"\x03ab", b"ab"),
    ("compact_nullable_records", b"\x03ab", b"ab"),
    ("compact_nullable_records", b"\x00", None),
    ("unsigned_varint", b"\x00", 0),
    ("unsigned_varint", b"\x7f", 127),
    ("unsigned_varint", b"\x80\x01", 128),
    ("unsigned_varint", b"\xff\xff\xff\xff\x0f", 2**32 - 1),
]

FIXED: list[tuple[str, bytes, object]] = [
    ("boolean", b"\x01", True),
    ("boolean", b"\x00", False),
    ("int8", b"\x80", -128),
    ("int16", b"\x80\x00", -(2**15)),
    ("uint16", b"\xff\xff", 2**16 - 1),
    ("int32", b"\x80\x00\x00\x00", -(2**31)),
    ("int64", b"\x7f" + b"\xff" * 7, 2**63 - 1),
    ("float64", b"\x3f\xf8" + bytes(6), 1.5),
]
