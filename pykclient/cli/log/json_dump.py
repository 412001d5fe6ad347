"""A segment as JSON, one object a line, each with a ``type``: batch, record or index_entry.

Keys, values and header values are text where they are UTF-8, else ``{"base64": ...}``; null is
null. Names end in their unit. A record's ``sequence`` is -1 where its producer gave none. A control
record has its ``control_type`` and, but for the markers of transactions, its message in
``control``, whose fields have Kafka's own names.

Owner: none; it holds no state.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

from pykclient.cli.log.control_body import CONTROL_NAMES, control_body
from pykclient.cli.log.text_dump import sequence_of
from pykclient.records.control import control_type_number

if TYPE_CHECKING:
    from pathlib import Path

    from pykclient.accel.abc import RecordColumns
    from pykclient.cli.log.index import OffsetPosition, TimestampOffset
    from pykclient.cli.log.segment import PlacedBatch
    from pykclient.records.batch import RecordBatch

__all__ = ["JsonDump"]


class JsonDump:
    """Lines of JSON."""

    def head(self, path: Path) -> str:
        """Return nothing: every line is an object of the log."""
        return ""

    def batch(self, placed: PlacedBatch) -> str:
        """Return the line of a batch; that it is here says that its checksum is right."""
        batch = placed.batch
        return _line(
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
                "sequence": sequence_of(batch, offset),
                "key_size_bytes": None if key is None else len(key),
                "value_size_bytes": None if value is None else len(value),
                "header_names": [name for name, _ in headers],
            }
            if batch.is_control:
                fields |= _control_fields(batch, key, value)
            if with_data:
                fields |= {
                    "key": _json_bytes(key),
                    "value": _json_bytes(value),
                    "headers": [[name, _json_bytes(data)] for name, data in headers],
                }
            lines.append(_line("record", **fields))
        return "".join(lines)

    def index_entry(self, entry: OffsetPosition | TimestampOffset) -> str:
        return _line("index_entry", **entry._asdict())


def _line(kind: str, **fields: object) -> str:
    return json.dumps({"type": kind, **fields}) + "\n"


def _control_fields(
    batch: RecordBatch, key: bytes | None, value: bytes | None
) -> dict[str, object]:
    number = control_type_number(batch, key)
    is_known = 0 <= number < len(CONTROL_NAMES)
    name = CONTROL_NAMES[number].lower() if is_known else f"unknown_{number}"
    body = control_body(batch, number, value)
    return {"control_type": name} | ({} if body is None else {"control": body.fields})


def _json_bytes(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
