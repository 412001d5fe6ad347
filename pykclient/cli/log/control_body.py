"""Control records that Kafka's servers write to their metadata log.

A topic's partition only has transaction markers. The log of the cluster's metadata,
``__cluster_metadata-0``, also says who became its leader, and its snapshots (``.checkpoint``) begin
and end with control records. Their bodies are messages with schemas, shown with Kafka's names of
their fields.

Owner: none; it holds no state.
Source: KIP-595 (leader change), KIP-630 (snapshots), KIP-853 (voters); Java classes
``ControlRecordType`` and the ``JsonConverter`` of each message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.cli.log.message_json import message_fields
from pykclient.errors.base import DecodeError
from pykclient.protocol.messages.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from pykclient.protocol.reader import Reader

if TYPE_CHECKING:
    from pykclient.protocol.message import DataMessage
    from pykclient.records.batch import RecordBatch

CONTROL_NAMES: Final = (
    *("ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER"),
    *("KRAFT_VERSION", "KRAFT_VOTERS"),
)
"""Kafka's names of control record types, indexed by their number."""

VERSION_BYTES: Final = 2


class ControlBody(NamedTuple):
    """A control record's message: its title in DumpLogSegments, and its fields."""

    title: str
    fields: dict[str, object]


_KINDS: Final[dict[int, tuple[str, type[DataMessage]]]] = {
    2: ("LeaderChange:", LeaderChangeMessage),
    3: ("SnapshotHeader", SnapshotHeaderRecord),
    4: ("SnapshotFooter", SnapshotFooterRecord),
    5: ("KRaftVersion", KRaftVersionRecord),
    6: ("KRaftVoters", VotersRecord),
}


def control_body(batch: RecordBatch, number: int, value: bytes | None) -> ControlBody | None:
    """Decode the message of a control record of type `number`.

    None for transaction markers, and for types of newer brokers.

    Raises:
        CorruptRecordError: its `value` is malformed.
    """
    if number not in _KINDS:
        return None
    title, kind = _KINDS[number]
    data = value or b""
    # Each of these messages begins with its own version.
    version = int.from_bytes(data[:VERSION_BYTES], "big", signed=True)
    if not kind.min_version <= version <= kind.max_version:
        return None
    try:
        message = kind.read(Reader(data), version)
    except DecodeError as error:
        raise batch.corrupt(f"its {kind.__name__} is malformed: {error}") from error
    return ControlBody(title, message_fields(message, version))
