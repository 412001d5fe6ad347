"""`pykclient log` on files of every kind: what it prints to both outputs, with which status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pykclient.cli import main
from pykclient.cli.log.dump import TextDump
from pykclient.records.compression import Codec
from tests.records.batches import build, header_changed, read
from tests.records.test_legacy import message

if TYPE_CHECKING:
    from pathlib import Path

NAME = f"{7:020}.log"
FIRST = build(
    [(1000, b"k", b"v", (("h", b"x"), ("h", None))), (1001, None, b"\xff", ())], base_offset=7
)
SECOND = build(
    [(2000, b"", None, ())], base_offset=9, producer_id=5, producer_epoch=1, base_sequence=3
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Provide the segment of two batches that begins at offset 7 of ``flights-3``."""
    folder = tmp_path / "flights-3"
    folder.mkdir()
    path = folder / NAME
    path.write_bytes(FIRST + SECOND)
    return path


class CommandResult(NamedTuple):
    """The outcome of a command."""

    status: int
    output: str
    complaint: str

    @property
    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.output.splitlines()]


Run = Callable[..., CommandResult]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return lambda *arguments: CommandResult(
        main(["log", *map(str, arguments)]), *capsys.readouterr()
    )


def test_batches_records_and_data_as_text(log: Path, run: Run) -> None:
    result = run(log, "--values")
    assert (result.status, result.complaint) == (0, "")
    head, start, first, one, two, second, three = result.output.splitlines()
    assert (head, start) == (f"Dumping {log}", "Log starting offset: 7")
    assert first.startswith(
        "baseOffset: 7 lastOffset: 8 count: 2 baseSequence: -1 lastSequence: -1 "
    )
    assert " position: 0 CreateTime: 1001 " in first
    assert one == (
        "| offset: 7 CreateTime: 1000 keySize: 1 valueSize: 1 sequence: -1 headerKeys: [h,h]"
        " key: k payload: v"
    )
    assert two.endswith("keySize: -1 valueSize: 1 sequence: -1 headerKeys: [] payload: \ufffd")
    assert f" position: {len(FIRST)} " in second
    assert three.endswith("keySize: 0 valueSize: -1 sequence: 3 headerKeys: [] key: ")
    records = run(log, "--records").output.splitlines()
    assert records[3:5] == [one.partition(" key:")[0], two.partition(" payload:")[0]]
    assert run(log).output.splitlines() == [head, start, first, second]


def test_the_same_as_json(log: Path, run: Run) -> None:
    first, one, two, second, three = run(log, "--values", "--json").lines
    assert first == {
        "type": "batch",
        "position": 0,
        "base_offset": 7,
        "last_offset": 8,
        "record_count": 2,
        "base_sequence": -1,
        "producer_id": -1,
        "producer_epoch": -1,
        "partition_leader_epoch": -1,
        "is_transactional": False,
        "is_control": False,
        "delete_horizon_ms": None,
        "timestamp_type": "create_time",
        "max_timestamp_ms": 1001,
        "size_bytes": len(FIRST),
        "magic": 2,
        "codec": "none",
        "crc": int.from_bytes(FIRST[17:21], "big"),
    }
    assert one == {
        "type": "record",
        "offset": 7,
        "timestamp_ms": 1000,
        "sequence": -1,
        "key_size_bytes": 1,
        "value_size_bytes": 1,
        "header_names": ["h", "h"],
        "key": "k",
        "value": "v",
        "headers": [["h", "x"], ["h", None]],
    }
    assert (two["key"], two["value"]) == (None, {"base64": "/w=="})
    assert (second["producer_id"], three["sequence"], three["value"]) == (5, 3, None)
    assert "value" not in run(log, "--records", "--json").lines[1]


def test_it_begins_at_the_given_offset(log: Path, run: Run) -> None:
    for search in (("--offset", 8), ("--time", 1001)):
        result = run(log, *search, "--records", "--json", "--no-index")
        assert (result.status, result.complaint) == (0, "")
        assert [line["offset"] for line in result.lines if line["type"] == "record"] == [8, 9]


def test_a_missing_index_is_reported_and_the_log_is_read(log: Path, run: Run) -> None:
    result = run(log, "--offset", 9, "--json")
    assert result.status == 0
    assert [line["base_offset"] for line in result.lines] == [9]
    assert f"there is no {log.with_suffix('.index')}" in result.complaint


def test_what_is_after_the_end_is_reported(log: Path, run: Run) -> None:
    for search in (("--offset", 10), ("--time", 2001)):
        result = run(log, *search, "--json", "--no-index")
        assert (result.status, result.output) == (0, "")
        assert f"{NAME} ends before {search[0][2:]} {search[1]}" in result.complaint


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (SECOND[:-1], "the next batch has 68 bytes, and only 67 are left"),
        (SECOND[:5], "5 bytes are left, too few for a batch"),
        (bytes(200), "zeros begin here, and 200 bytes are left"),
        (b"\x00" * 11 + b"\x05" + b"garbage" * 5, "it claims to have 17 bytes"),
        (SECOND[:-1] + b"\x55", "its checksum is"),
        (header_changed(SECOND, 57, 4, 4), "it has 4 records up to offset delta 0"),
    ],
)
def test_what_is_good_is_printed_then_where_and_why_it_ends(
    log: Path, run: Run, tail: bytes, reason: str
) -> None:
    log.write_bytes(FIRST + tail)
    result = run(log, "--records", "--json")
    assert result.status == 1
    assert [line["type"] for line in result.lines] == ["batch", "record", "record"]
    assert f"{NAME}: after offset 8, at byte {len(FIRST)} of" in result.complaint
    assert reason in result.complaint


def test_records_that_cannot_be_decoded_end_it_as_well(log: Path, run: Run) -> None:
    log.write_bytes(FIRST + header_changed(SECOND, 21, 1, 2))
    result = run(log, "--records", "--json")
    assert result.status == 1
    assert [line["type"] for line in result.lines] == ["batch", "record", "record", "batch"]
    assert "its gzip records are malformed" in result.complaint


def test_a_bomb_is_refused(log: Path, run: Run) -> None:
    log.write_bytes(build([(1, None, b"\x00" * 1_000_000, ())], Codec.GZIP))
    result = run(log, "--records", "--max-batch-bytes", 100_000)
    assert result.status == 1
    assert "decompress to more than the limit of 100000 bytes" in result.complaint
    assert "raise --max-batch-bytes" in result.complaint


def test_a_marker_that_cannot_be_read_is_an_error(log: Path, run: Run) -> None:
    for key, value in ((b"\x00", b""), (b"\x00\x00\x00\x01", b"\x00")):
        log.write_bytes(build([(1, key, value, ())], is_transactional=1, is_control=1))
        result = run(log, "--records")
        assert result.status == 1
        assert "marker" in result.complaint or "control record" in result.complaint


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        (f"{0:020}.index", bytes(9), "the offset index is corrupt: its 9 bytes"),
        (f"{0:020}.timeindex", bytes(13), "the time index is corrupt: its 13 bytes"),
        ("copy.index", bytes(8), "which the file name must contain in 20 digits"),
    ],
)
def test_a_file_that_is_no_index_or_has_no_offset_is_refused(
    tmp_path: Path, run: Run, name: str, content: bytes, reason: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    result = run(path)
    assert (result.status, result.output) == (1, "")
    assert reason in result.complaint


def test_an_index_that_points_beyond_the_log_is_reported(log: Path, run: Run) -> None:
    entry = (1).to_bytes(4, "big") + (9999).to_bytes(4, "big")
    log.with_suffix(".index").write_bytes(entry)
    log.with_suffix(".timeindex").write_bytes(b"")
    result = run(log, "--offset", 9)
    assert result.status == 1
    assert "offset 8 stands at byte 9999, and the segment has" in result.complaint
    assert run(log, "--offset", 9, "--no-index").status == 0


def test_a_copy_of_another_name_is_shown(log: Path, run: Run) -> None:
    copy = log.with_name("copy.log")
    copy.write_bytes(FIRST[:-1])
    result = run(copy)
    assert (result.status, result.output) == (1, f"Dumping {copy}\n")
    assert f"at byte 0 of {len(FIRST) - 1}" in result.complaint


def test_index_files_are_shown(log: Path, run: Run) -> None:
    path = log.with_suffix(".index")
    path.write_bytes((2).to_bytes(4, "big") + len(FIRST).to_bytes(4, "big") + bytes(80))
    result = run(path)
    assert result.output == f"Dumping {path}\noffset: 9 position: {len(FIRST)}\n"
    assert run(path, "--json").lines == [
        {"type": "index_entry", "offset": 9, "position": len(FIRST)}
    ]


def test_an_empty_segment_is_fine(log: Path, run: Run) -> None:
    log.write_bytes(b"")
    result = run(log, "--records")
    assert (result.status, result.complaint) == (0, "")
    assert result.output == f"Dumping {log}\nLog starting offset: 7\n"


def test_what_cannot_be_opened_is_reported(tmp_path: Path, run: Run) -> None:
    missing = run(tmp_path / NAME)
    assert missing.status == 1
    assert "No such file or directory" in missing.complaint
    assert NAME in missing.complaint
    folder = tmp_path / "folder.log"
    folder.mkdir()
    complaint = run(folder).complaint
    assert "is not a regular file" in complaint
    assert complaint.count(str(folder)) == 1
    pipe = tmp_path / f"{1:020}.log"
    os.mkfifo(pipe)
    assert "is not a regular file" in run(pipe).complaint


@pytest.mark.parametrize(
    "arguments",
    [
        ["log"],
        ["log", "x.log", "--offset", "five"],
        ["log", "x", "--offset", "1", "--time", "2"],
    ],
)
def test_a_wrong_call_has_status_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: pykclient" in capsys.readouterr().err


def test_messages_of_the_old_formats_are_shown(log: Path, run: Run) -> None:
    log.write_bytes(message(7, b"k", b"v", magic=0) + message(8, None, b"w", magic=1))
    result = run(log, "--values")
    assert result.status == 0
    lines = result.output.splitlines()[2:]
    assert lines[0].startswith("offset: 7 position: 0 NoTimestampType: -1 size: 28 magic: 0 ")
    assert lines[1] == "| offset: 7 NoTimestampType: -1 keySize: 1 valueSize: 1 key: k payload: v"
    assert lines[3] == "| offset: 8 CreateTime: 1000 keySize: -1 valueSize: 1 payload: w"


def test_no_record_can_command_the_terminal() -> None:
    (batch,) = read(build([(1, b"\x1b[2J\n", "\x9b31m\x7f".encode(), (("\r", b""),))]))
    columns = batch.records()
    shown = TextDump(escapes=True).records(batch, columns, with_data=True)
    assert shown.endswith(r"headerKeys: [\x0d] key: \x1b[2J\x0a payload: \x9b31m\x7f" + "\n")
    assert "\x1b[2J\n" in TextDump(escapes=False).records(batch, columns, with_data=True)


def test_a_reader_that_has_had_enough_ends_it_with_its_status(log: Path) -> None:
    log.write_bytes(
        FIRST + b"".join(build([(1, None, b"", ())], base_offset=n) for n in range(9, 9000))
    )
    command = [sys.executable, "-m", "pykclient", "log", str(log), "--records"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"Dumping")
        process.stdout.close()
        assert process.stderr.read() == b"pykclient: the output was closed early\n"
    assert process.returncode == 141


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_whatever_is_in_the_files_it_ends_with_a_status(
    log: Path, run: Run, data: st.DataObject
) -> None:
    content = bytearray(FIRST + SECOND)
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    log.write_bytes(
        content[: data.draw(st.integers(0, len(content)))] + data.draw(st.binary(max_size=20))
    )
    for suffix in (".index", ".timeindex"):
        log.with_suffix(suffix).write_bytes(data.draw(st.binary(max_size=40)))
    search = data.draw(st.sampled_from([(), ("--offset", 8), ("--time", 1001)]))
    form = data.draw(st.sampled_from([(), ("--json",)]))
    result = run(log, *search, *form, "--values")
    assert result.status in (0, 1)
    assert (result.status == 1) <= (NAME in result.complaint)
