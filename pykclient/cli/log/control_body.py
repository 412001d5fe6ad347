"""What Kafka's servers write to each other in control records of their metadata log.

A partition of a topic has only the markers of transactions. The log of the cluster's metadata,
``__cluster_metadata-0``, also says who became its leader, and its snapshots (``.checkpoint``) begin
and end with records of their own. Their bodies are messages with schemas, shown under Kafka's own
names for their fields.

Owner: none; it holds no state.
Source: KIP-595 (leader change), KIP-630 (snapshots), KIP-853 (voters); Java classes
``ControlRecordType`` and the ``JsonConverter`` of each message.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final, NamedTuple

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
    from collections.abc import Iterable

    from pykclient.protocol.message import DataMessage
    from pykclient.protocol.messages.control_records import LeaderChangeMessageVoter
    from pykclient.records.batch import RecordBatch

__all__ = ["CONTROL_NAMES", "ControlBody", "control_body"]

CONTROL_NAMES: Final = (
    *("ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER"),
    *("KRAFT_VERSION", "KRAFT_VOTERS"),
)
"""Kafka's names of the types of control records, each at the place of its number."""

VERSION_BYTES: Final = 2
VOTER_DIRECTORY_VERSION_MIN: Final = 1
"""The first version of a leader change that names the voters' directories."""


class ControlBody(NamedTuple):
    """A control record's message: how DumpLogSegments announces it, and its fields."""

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
    """Read the message of a control record of type `number`.

    None where it has none that is known here: markers of transactions, and what newer brokers may
    write.

    Raises:
        CorruptRecordError: its `value` cannot be read.
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
    return ControlBody(title, _fields(message))


def _fields(message: DataMessage) -> dict[str, object]:
    match message:
        case LeaderChangeMessage():
            return _leader_change(message)
        case SnapshotHeaderRecord():
            return {
                "version": message.version,
                "lastContainedLogTimestamp": message.last_contained_log_timestamp,
            }
        case KRaftVersionRecord():
            return {"version": message.version, "kRaftVersion": message.k_raft_version}
        case VotersRecord():
            return _voters(message)
        case _:
            assert isinstance(message, SnapshotFooterRecord)
            return {"version": message.version}


def _leader_change(message: LeaderChangeMessage) -> dict[str, object]:
    def voters(found: Iterable[LeaderChangeMessageVoter]) -> list[dict[str, object]]:
        with_directory = message.version >= VOTER_DIRECTORY_VERSION_MIN
        return [
            {"voterId": voter.voter_id}
            | ({"voterDirectoryId": _uuid(voter.voter_directory_id)} if with_directory else {})
            for voter in found
        ]

    return {
        "version": message.version,
        "leaderId": message.leader_id,
        "voters": voters(message.voters),
        "grantingVoters": voters(message.granting_voters),
    }


def _voters(message: VotersRecord) -> dict[str, object]:
    return {
        "version": message.version,
        "voters": [
            {
                "voterId": voter.voter_id,
                "voterDirectoryId": _uuid(voter.voter_directory_id),
                "endpoints": [
                    {"name": endpoint.name, "host": endpoint.host, "port": endpoint.port}
                    for endpoint in voter.endpoints
                ],
                "kRaftVersionFeature": {
                    "minSupportedVersion": voter.k_raft_version_feature.min_supported_version,
                    "maxSupportedVersion": voter.k_raft_version_feature.max_supported_version,
                },
            }
            for voter in message.voters
        ],
    }


def _uuid(value: bytes) -> str:
    """Give an id as Kafka writes one: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")
