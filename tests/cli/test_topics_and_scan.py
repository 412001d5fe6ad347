"""`pykclient topics` and `pykclient scan`: what they print, as lines, as JSON and on a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from typing import IO, TYPE_CHECKING, Any

import pytest

from pykclient import Admin, Consumer, TopicPartition, accel
from pykclient.cli import standstill
from pykclient.cli.scan import command as scan
from pykclient.cli.scan import tally
from pykclient.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from pykclient.testing import FakeKafka
    from tests.cli.commands import Commands

CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
START_MS = 1_700_000_000_000
"""2023-11-14T22:13:20Z"""


def rows(run: Commands, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run.printed(*arguments, "--json")]


@pytest.mark.parametrize(
    ("implementation", "note", "variable", "lines"),
    [
        ("compiled", None, "", []),
        ("pure", "it was not built", "", ["because it was not built; .* install a C compiler"]),
        ("pure", "PYKCLIENT_ACCEL=pure", "pure", ["because PYKCLIENT_ACCEL=pure; .* unset that"]),
    ],
)
def test_the_version_says_which_core_runs_and_how_to_have_the_other(
    run: Commands,
    monkeypatch: pytest.MonkeyPatch,
    implementation: str,
    note: str | None,
    variable: str,
    lines: list[str],
) -> None:
    monkeypatch.setattr(accel, "implementation", implementation)
    monkeypatch.setattr(accel, "implementation_note", note)
    monkeypatch.setenv("PYKCLIENT_ACCEL", variable)
    first, *rest = run.printed("--version")
    assert first == f"pykclient {__version__} ({implementation} core)"
    assert len(rest) == len(lines)
    assert all(re.search(pattern, line) for pattern, line in zip(lines, rest, strict=True))


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ((), ("broker", "topics", "produce", "consume", "scan", "groups", "log")),
        (("topics",), ("list", "describe", "delete", "create", "alter")),
        (("groups",), ("list", "coordinator", "describe", "offsets", "reset")),
    ],
)
def test_a_command_without_its_part_lists_them_a_line_each(
    run: Commands, command: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    result = run(*command)
    assert (result.status, result.output) == (2, b"")
    for part in parts:
        assert re.search(rf"^ +{part}\s+\w", result.complaint, re.MULTILINE), part


@pytest.fixture
def filled(run: Commands, topic: str) -> str:
    """Partition 0 has four records: two keys, one null; partition 1 has one without a key."""
    fields: list[dict[str, object]] = [
        {"partition": 0, "key": "a", "value": "one"},
        {"partition": 0, "key": "a", "value": "three"},
        {"partition": 0, "key": "bc", "value": None},
        {"partition": 0, "key": None, "value": ""},
        {"partition": 1, "value": "v"},
    ]
    lines = [
        json.dumps({**each, "timestamp_ms": START_MS + n * 1_000}) for n, each in enumerate(fields)
    ]
    run.printed("produce", "-t", topic, "-J", given="\n".join(lines).encode())
    return topic


def test_topics_are_made_listed_described_and_deleted(run: Commands, topic: str) -> None:
    first, second = f"{topic}-a", f"{topic}-b"
    settings = ("--partitions", "3", "--topic-config", "retention.ms=-1")
    made = rows(run, "topics", "create", first, second, *settings)
    assert made == [
        {"type": "topic", "topic": name, "partitions": 3, "replicas": 1} for name in (first, second)
    ]
    assert made[0] in rows(run, "topics", "list")
    run.printed("produce", "-t", first, "-p1", given=b"v\n")
    heading = "PARTITION  BEGIN-OFFSET  END-OFFSET  LEADER  REPLICAS  IN-SYNC"
    name = "TOPIC".ljust(len(first))
    assert run.printed("topics", "describe", first) == [
        f"{name}  {heading}",
        *(f"{first}{n:11}{0:14}{int(n == 1):12}{0:8}  0         0" for n in range(3)),
        "",
        f"{name}  SETTING       VALUE  SOURCE",
        f"{first}  retention.ms  -1     TOPIC_CONFIG",
    ]
    run.printed("topics", "delete", second, first)
    left = {row["topic"] for row in rows(run, "topics", "list")}
    assert (topic in left, first in left, second in left) == (True, False, False)


def settings(run: Commands, topic: str, *options: str) -> dict[str, tuple[str, str]]:
    return {
        row["setting"]: (row["value"], row["source"])
        for row in rows(run, "topics", "describe", topic, *options)
        if row["type"] == "setting"
    }


def test_settings_are_altered_and_those_that_are_no_defaults_are_shown(
    run: Commands, topic: str
) -> None:
    assert settings(run, topic) == {}
    changes = (
        "--set",
        "retention.ms=60000",
        "--set",
        "flush.ms=5",
        "--append",
        "cleanup.policy=compact",
    )
    assert run.printed("topics", "alter", topic, *changes) == []
    run.printed(
        "topics", "alter", topic, "--delete", "flush.ms", "--subtract", "cleanup.policy=delete"
    )
    assert settings(run, topic) == {
        "cleanup.policy": ("compact", "TOPIC_CONFIG"),
        "retention.ms": ("60000", "TOPIC_CONFIG"),
    }
    complete = settings(run, topic, "--all-settings")
    assert list(complete) == sorted(complete)
    assert complete["flush.ms"] == (str(2**63 - 1), "DEFAULT_CONFIG")


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        ((), 2, "there is nothing to change; give --partitions, --set, --append, --subtract, --d"),
        (("--partitions", "0", "--set", "flush.ms=5"), 1, "total_count=0; give a number from 1"),
        (("--partitions", "2", "--set", "flush.ms=5"), 1, "the topic has 2 partitions, not 2"),
        (("--partitions", "3", "--set", "flush.ms=x"), 1, "Not a number of type LONG"),
        (("--set", "flush.ms"), 2, "'flush.ms' is not a setting; write flush.ms=VALUE"),
        (("--set", "=5"), 2, "give the name of a setting"),
        (("--delete", "flush.ms", "--set", "flush.ms=5"), 2, "flush.ms is given twice"),
        (
            ("--set", "flush.ms=5", "absent"),
            1,
            "there is no topic 'absent'; `pykclient topics list`",
        ),
        (("--set", "flush.ms=5", "--set", "segment.ms=x"), 1, "Not a number of type LONG"),
        (("--set", "flush.mss=5"), 1, "Unknown topic config name: flush.mss"),
    ],
)
def test_what_cannot_be_altered_is_said_and_nothing_is_changed(
    run: Commands, topic: str, arguments: tuple[str, ...], status: int, reason: str
) -> None:
    result = run("topics", "alter", *arguments, topic)
    assert (result.status, result.output) == (status, b"")
    assert reason in result.complaint
    assert status == 2 or result.complaint.count("\n") == 1
    assert settings(run, topic) == {}
    assert partition_count(run, topic) == 2


def partition_count(run: Commands, topic: str) -> int:
    return sum(row["type"] == "partition" for row in rows(run, "topics", "describe", topic))


def test_partitions_are_added_beside_settings(run: Commands, topic: str) -> None:
    assert run.printed("topics", "alter", topic, "--partitions", "3", "--set", "flush.ms=5") == []
    assert partition_count(run, topic) == 3
    assert settings(run, topic) == {"flush.ms": ("5", "TOPIC_CONFIG")}
    run.printed("topics", "alter", topic, "--partitions", "4")
    run.printed("produce", "-t", topic, "-p3", given=b"v\n")
    assert run.printed("consume", "-t", topic, "-p3", "-e") == ["v"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("describe", "TOPIC", "absent"), "there is no topic 'absent'; `pykclient topics list`"),
        (("delete", "TOPIC", "absent"), "there is no topic 'absent'; `pykclient topics list`"),
        (("create", "TOPIC"), "There is a topic with this name"),
        (("create", "new", "--replication-factor", "9"), "9 replicas do not fit on 1 brokers"),
        (("create", "new", "--partitions", "0"), "give a number from 1"),
        (("create", "new", "--topic-config", "retention.ms=long"), "retention.ms"),
    ],
)
def test_what_cannot_be_done_with_topics_is_said_in_a_line(
    run: Commands, topic: str, arguments: tuple[str, ...], reason: str
) -> None:
    result = run("topics", *(topic if each == "TOPIC" else each for each in arguments))
    assert (result.status, result.output, result.complaint.count("\n")) == (1, b"", 1)
    assert reason in result.complaint
    assert topic in {row["topic"] for row in rows(run, "topics", "list")}, "nothing was deleted"


def test_a_partition_without_a_leader_does_not_hide_the_others(
    run: Commands, broker: FakeKafka, topic: str
) -> None:
    with broker.control() as cluster:
        partition = cluster.topics[topic].partitions[1]
        partition.leader_id = -1
    try:
        found = rows(run, "topics", "describe", topic)
    finally:
        with broker.control():
            partition.leader_id = 0
    assert [(row["leader"], row["end_offset"]) for row in found] == [(0, 0), (None, None)]


def test_a_scan_counts_what_is_there(run: Commands, filled: str) -> None:
    first, second, total = rows(run, "scan", "-t", filled)
    assert first == {
        "type": "partition",
        "topic": filled,
        "partition": 0,
        "begin_offset": 0,
        "end_offset": 4,
        "records": 4,
        "keyed": 3,
        "distinct_keys": 2,
        "null_values": 1,
        "key_bytes": 4,
        "value_bytes": 8,
        "value_bytes_max": 5,
        "first_time": "2023-11-14T22:13:20.000+00:00",
        "last_time": "2023-11-14T22:13:23.000+00:00",
    }
    assert (second["records"], second["keyed"], second["distinct_keys"]) == (1, 0, 0)
    assert (total["type"], total["records"], total["distinct_keys"]) == ("topic", 5, 2)
    assert total["last_time"] == "2023-11-14T22:13:24.000+00:00"


def test_a_scan_is_of_what_the_options_name(run: Commands, filled: str) -> None:
    places = ("-p0", "-o", "s@2023-11-14T22:13:21Z", "-o", "e@2023-11-14T22:13:23Z")
    partition, _ = rows(run, "scan", "-t", filled, *places)
    assert (partition["begin_offset"], partition["end_offset"], partition["records"]) == (1, 3, 2)
    assert run("scan", "-t", filled, "-o", "stored").status == 2
    absent = run("scan", "-t", "absent", "--timeout", ".5")
    assert (absent.status, absent.complaint.count("\n")) == (1, 1)
    assert "there is no topic 'absent'" in absent.complaint


def test_a_scan_shows_times_that_no_calendar_has(run: Commands, topic: str) -> None:
    late_ms = 10**15
    given = json.dumps({"value": "v", "partition": 0, "timestamp_ms": late_ms}).encode()
    run.printed("produce", "-t", topic, "-J", given=given)
    assert rows(run, "scan", "-t", topic)[0]["last_time"] == str(late_ms)


def test_a_topic_that_is_deleted_meanwhile_is_not_listed(
    run: Commands, broker: FakeKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted = f"{topic}-deleted"
    with broker.control() as cluster:
        cluster.create_topic(deleted, 1)
    list_topics = Admin.list_topics

    def list_before_deletion(admin: Admin, **options: bool) -> Any:
        found = list_topics(admin, **options)
        with broker.control() as cluster:
            if deleted in cluster.topics:
                cluster.delete_topic(deleted)
        return found

    monkeypatch.setattr(Admin, "list_topics", list_before_deletion)
    names = {row["topic"] for row in rows(run, "topics", "list")}
    assert (topic in names, deleted in names) == (True, False)


def test_keys_are_not_counted_beyond_the_limit(
    run: Commands, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tally, "KEY_COUNT_MAX", 1)
    found = rows(run, "scan", "-t", filled)
    assert {row["distinct_keys"] for row in found} == {None}
    assert found[-1]["keyed"] == 3


def test_without_pyarrow_the_cure_is_named(
    run: Commands, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "find_spec", lambda name: None)
    result = run("scan", "-t", topic)
    assert (result.status, result.complaint) == (
        1,
        "pykclient: scan needs pyarrow: pip install pyarrow\n",
    )


@pytest.mark.parametrize(("columns", "is_wide"), [("250", True), ("60", False)])
def test_a_terminal_is_drawn_a_table_that_fits(
    broker: FakeKafka, filled: str, columns: str, is_wide: bool
) -> None:
    output = on_terminal(broker, columns, "scan", "-t", filled)
    bar, _, table = output.partition("TOPIC")
    assert "scanned" in bar
    assert "5/5" in bar
    lines = f"TOPIC{table}".splitlines()
    assert max(map(len, lines)) <= int(columns)
    is_one_table = any("RECORDS" in line and "KEYED" in line for line in lines)
    assert is_one_table is is_wide
    assert sum("2023-11-14T22:13:24.000+00:00" in line for line in lines) == (2 if is_wide else 3)


def test_a_terminal_shows_how_far_produce_and_consume_are(
    broker: FakeKafka, topic: str, tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b"one\ntwo\n")
    with lines.open("rb") as given:
        shown = on_terminal(broker, "80", "produce", "-t", topic, "-p0", stdin=given)
    assert "sent" in shown
    output = tmp_path / "output"
    with output.open("wb") as printed:
        shown = on_terminal(broker, "80", "consume", "-t", topic, "-e", stdout=printed)
    assert ("read" in shown, "2/2" in shown) == (True, True)
    assert output.read_bytes() == lines.read_bytes()


def on_terminal(broker: FakeKafka, columns: str, *arguments: str, **streams: IO[bytes]) -> str:
    """Run a command at a terminal of this width; return its output without control sequences.

    A stream that is given replaces the terminal.
    """
    ours, its = pty.openpty()
    environ = {
        **os.environ,
        "COLUMNS": columns,
        "TERM": "xterm",
        "PYKCLIENT_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
    }
    command = [sys.executable, "-m", "pykclient", *arguments]
    every: dict[str, Any] = {"stdin": its, "stdout": its, "stderr": its, **streams}
    with subprocess.Popen(command, env=environ, **every) as process:
        os.close(its)
        output = b""
        try:
            while data := os.read(ours, 65_536):
                output += data
        except OSError:  # of Linux, when the other side is closed
            pass
    os.close(ours)
    assert process.returncode == 0, output
    return CONTROL.sub("", output.decode())


@pytest.mark.parametrize(
    "command",
    [("consume", "-e"), ("consume", "-e", "-G", "g-standstill"), ("scan",)],
    ids=["consume", "group", "scan"],
)
def test_an_end_that_no_record_reaches_ends_the_command_with_a_status_of_its_own(
    broker: FakeKafka,
    run: Commands,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
) -> None:
    monkeypatch.setattr(standstill, "NOTICE_S", 0.1)
    monkeypatch.setattr(standstill, "END_S", 0.2)
    place = TopicPartition(topic, 0)
    run.printed("produce", "-t", topic, "-p", "0", given=b"one\n")
    with broker.control() as cluster:
        cluster.partition(place).log.high_watermark += 3  # as Redpanda was seen to name it
    result = run(*command, "-t", topic)
    assert result.status == standstill.STANDSTILL_STATUS
    assert f"no record has come from {place} at offset 1 of 4; waiting" in result.complaint
    assert "though brokers respond; giving up\n" in result.complaint
    assert b"one" in result.output if command[0] == "consume" else b"4" in result.output


def test_an_outage_is_no_standstill(topic: str, broker: FakeKafka) -> None:
    with (
        broker.control() as cluster,
        Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer,
    ):
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek(place, 0)
        watch = standstill.Standstill(consumer)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(standstill, "END_S", 0.0)
            patch.setattr(standstill, "LOOK_UP_S", 0.05)
            assert not watch.has_come({place: 4})
            assert not watch.has_come({place: 4}), "brokers do not respond: control() holds them"
            assert cluster.alive


def test_topics_that_are_made_are_there_for_other_clients(broker: FakeKafka, run: Commands) -> None:
    run.printed("topics", "create", "for-others", "--partitions", "2")
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert len(admin.describe_topics(["for-others"])["for-others"].partitions) == 2


def test_a_group_that_is_not_there_is_named_with_what_to_do(run: Commands, topic: str) -> None:
    missing = run("groups", "offsets", "absent")
    assert missing.status == 1
    assert missing.complaint.endswith("; `pykclient groups list` shows the existing ones\n")
    reset = run("groups", "reset", "absent", "--topic", topic, "--to-earliest")
    assert reset.status == 1
    assert reset.complaint.startswith("pykclient: there is no group 'absent'; `pykclient groups")
    assert reset.complaint.endswith("give --create\n")
