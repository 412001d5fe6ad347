"""A segment as text: the lines that Kafka's ``DumpLogSegments`` prints.

Owner: none; it holds no state that changes.
Source: Java class ``DumpLogSegments`` of 4.3.1 and 3.9.2, whose output this equals; of a leader
change in a metadata log 3.9.2 prints only the type.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from pykclient.cli.log.control_body import CONTROL_NAMES, control_body
from pykclient.cli.log.files import base_offset_of, snapshot_of
from pykclient.cli.log.index import OffsetPosition
from pykclient.records.control import ControlType, control_type_number, coordinator_epoch
from pykclient.types import TimestampType

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pykclient.accel.abc import RecordColumns
    from pykclient.cli.log.index import TimestampOffset
    from pykclient.cli.log.segment import PlacedBatch
    from pykclient.records.batch import RecordBatch

__all__ = ["TextDump"]

MAGIC_WITH_PRODUCER: Final = 2
SEQUENCE_COUNT: Final = 2**31
"""After the largest sequence number comes 0."""
NO_SEQUENCE: Final = -1
NULL_SIZE: Final = -1
BOOTSTRAP_SNAPSHOT: Final = "bootstrap.checkpoint"
"""What formatting leaves for the first start of a cluster."""

_TIMESTAMP_NAMES: Final = {
    TimestampType.NO_TIMESTAMP_TYPE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}".encode()
_ESCAPES: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}


class TextDump:
    """Lines of text; with `escapes`, no control character of a record reaches the terminal."""

    def __init__(self, *, escapes: bool) -> None:
        self._escapes = _ESCAPES if escapes else {}

    def head(self, path: Path) -> str:
        return "".join(f"{line}\n" for line in (f"Dumping {path}", *_origin(path)))

    def batch(self, placed: PlacedBatch) -> str:
        """Return the line of a batch; that it is here says that its checksum is right."""
        batch = placed.batch
        if batch.magic >= MAGIC_WITH_PRODUCER:
            fields = _producer_fields(batch)
        else:
            fields = f"offset: {batch.last_offset}"
        return (
            f"{fields} position: {placed.position}"
            f" {_TIMESTAMP_NAMES[batch.timestamp_type]}: {batch.max_timestamp_ms}"
            f" size: {batch.size_bytes} magic: {batch.magic}"
            f" compresscodec: {batch.codec.name.lower()} crc: {batch.crc} isvalid: true\n"
        )

    def records(self, batch: RecordBatch, columns: RecordColumns, *, with_data: bool) -> str:
        """Return a line for each record. Raises `CorruptRecordError` for a malformed marker."""
        return "".join(self._record_lines(batch, columns, with_data))

    def index_entry(self, entry: OffsetPosition | TimestampOffset) -> str:
        if isinstance(entry, OffsetPosition):
            return f"offset: {entry.offset} position: {entry.position}\n"
        return f"timestamp: {entry.timestamp_ms} offset: {entry.offset}\n"

    def _record_lines(
        self, batch: RecordBatch, columns: RecordColumns, with_data: bool
    ) -> Iterator[str]:
        time_name = _TIMESTAMP_NAMES[batch.timestamp_type]
        for offset, timestamp_ms, key, value, headers in columns:
            line = (
                f"| offset: {offset} {time_name}: {timestamp_ms}"
                f" keySize: {_size(key)} valueSize: {_size(value)}"
            )
            if batch.magic >= MAGIC_WITH_PRODUCER:
                names = ",".join(name for name, _ in headers).translate(self._escapes)
                line += f" sequence: {sequence_of(batch, offset)} headerKeys: [{names}]"
            if batch.is_control:
                line += self._control(batch, key, value)
            elif with_data:
                line += self._data("key", key) + self._data("payload", value)
            yield f"{line}\n"

    def _control(self, batch: RecordBatch, key: bytes | None, value: bytes | None) -> str:
        number = control_type_number(batch, key)
        name = CONTROL_NAMES[number] if 0 <= number < len(CONTROL_NAMES) else "UNKNOWN"
        if number in (ControlType.ABORT, ControlType.COMMIT):
            return f" endTxnMarker: {name} coordinatorEpoch: {coordinator_epoch(batch, value)}"
        body = control_body(batch, number, value)
        if body is None:
            return f" controlType: {name}({number})"
        fields = json.dumps(body.fields, ensure_ascii=False, separators=(",", ":"))
        return f" {body.title} {fields.translate(self._escapes)}"

    def _data(self, name: str, data: bytes | None) -> str:
        if data is None:
            return ""
        return f" {name}: {_text(data).translate(self._escapes)}"


def sequence_of(batch: RecordBatch, offset: int) -> int:
    """Return the sequence number of the record at `offset`, -1 where its producer gave none."""
    if batch.base_sequence < 0:
        return NO_SEQUENCE
    sequence: int = (batch.base_sequence + offset - batch.base_offset) % SEQUENCE_COUNT
    return sequence


def _origin(path: Path) -> Iterator[str]:
    offset = base_offset_of(path) if path.suffix == ".log" else None
    if offset is not None:
        yield f"Log starting offset: {offset}"
    if path.name == BOOTSTRAP_SNAPSHOT:
        yield "KRaft bootstrap snapshot"
    snapshot = snapshot_of(path)
    if snapshot is not None:
        yield f"Snapshot end offset: {snapshot.end_offset}, epoch: {snapshot.epoch}"


def _text(data: bytes) -> str:
    """Decode UTF-8 as Java does, which replaces an encoded surrogate as a whole."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(_REPLACEMENT, data).decode(errors="replace")


def _producer_fields(batch: RecordBatch) -> str:
    horizon = f"OptionalLong[{batch.base_timestamp_ms}]"
    if not batch.has_delete_horizon:
        horizon = "OptionalLong.empty"
    return (
        f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset}"
        f" count: {batch.record_count} baseSequence: {batch.base_sequence}"
        f" lastSequence: {sequence_of(batch, batch.last_offset)}"
        f" producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch}"
        f" partitionLeaderEpoch: {batch.partition_leader_epoch}"
        f" isTransactional: {str(batch.is_transactional).lower()}"
        f" isControl: {str(batch.is_control).lower()} deleteHorizonMs: {horizon}"
    )


def _size(data: bytes | None) -> int:
    return NULL_SIZE if data is None else len(data)
