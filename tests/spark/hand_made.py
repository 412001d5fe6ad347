"""A checkpoint directory that a test writes by hand, as Spark does.

Owner: the test that makes it.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import TYPE_CHECKING, Final

from spark_connector.checkpoint.checkpoint import checksum_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    Ends = Mapping[str, Mapping[str, int]]

QUERY_ID: Final = "5c8ad2f8-0000-4000-8000-6a5b4c3d2e1f"
PLANNED_AT_MS: Final = 1_700_000_000_000
CHUNK_SIZE: Final = 512
METADATA: Final = json.dumps(
    {"batchWatermarkMs": 0, "batchTimestampMs": PLANNED_AT_MS, "conf": {"a.b": "c" * 600}},
    separators=(",", ":"),
)
COMMIT: Final = 'v1\n{"nextBatchWatermarkMs":0}'


def ours(ends: Ends, starts: Ends | None = None, ids: Mapping[str, str] | None = None) -> str:
    """Return a line of this connector; `ids` are those of topics, as Kafka writes them."""
    found = dict(ends)
    if starts is not None:
        found["starts at " + json.dumps(starts, separators=(",", ":"))] = {}
    if ids is not None:
        found["topic ids " + json.dumps(ids, separators=(",", ":"))] = {}
    return json.dumps(found)


def official(ends: Ends) -> str:
    """Return a line of Spark's own connector."""
    return json.dumps(ends, separators=(",", ":"))


class HandMade:
    """The directory, its files with Hadoop's checksums."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("metadata", json.dumps({"id": QUERY_ID}))

    def write(self, name: str, text: str) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        data = text.encode()
        file.write_bytes(data)
        chunks = [data[at : at + CHUNK_SIZE] for at in range(0, len(data), CHUNK_SIZE)]
        checksums = b"".join(struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks)
        checksum_file(file).write_bytes(b"crc\0" + struct.pack(">I", CHUNK_SIZE) + checksums)

    def plan(self, number: int, *lines: str) -> None:
        """Log a batch that ends at these lines, one for each source."""
        self.write(f"offsets/{number}", "\n".join(["v1", METADATA, *lines]))

    def finish(self, number: int) -> None:
        self.write(f"commits/{number}", COMMIT)

    def add(self, number: int, *lines: str) -> None:
        """Log a batch that is finished."""
        self.plan(number, *lines)
        self.finish(number)

    def keep_state(self, version: int) -> None:
        """Write the state of an operator, up to a version."""
        for each in range(1, version + 1):
            self.write(f"state/0/0/{each}.delta", "state")

    def remove(self, name: str) -> None:
        (self.folder / name).unlink()
        checksum_file(self.folder / name).unlink()

    def cut(self, name: str, size: int) -> None:
        """Keep this many bytes of a file, and no checksums, as after a crash."""
        file = self.folder / name
        file.write_bytes(file.read_bytes()[:size])
        checksum_file(file).unlink()

    def lines(self, number: int) -> list[str]:
        """Return the lines of the sources of a batch."""
        return (self.folder / "offsets" / str(number)).read_text().splitlines()[2:]

    def contents(self) -> dict[str, bytes]:
        return contents(self.folder)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a directory, by its name in it."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }
