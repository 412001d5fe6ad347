"""The two output formats of a segment; each call returns complete lines.

Owner: none; they hold no changing state.
Source: Java class ``DumpLogSegments`` of 4.4.0 and 3.9.2, whose output `TextDump` equals; for a
leader change in a metadata log, 3.9.2 only prints the type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pykclient.cli.log.control_body import CONTROL_NAMES, control_body
from pykclient.cli.log.message_json import json_text
from pykclient.cli.record_format import size_bytes
from pykclient.cli.record_json import json_bytes
from pykclient.cli.table import shown
from pykclient.records.control import ControlType, control_type_number, coordinator_epoch
from pykclient.records.index import OffsetPosition, base_offset_of
from pykclient.types import TimestampType

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pykclient.accel.abc import RecordColumns
    from pykclient.cli.log.message_json import Decoded
    from pykclient.records.batch import RecordBatch
    from pykclient.records.index import TimestampOffset
    from pykclient.records.segment import PlacedBatch

Decode = Callable[[int, bytes | None, bytes | None], "Decoded"]
"""Decodes a record's key and value, given its offset."""

DELETE: Final = "<DELETE>"
MAGIC_WITH_PRODUCER: Final = 2
SEQUENCE_COUNT: Final = 2**31
"""Number of sequence numbers; 0 follows the largest one."""
NO_SEQUENCE: Final = -1
BOOTSTRAP_SNAPSHOT: Final = "bootstrap.checkpoint"
"""Snapshot that formatting creates for a cluster's first start."""
SNAPSHOT_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
"""Name of a snapshot: the offset up to which it covers the metadata log, and the epoch."""

_TIMESTAMP_NAMES: Final = {
    TimestampType.NO_TIMESTAMP_TYPE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}".encode()


class TextDump:
    """Prints text; with `escapes`, control characters of records do not reach the terminal.

    With `decode`, keys and values are decoded as records of an internal topic.
    """

    def __init__(self, *, escapes: bool, decode: Decode | None = None) -> None:
        self._shown = shown if escapes else str
        self._decode = decode

    def head(self, path: Path) -> str:
        """Return the lines before everything else."""
        return "".join(f"{line}\n" for line in (f"Dumping {path}", *_origin(path)))

    def batch(self, placed: PlacedBatch) -> str:
        """Return the line of a batch, whose checksum was verified."""
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
        """Return a line for each record; `with_data` adds keys and values.

        Raises:
            CorruptRecordError: a control record is malformed.
        """
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
                f" keySize: {size_bytes(key)} valueSize: {size_bytes(value)}"
            )
            if batch.magic >= MAGIC_WITH_PRODUCER:
                names = self._shown(",".join(name for name, _ in headers))
                line += f" sequence: {_sequence_of(batch, offset)} headerKeys: [{names}]"
            if batch.is_control:
                line += self._control(batch, key, value)
            elif with_data and self._decode is not None:
                line += self._shown(_decoded_text(self._decode(offset, key, value)))
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
        return f" {body.title} {self._shown(json_text(body.fields))}"

    def _data(self, name: str, data: bytes | None) -> str:
        if data is None:
            return ""
        return f" {name}: {self._shown(_text(data))}"


class JsonDump:
    """Prints JSON, one object per line, with a ``type``: batch, record or index_entry.

    Keys, values and header values are text if they are UTF-8, else ``{"base64": ...}``; null is
    null. Names end in their unit. A record's ``sequence`` is -1 if its producer has none. A control
    record has its ``control_type`` and, except for transaction markers, its message in ``control``
    with Kafka's names of fields. With `decode`, a record has ``decoded``: its ``key`` and its
    ``value``, or an ``error`` if it is malformed.
    """

    def __init__(self, decode: Decode | None = None) -> None:
        self._decode = decode

    def head(self, path: Path) -> str:
        return ""

    def batch(self, placed: PlacedBatch) -> str:
        batch = placed.batch
        return _json_line(
            "batch",
            position=placed.position,
            base_offset=batch.base_offset,
            last_offset=batch.last_offset,
            record_count=batch.record_count,
            base_sequence=batch.base_sequence,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            partition_leader_epoch=batch.partition_leader_epoch,
            is_transactional=batch.is_transactional,
            is_control=batch.is_control,
            delete_horizon_ms=batch.base_timestamp_ms if batch.has_delete_horizon else None,
            timestamp_type=batch.timestamp_type.name.lower(),
            max_timestamp_ms=batch.max_timestamp_ms,
            size_bytes=batch.size_bytes,
            magic=batch.magic,
            codec=batch.codec.name.lower(),
            crc=batch.crc,
        )

    def records(self, batch: RecordBatch, columns: RecordColumns, *, with_data: bool) -> str:
        lines = []
        for offset, timestamp_ms, key, value, headers in columns:
            fields: dict[str, object] = {
                "offset": offset,
                "timestamp_ms": timestamp_ms,
                "sequence": _sequence_of(batch, offset),
                "key_size_bytes": None if key is None else len(key),
                "value_size_bytes": None if value is None else len(value),
                "header_names": [name for name, _ in headers],
            }
            if batch.is_control:
                fields |= _control_fields(batch, key, value)
            if with_data:
                fields |= {
                    "key": json_bytes(key),
                    "value": json_bytes(value),
                    "headers": [[name, json_bytes(data)] for name, data in headers],
                }
            if with_data and self._decode is not None and not batch.is_control:
                fields["decoded"] = _decoded_fields(self._decode(offset, key, value))
            lines.append(_json_line("record", **fields))
        return "".join(lines)

    def index_entry(self, entry: OffsetPosition | TimestampOffset) -> str:
        return _json_line("index_entry", **entry._asdict())


def _origin(path: Path) -> Iterator[str]:
    offset = base_offset_of(path) if path.suffix == ".log" else None
    if offset is not None:
        yield f"Log starting offset: {offset}"
    if path.name == BOOTSTRAP_SNAPSHOT:
        yield "KRaft bootstrap snapshot"
    snapshot = SNAPSHOT_NAME.fullmatch(path.name)
    if snapshot is not None:
        yield f"Snapshot end offset: {int(snapshot[1])}, epoch: {int(snapshot[2])}"


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
        f" lastSequence: {_sequence_of(batch, batch.last_offset)}"
        f" producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch}"
        f" partitionLeaderEpoch: {batch.partition_leader_epoch}"
        f" isTransactional: {str(batch.is_transactional).lower()}"
        f" isControl: {str(batch.is_control).lower()} deleteHorizonMs: {horizon}"
    )


def _sequence_of(batch: RecordBatch, offset: int) -> int:
    """Return the sequence number of the record at `offset`, or -1 if its producer has none."""
    if batch.base_sequence < 0:
        return NO_SEQUENCE
    sequence: int = (batch.base_sequence + offset - batch.base_offset) % SEQUENCE_COUNT
    return sequence


def _decoded_text(record: Decoded) -> str:
    if record.error:
        return f" key: {record.error}"
    payload = DELETE if record.value is None else json_text(record.value)
    return f" key: {json_text(record.key)} payload: {payload}"


def _decoded_fields(record: Decoded) -> dict[str, object]:
    if record.error:
        return {"error": record.error}
    return {"key": record.key, "value": record.value}


def _json_line(kind: str, **fields: object) -> str:
    return json.dumps({"type": kind, **fields}) + "\n"


def _control_fields(
    batch: RecordBatch, key: bytes | None, value: bytes | None
) -> dict[str, object]:
    number = control_type_number(batch, key)
    is_known = 0 <= number < len(CONTROL_NAMES)
    name = CONTROL_NAMES[number].lower() if is_known else f"unknown_{number}"
    body = control_body(batch, number, value)
    return {"control_type": name} | ({} if body is None else {"control": body.fields})
