"""Large values stay where they are; what is sent is the same."""

from __future__ import annotations

from pykclient.protocol import primitives
from pykclient.protocol.gather import GATHER_MIN_BYTES, GatherBuffer


def test_large_records_are_kept_by_reference_in_their_place() -> None:
    large = bytearray(b"L" * GATHER_MIN_BYTES)
    small = b"s" * (GATHER_MIN_BYTES - 1)
    gathered, plain = GatherBuffer(), bytearray()
    for out in (gathered, plain):
        out += b"head"
        primitives.write_compact_records(out, large)
        primitives.write_nullable_records(out, small)
        primitives.write_records(out, memoryview(large))
        primitives.write_nullable_records(out, None)
    parts = gathered.parts()
    assert b"".join(parts) == plain
    assert gathered.size == len(plain)
    assert sum(part is large for part in parts) == 1
    assert all(len(part) > 0 for part in parts)


def test_gathering_nothing_gives_one_part() -> None:
    out = GatherBuffer()
    out += b"only"
    assert out.parts() == [b"only"]
