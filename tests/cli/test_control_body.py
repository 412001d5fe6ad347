"""Control records of the metadata log: every message of theirs, and bytes that are none.

That the lines are Java's is shown in `tests/integration/test_log_command.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.cli.log.control_body import CONTROL_NAMES, ControlBody, control_body
from pykclient.cli.log.dump import JsonDump, TextDump
from pykclient.errors.base import CorruptRecordError
from pykclient.protocol.messages.control_records import (
    Endpoint,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    VotersRecordVoter,
)
from tests.records.batches import build, read

if TYPE_CHECKING:
    from pathlib import Path

    from pykclient.protocol.message import DataMessage
    from pykclient.records.batch import RecordBatch

DIRECTORY = bytes(range(16))
DIRECTORY_TEXT = "AAECAwQFBgcICQoLDA0ODw"

LEADER_CHANGE, SNAPSHOT_HEADER, SNAPSHOT_FOOTER, KRAFT_VERSION, KRAFT_VOTERS = range(2, 7)


def control_batch(number: int, value: bytes | None) -> RecordBatch:
    key = b"\x00\x00" + number.to_bytes(2, "big", signed=True)
    (batch,) = read(build([(1, key, value, ())], is_control=1))
    return batch


def written(message: DataMessage, version: int = 0) -> bytes:
    out = bytearray()
    message.write(out, version)
    return bytes(out)


def leader_change(version: int) -> bytes:
    directory = {"voter_directory_id": DIRECTORY} if version else {}
    voters = [LeaderChangeMessageVoter(voter_id=3, **directory)]
    message = LeaderChangeMessage(
        version=version, leader_id=3, voters=[*voters, *voters], granting_voters=voters
    )
    return written(message, version)


VOTERS = VotersRecord(
    voters=[
        VotersRecordVoter(
            voter_id=7,
            voter_directory_id=DIRECTORY,
            endpoints=[Endpoint(name="CONTROLLER", host="\x1b[2Jhost", port=65535)],
            k_raft_version_feature=KRaftVersionFeature(
                min_supported_version=0, max_supported_version=1
            ),
        )
    ]
)


V0 = {"voterId": 3}
V1 = V0 | {"voterDirectoryId": DIRECTORY_TEXT}
VOTER = {
    "voterId": 7,
    "voterDirectoryId": DIRECTORY_TEXT,
    "endpoints": [{"name": "CONTROLLER", "host": "\x1b[2Jhost", "port": 65535}],
    "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
}
HEADER = SnapshotHeaderRecord(last_contained_log_timestamp=9)


@pytest.mark.parametrize(
    ("number", "value", "title", "fields"),
    [
        *(
            (
                LEADER_CHANGE,
                leader_change(version),
                "LeaderChange:",
                {"leaderId": 3, "voters": [voter, voter], "grantingVoters": [voter]},
            )
            for version, voter in enumerate((V0, V1))
        ),
        (SNAPSHOT_HEADER, written(HEADER), "SnapshotHeader", {"lastContainedLogTimestamp": 9}),
        (SNAPSHOT_FOOTER, written(SnapshotFooterRecord()), "SnapshotFooter", {}),
        (
            KRAFT_VERSION,
            written(KRaftVersionRecord(k_raft_version=1)),
            "KRaftVersion",
            {"kRaftVersion": 1},
        ),
        (KRAFT_VOTERS, written(VOTERS), "KRaftVoters", {"voters": [VOTER]}),
    ],
)
def test_each_message_is_shown_with_kafkas_names(
    number: int, value: bytes, title: str, fields: dict[str, object]
) -> None:
    batch = control_batch(number, value)
    version = int.from_bytes(value[:2], "big")
    assert control_body(batch, number, value) == ControlBody(title, {"version": version, **fields})
    # What is cut off anywhere is corrupt, and never an error of another kind.
    for size in range(len(value)):
        with pytest.raises(CorruptRecordError, match="is malformed"):
            control_body(batch, number, value[:size])


def test_a_control_record_without_a_value_is_corrupt() -> None:
    with pytest.raises(CorruptRecordError, match="its SnapshotFooterRecord is malformed"):
        control_body(control_batch(SNAPSHOT_FOOTER, None), SNAPSHOT_FOOTER, None)


@pytest.mark.parametrize(
    ("number", "value", "shown"),
    [
        (LEADER_CHANGE, b"\x00\x02 a later one", " controlType: LEADER_CHANGE(2)\n"),
        (KRAFT_VERSION, b"\xff\xff", " controlType: KRAFT_VERSION(5)\n"),
        (7, b"of a type to come", " controlType: UNKNOWN(7)\n"),
        (-1, b"", " controlType: UNKNOWN(-1)\n"),
    ],
)
def test_what_newer_servers_write_is_shown_without_its_message(
    number: int, value: bytes, shown: str
) -> None:
    batch = control_batch(number, value)
    columns = batch.records()
    assert TextDump(escapes=False).records(batch, columns, with_data=True).endswith(shown)
    line = JsonDump().records(batch, columns, with_data=False)
    name = CONTROL_NAMES[number].lower() if number in range(7) else f"unknown_{number}"
    assert f'"control_type": "{name}"' in line
    assert '"control":' not in line


def test_no_message_can_command_the_terminal() -> None:
    batch = control_batch(KRAFT_VOTERS, written(VOTERS))
    line = TextDump(escapes=True).records(batch, batch.records(), with_data=True)
    assert "\x1b" not in line
    assert r"\u001B[2Jhost" in line


def test_the_head_of_a_snapshot_has_its_end_offset(tmp_path: Path) -> None:
    dump = TextDump(escapes=False)
    snapshot = tmp_path / f"{12:020}-{3:010}.checkpoint"
    assert dump.head(snapshot) == f"Dumping {snapshot}\nSnapshot end offset: 12, epoch: 3\n"
    bootstrap = tmp_path / "bootstrap.checkpoint"
    assert dump.head(bootstrap) == f"Dumping {bootstrap}\nKRaft bootstrap snapshot\n"
    other = tmp_path / "copy.checkpoint"
    assert dump.head(other) == f"Dumping {other}\n"
