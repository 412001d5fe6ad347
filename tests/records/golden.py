"""Batches that Java wrote, kept in ``golden/java.json``, so that they are read without a JVM.

``python -m tests.records.golden`` writes the file again; `test_java` checks that Java still agrees.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.records.record_mirror import JavaRecord, RecordMirror

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE: Final = Path(__file__).parent / "golden" / "java.json"

RECORDS: Final = [
    JavaRecord(100, 1_700_000_000_000, b"key", b"value", (("h", b"x"), ("empty", b""))),
    JavaRecord(101, 1_700_000_000_100, None, b"", ()),
    JavaRecord(102, 1_699_999_999_000, b"", None, (("null", None), ("\u00fc", b"\x00\xff"))),
    JavaRecord(103, 1_700_000_100_000, b"k" * 70, b"a value that repeats, " * 20, ()),
]
GAPS: Final = [RECORDS[0], RECORDS[2]._replace(offset=105), RECORDS[3]._replace(offset=9000)]
PLAIN: Final = [record._replace(headers=()) for record in RECORDS]
PRODUCER: Final = (4711, 3, 17)


def write_all(java: RecordMirror) -> dict[str, bytes]:
    """Write every batch of the file with Java."""
    batches = {
        codec: java.write(RECORDS, codec=codec, base_offset=100)
        for codec in ("none", "gzip", "snappy", "lz4", "zstd")
    }
    batches["idempotent"] = java.write(
        RECORDS, base_offset=100, producer=PRODUCER, partition_leader_epoch=6
    )
    batches["transactional"] = java.write(
        RECORDS, base_offset=100, producer=PRODUCER, is_transactional=True
    )
    batches["log append time"] = java.write(
        RECORDS, base_offset=100, log_append_time_ms=1_700_000_500_000
    )
    batches["compacted"] = java.write(GAPS, codec="lz4", base_offset=100)
    for kind in ("COMMIT", "ABORT"):
        batches[kind.lower()] = java.marker(kind, offset=104, timestamp_ms=5, producer_id=4711)
    for magic in (0, 1):
        for codec in ("none", "gzip", "snappy", "lz4"):
            if (magic, codec) != (0, "lz4"):
                batches[f"magic {magic} {codec}"] = java.write(
                    PLAIN, magic=magic, codec=codec, base_offset=100
                )
    return batches


def golden() -> Mapping[str, bytes]:
    """Return the batches of the file by name."""
    return {name: bytes.fromhex(data) for name, data in json.loads(FILE.read_text()).items()}


def main() -> None:
    """Write the file."""
    with RecordMirror() as java:
        batches = {name: data.hex() for name, data in write_all(java).items()}
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(batches, indent=1) + "\n")


if __name__ == "__main__":
    main()
