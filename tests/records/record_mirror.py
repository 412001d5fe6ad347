"""Kafka's own classes, in a Java process that writes and reads record batches.

`RecordMirror.java` describes its lines.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.java_mirror import JavaMirror


class JavaRecord(NamedTuple):
    """One record as Java read it, or is to write it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @classmethod
    def parse(cls, word: str) -> JavaRecord:
        """Read the form that `RecordMirror.java` writes."""
        offset, timestamp_ms, key, value, headers = word.split(":")
        pairs = [pair.split("=") for pair in headers.split(",") if pair]
        return cls(
            int(offset),
            int(timestamp_ms),
            _bytes(key),
            _bytes(value),
            tuple((bytes.fromhex(name).decode(), _bytes(content)) for name, content in pairs),
        )

    def __str__(self) -> str:
        headers = ",".join(f"{name.encode().hex()}={_hex(value)}" for name, value in self.headers)
        return f"{self.offset}:{self.timestamp_ms}:{_hex(self.key)}:{_hex(self.value)}:{headers}"


class JavaBatch(NamedTuple):
    """A batch as Java read it."""

    magic: int
    codec: int
    timestamp_type: int
    base_offset: int
    last_offset: int
    partition_leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: int
    is_control: int
    max_timestamp_ms: int
    records: list[JavaRecord]


class RecordMirror(JavaMirror):
    """The process."""

    def __init__(self) -> None:
        super().__init__(Path(__file__).with_name("RecordMirror.java"))

    def write(
        self,
        records: list[JavaRecord],
        *,
        codec: str = "none",
        level: int | None = None,
        magic: int = 2,
        base_offset: int = 0,
        log_append_time_ms: int | None = None,
        producer: tuple[int, int, int] = (-1, -1, -1),
        is_transactional: bool = False,
        partition_leader_epoch: int = -1,
    ) -> bytes:
        """Write one batch with Java; `producer` is id, epoch and base sequence."""
        is_appended = log_append_time_ms is not None
        words = [
            "write",
            magic,
            codec,
            "-" if level is None else level,
            "LogAppendTime" if is_appended else "CreateTime",
            base_offset,
            log_append_time_ms if is_appended else -1,
            *producer,
            str(is_transactional).lower(),
            partition_leader_epoch,
            *records,
        ]
        return bytes.fromhex(self.call(" ".join(map(str, words))))

    def marker(self, kind: str, *, offset: int, timestamp_ms: int, producer_id: int) -> bytes:
        """Write a transaction's end marker with Java; `kind` is COMMIT or ABORT."""
        return bytes.fromhex(
            self.call(f"marker {kind} {offset} {timestamp_ms} 3 {producer_id} 1 9")
        )

    def read(self, data: bytes | bytearray | memoryview) -> list[JavaBatch]:
        """Check and read batches with Java."""
        batches = []
        for batch in self.call(f"read {data.hex()}").split(" / "):
            header, *records = batch.split(" ")
            numbers = [int(number) for number in header.split(",")]
            batches.append(JavaBatch._make([*numbers, [JavaRecord.parse(r) for r in records]]))
        return batches

    def murmur2(self, data: bytes) -> int:
        """Hash a key with Java."""
        return int(self.call(f"murmur2 {data.hex()}"))


def _hex(data: bytes | None) -> str:
    return "-" if data is None else data.hex()


def _bytes(hex_digits: str) -> bytes | None:
    return None if hex_digits == "-" else bytes.fromhex(hex_digits)
