"""`pykclient produce` and `consume`: what one sends the other prints, as kcat's users know it."""

from __future__ import annotations

import json
import logging
import sys
from contextlib import ExitStack
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient import Admin, Consumer, ConsumerRecord, TimestampType
from pykclient.cli import span_reader
from pykclient.cli.produce import source
from pykclient.cli.record_format import record_format, unescaped
from pykclient.cli.record_json import parse_record, record_line
from pykclient.cli.span import Span, span_of
from pykclient.errors import UsageError
from pykclient.network import log as network_log

if TYPE_CHECKING:
    from pathlib import Path

    from pykclient.testing import FakeKafka
    from tests.cli.commands import Commands

START_MS = 1_700_000_000_000
"""2023-11-14T22:13:20Z"""


def record(
    value: bytes | None, key: bytes | None = None, headers: tuple[Any, ...] = ()
) -> ConsumerRecord:
    sizes = (len(key or b""), len(value or b""))
    return ConsumerRecord(
        "t", 3, 7, START_MS, TimestampType.CREATE_TIME, key, value, headers, None, *sizes
    )


@pytest.mark.promise("`pykclient consume` prints what `pykclient produce` has sent, byte by byte")
def test_lines_with_keys_and_headers(run: Commands, topic: str) -> None:
    given = b"en:hello\nde:hallo\nno key\n\n"
    assert (
        run.printed("produce", "-t", topic, "-p1", "-K:", "-H", "h=1", "-H", "n", given=given) == []
    )
    form = "%t %p %o [%k] %K %s %S %h %%\\n"
    assert run.printed("consume", "-t", topic, "-e", "-f", form) == [
        f"{topic} 1 0 [en] 2 hello 5 h=1,n=NULL %",
        f"{topic} 1 1 [de] 2 hallo 5 h=1,n=NULL %",
        f"{topic} 1 2 [] -1 no key 6 h=1,n=NULL %",
        f"{topic} 1 3 [] -1  0 h=1,n=NULL %",
    ]
    assert run.printed("consume", "-t", topic, "-e", "-K", "=", "-c2") == ["en=hello", "de=hallo"]
    assert run.printed("consume", "-t", topic, "-e", "-D", "|", "-o-2") == ["no key||"]


@pytest.mark.promise("`pykclient consume` prints what `pykclient produce` has sent, byte by byte")
def test_files_delimiters_keys_and_nulls(run: Commands, topic: str, tmp_path: Path) -> None:
    whole, lines = tmp_path / "whole", tmp_path / "lines"
    whole.write_bytes(b"all\nof \xff it")
    lines.write_bytes(b"a;;b;;;;c")
    produce = ("produce", "-t", topic, "-p0", "-z", "zstd")
    run.printed(*produce, "-k", "key", whole)
    run.printed(*produce, "-l", "-D", ";;", "-Z", lines, lines)
    result = run("consume", "-t", topic, "-e", "-Z", "-f", r"%k|%s\0")
    assert result.output.split(b"\0") == [
        b"key|all\nof \xff it",
        *[b"NULL|" + value for value in (b"a", b"b", b"NULL", b"c")] * 2,
        b"",
    ]


@pytest.mark.promise("`pykclient consume` prints what `pykclient produce` has sent, byte by byte")
def test_json_lines_make_the_same_topic_again(run: Commands, topic: str, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"value": "v\u00e9", "key": None, "partition": 1, "timestamp_ms": START_MS},
        {"value": None, "key": "", "partition": 1, "timestamp_ms": START_MS + 1},
        {"value": {"base64": "//4="}, "headers": [["h", None], ["h", "x"]], "partition": 1},
    ]
    given = "\n".join([*map(json.dumps, rows), ""]).encode()
    run.printed("produce", "-t", topic, "--json", given=given)
    first = run("consume", "-t", topic, "-e", "-p1", "--json")
    path = tmp_path / "records.jsonl"
    path.write_bytes(first.output)
    run.printed("produce", "-t", topic, "-J", path)
    second = run("consume", "-t", topic, "-e", "-p1", "-o3", "-J")
    read = [[json.loads(line) for line in result.lines] for result in (first, second)]
    assert [row.pop("offset") for rows in read for row in rows] == [0, 1, 2, 3, 4, 5]
    assert read[0] == read[1]
    assert read[0][0] == {
        "type": "record",
        "topic": topic,
        "timestamp_type": "create_time",
        "headers": [],
        **rows[0],
    }
    assert read[0][2]["value"] == rows[2]["value"]
    assert read[0][2]["headers"] == rows[2]["headers"]


@pytest.mark.parametrize(
    ("places", "offsets"),
    [
        ((), [0, 1, 2, 3, 4]),
        (("--from-beginning",), [0, 1, 2, 3, 4]),
        (("-o", "earliest"), [0, 1, 2, 3, 4]),
        (("-o", "3"), [3, 4]),
        (("-o", "-1"), [4]),
        (("-o", "-99"), [0, 1, 2, 3, 4]),
        (("-o", "end"), []),
        (("-o", f"s@{START_MS + 3_000}"), [3, 4]),
        (("-o", "s@2023-11-14T22:13:22Z", "-o", "e@2023-11-14T22:13:24"), [2, 3]),
        (("-o", "s@2030-01-01"), []),
        (("-o", "e@2000-01-01"), []),
        (("-o", "s@20231114", "-o", "e@20231115"), [0, 1, 2, 3, 4]),
        (("-c", "2"), [0, 1]),
    ],
)
def test_reading_begins_and_ends_where_it_shall(
    run: Commands, topic: str, places: tuple[str, ...], offsets: list[int]
) -> None:
    rows: list[dict[str, Any]] = [
        {"value": f"{n}", "partition": 0, "timestamp_ms": START_MS + n * 1_000} for n in range(5)
    ]
    run.printed("produce", "-t", topic, "-J", given="\n".join(map(json.dumps, rows)).encode())
    read = run.printed("consume", "-t", topic, "-p0", "-e", *places)
    assert read == [str(offset) for offset in offsets]


def test_an_offset_beyond_a_partition_is_reported(run: Commands, topic: str) -> None:
    result = run("consume", "-t", topic, "-p1", "-e", "-o5")
    assert (result.status, result.output) == (0, b"")
    assert f"{topic}-1 holds offsets 0 to 0; 0 is used instead of 5\n" in result.complaint


def test_a_group_goes_on_where_it_was(run: Commands, topic: str) -> None:
    run.printed("produce", "-t", topic, "-p0", given=b"1\n2\n3\n")
    group = ("consume", "-t", topic, "-G", f"group of {topic}")
    assert run.printed(*group, "-c2") == ["1", "2"]
    assert run.printed(*group, "-e") == ["3"]
    assert run.printed(*group, "-e", "-o", "stored") == []


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            '{"value": x}',
            "line 2 of standard input: it is not JSON: Expecting value at column 11 (",
        ),
        ("[" * 100_000, "it is not JSON: "),
        ("[]", "it is not a JSON object; write records as"),
        ('{"key": "k"}', "it has no 'value'; a record has key, value, headers"),
        ('{"value": "v", "size": 1}', "there is no field 'size'; a record has"),
        ('{"value": 5}', "its value is neither text, null nor {'base64': ...}; write a JSON value"),
        ('{"value": {"base64": "?"}}', "its value cannot be read: "),
        ('{"value": "\\ud800"}', "its value cannot be read: "),
        ('{"value": "v", "headers": {"a": 1}}', "its headers are not a list of [name, value]"),
        ('{"value": "v", "headers": [["a"]]}', "one of its headers is not [name, value]"),
        ('{"value": "v", "partition": "1"}', "its partition is not a whole number"),
        ('{"value": "v", "partition": 2}', "has no partition 2, only 0 to 1"),
    ],
)
def test_broken_json_is_named_with_its_line_and_what_was_sent_before(
    run: Commands, topic: str, given: str, reason: str
) -> None:
    result = run("produce", "-t", topic, "--json", given=f'{{"value": "v"}}\n{given}\n'.encode())
    assert (result.status, result.complaint.count("\n")) == (1, 1)
    assert reason in result.complaint
    assert result.complaint.endswith("(1 record was sent)\n")
    assert run.printed("consume", "-t", topic, "-e") == ["v"]


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        (
            ("consume", "-t", "absent", "--timeout", "0.5"),
            1,
            "there is no topic 'absent'; `pykclient topics list`",
        ),
        (
            ("produce", "-t", "absent", "--timeout", "0.5"),
            1,
            "there is no topic 'absent'; create it",
        ),
        (("consume", "-t", "TOPIC", "-p7"), 1, "has no partition 7, only 0 to 1"),
        (("produce", "-t", "TOPIC", "-p7"), 1, "has no partition 7, only 0 to 1"),
        (("produce", "-t", "TOPIC", "nothing.txt"), 1, "nothing.txt: No such file or directory"),
        (("produce", "-t", "TOPIC", "-X", "acks"), 2, "write it as acks=VALUE"),
        (("consume", "-t", "TOPIC", "-X", "acks=1"), 1, "acks"),
        (("consume", "-t", "TOPIC", "-F", "nothing.properties"), 1, "Cannot read settings from"),
        (("consume", "-t", "TOPIC", "-f", "%x"), 2, "there is no %x; use %k %s %t"),
        (("consume", "-t", "TOPIC", "-f", r"\q"), 2, r"there is no escape \q"),
        (("consume", "-t", "TOPIC", "-o", "late"), 2, "'late' is not an offset; give beginning"),
        (("consume", "-t", "TOPIC", "-o", "s@late"), 2, "'late' is not a time; write 2026-01-31"),
        (("consume", "-t", "TOPIC", "-o", "s@1700000000"), 2, "or milliseconds since 1970"),
        (("consume", "-t", "TOPIC", "-o", "stored"), 2, "-o stored needs a group: -G"),
        (("consume", "-t", "TOPIC", "-G", "g", "-o", "3"), 2, "`pykclient groups reset`"),
        (("consume", "-t", "TOPIC", "-c", "0"), 2, "--count 0: give 1 or more"),
        (("consume", "-t", "TOPIC", "-J", "-K", ":"), 2, "leave out -f, -K and -D"),
        (("consume", "-t", "TOPIC", "--timeout", "soon"), 2, "'soon' is not a number of seconds"),
        (("produce", "-t", "TOPIC", "-K", ""), 2, "a delimiter needs at least one byte"),
        (("produce", "-t", "TOPIC", "-H", "=v"), 2, "write it as NAME=VALUE"),
        (("produce", "-t", "TOPIC", "-J", "-k", ""), 2, "leave out -k, -H, -K, -D, -Z and -l"),
        (("produce", "-t", "TOPIC", "-J", "-H", "n"), 2, "leave out -k, -H, -K, -D, -Z and -l"),
        (("produce", "-t", "TOPIC", "-J", "-D", ";"), 2, "leave out -k, -H, -K, -D, -Z and -l"),
        (("produce", "-t", "TOPIC", "-J", "-Z"), 2, "leave out -k, -H, -K, -D, -Z and -l"),
        (("produce", "-t", "TOPIC", "-K:", "file"), 2, "each file is one record; leave out -K and"),
        (("produce", "-t", "TOPIC", "-l"), 2, "-l is for files; leave it out"),
        (("consume",), 2, "required: -t/--topic"),
    ],
)
def test_what_is_wrong_is_reported_in_a_line(
    run: Commands, topic: str, arguments: tuple[str, ...], status: int, reason: str
) -> None:
    result = run(*(topic if each == "TOPIC" else each for each in arguments), given=b"v\n")
    assert (result.status, result.output) == (status, b"")
    assert reason in result.complaint.splitlines()[-1]
    assert status == 2 or result.complaint.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        *("produce -t t", "consume -t t", "consume -t t -G g", "scan -t t"),
        *("topics list", "topics describe t", "topics create t", "topics delete t"),
        *("topics alter t --partitions 2", "topics alter t --set flush.ms=5"),
        *("groups list", "groups describe g", "groups offsets g", "groups coordinator g"),
        "groups reset g --topic t --to-earliest",
    ],
)
def test_a_broker_that_is_not_there_is_reported_in_a_line(run: Commands, command: str) -> None:
    result = run(*command.split(), "-b", "127.0.0.1:1", "--timeout", "0.2")
    assert (result.status, result.complaint.count("\n")) == (1, 1)
    assert "cannot connect to 127.0.0.1:1: connection refused" in result.complaint
    assert (
        "; check that the brokers run, and that -b (bootstrap_servers) has their"
        in result.complaint
    )
    assert logging.getLogger("pykclient.network").level == logging.NOTSET, "as it was"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_terminal_alone_shows_that_a_command_still_waits(
    run: Commands, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    monkeypatch.setattr(network_log, "LONG_WAIT_MS", 1)
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda _: is_terminal)
    result = run("topics", "list", "-b", "127.0.0.1:1", "--timeout", "0.5")
    *waits, error = result.complaint.splitlines()
    assert (result.status, len(waits)) == (1, int(is_terminal))
    assert all(line.startswith("pykclient: still waiting for ") for line in waits)
    assert error.startswith("pykclient: waited 500 ms for the list of all topics: cannot connect")


def test_a_properties_file_may_have_the_settings_of_all_clients(
    run: Commands, topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "client.properties"
    path.write_text("acks=all\nisolation.level=read_committed\ngroup.id=g\n")
    assert run.printed("produce", "-t", topic, "-F", path, given=b"v\n") == []
    assert run.printed("consume", "-t", topic, "-e", "-F", path) == ["v"]
    run.printed("groups", "list", "-F", path)
    path.write_text("acs=all\n")
    assert "Did you mean 'acks'" in run("produce", "-t", topic, "-F", path).complaint


def test_brokers_are_named_in_one_of_four_ways(
    run: Commands, broker: FakeKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYKCLIENT_BOOTSTRAP_SERVERS", "")
    result = run("groups", "list")
    assert (result.status, result.output) == (1, b"")
    assert "use -b HOST:PORT, or set the variable PYKCLIENT_BOOT" in result.complaint
    path = tmp_path / "client.properties"
    path.write_text(f"bootstrap.servers={broker.bootstrap_servers}\n")
    wrong = "127.0.0.1:1"
    for arguments in (
        ("-b", broker.bootstrap_servers, "-X", f"bootstrap.servers={wrong}"),
        ("-X", f"bootstrap.servers={broker.bootstrap_servers}"),
        ("-F", path),
    ):
        assert run("groups", "list", *arguments).status == 0
        monkeypatch.setenv("PYKCLIENT_BOOTSTRAP_SERVERS", wrong)


@pytest.mark.parametrize(
    "arguments",
    [
        ("consume", "-t", "TOPIC", "-e", "-X", "allow_auto_create_topics=false"),
        ("consume", "-t", "TOPIC", "-e", "-G", "g", "-X", "auto_offset_reset=latest"),
        ("topics", "list", "-X", "default_api_timeout_ms=5000"),
        ("topics", "list", "-X", "bootstrap_servers=127.0.0.1:1"),
    ],
)
def test_a_setting_may_have_underscores(
    run: Commands, broker: FakeKafka, topic: str, arguments: tuple[str, ...]
) -> None:
    named = (topic if each == "TOPIC" else each for each in arguments)
    result = run(*named, "-b", broker.bootstrap_servers)
    assert (result.status, result.complaint) == (0, "")


@pytest.mark.parametrize("command", ["consume", "scan"])
def test_a_group_of_the_settings_gets_no_offsets(
    run: Commands, broker: FakeKafka, topic: str, command: str
) -> None:
    run.printed("produce", "-t", topic, given=b"v\n")
    ends = ("-e",) if command == "consume" else ()
    settings = ("-X", "group.id=an application", "-X", "enable_auto_commit=true")
    assert run(command, "-t", topic, *ends, *settings).status == 0
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert "an application" not in admin.list_groups()


@pytest.mark.parametrize("protocol", ["classic", "consumer", "auto"])
def test_a_member_without_partitions_is_at_the_end(
    run: Commands, broker: FakeKafka, topic: str, protocol: str
) -> None:
    group = f"group of {topic}"
    run.printed("produce", "-t", topic, "-p0", given=b"v\n")
    settings = {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": group,
        "group_protocol": protocol,
    }
    with ExitStack() as stack:
        members = [stack.enter_context(Consumer(settings)) for _ in range(2)]
        for member in members:
            member.subscribe([topic])
        ended = Event()

        def read() -> None:
            while not ended.is_set():
                for member in members:
                    member.poll(0.05)

        reading = Thread(target=read)
        reading.start()
        try:
            chosen = ("-X", f"group.protocol={protocol}")
            result = run("consume", "-t", topic, "-G", group, "-e", *chosen)
            assert (result.status, result.complaint) == (0, "")
        finally:
            ended.set()
            reading.join()


@pytest.mark.parametrize("command", ["consume", "scan"])
def test_reading_goes_on_behind_what_was_deleted_meanwhile(
    run: Commands, broker: FakeKafka, topic: str, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    run.printed("produce", "-t", topic, "-p0", given=b"0\n1\n2\n3\n4\n")

    def span_before_deletion(*arguments: Any) -> Span:
        span = span_of(*arguments)
        with broker.control() as cluster:
            cluster.topics[topic].partitions[0].log.delete_records(3)
        return span

    monkeypatch.setattr(span_reader, "span_of", span_before_deletion)
    result = run(command, "-t", topic, "-p0", *(("-e",) if command == "consume" else ("-J",)))
    assert (result.status, result.complaint) == (
        1,
        f"pykclient: {topic}-0 holds offsets 3 to 5; 3 is used instead of 0\n",
    )
    if command == "consume":
        assert result.lines == ["3", "4"]
    else:
        assert json.loads(result.lines[0])["records"] == 2


@given(
    st.binary(), st.none() | st.binary(), st.lists(st.tuples(st.text(), st.none() | st.binary()))
)
def test_any_record_is_the_same_after_its_line(
    value: bytes, key: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    names = [name.encode(errors="replace").decode() for name, _ in headers]
    pairs = tuple(zip(names, [data for _, data in headers], strict=True))
    line = record_line(record(value, key, pairs))
    assert (line.count(b"\n"), parse_record(line)[:3]) == (1, (value, key, pairs))


def test_a_format_has_what_kcat_has() -> None:
    form = record_format(r"a%%b\t\x41%R%T\\", null=b"")
    assert form(record(b"four")) == b"a%b\tA" + b"\0\0\0\4" + b"%d" % START_MS + b"\\"
    assert record_format("%R")(record(None)) == b"\xff" * 4
    assert unescaped(r"\x0a\0") == b"\n\0"
    for wrong in ("%", "%z", "\\"):
        with pytest.raises(UsageError):
            record_format(wrong)


def test_bytes_of_arguments_and_a_time_that_is_none(run: Commands, topic: str) -> None:
    given = b'{"value": "v", "timestamp_ms": -1}'
    run.printed("produce", "-t", topic, "-J", given=given)
    assert run("consume", "-t", topic, "-e", "-f", "\udcff%s").output == b"\xffv"
    run.printed("produce", "-t", topic, "-p0", "-k", "\udcff", "-D", "\udcfe", given=b"v\xfe")
    assert run("consume", "-t", topic, "-e", "-p0", "-o-1", "-f", "%k").output == b"\xff"


def test_a_file_that_cannot_be_read_is_named(run: Commands, topic: str, tmp_path: Path) -> None:
    result = run("produce", "-t", topic, "-l", tmp_path)
    assert result.complaint.startswith(f"pykclient: {tmp_path}: ")
    memory = "/proc/self/mem"
    assert run("produce", "-t", topic, "-l", memory).complaint.startswith(f"pykclient: {memory}: ")


def test_a_line_without_end_is_refused(
    run: Commands, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "RECORD_BYTES_MAX", 1_000)
    result = run("produce", "-t", topic, given=b"v\n" + bytes(2_000))
    assert "standard input has a line of more than 1000 bytes; give its" in result.complaint


def test_a_file_that_is_too_large_for_a_record_is_refused(
    run: Commands, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "RECORD_BYTES_MAX", 1_000)
    result = run("produce", "-t", topic, "/dev/zero")
    assert "/dev/zero has more than 1000 bytes; give -l to send its lines" in result.complaint


def test_delimiters_that_are_cut_between_two_reads_are_found(
    run: Commands, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "READ_BYTES", 2)
    run.printed("produce", "-t", topic, "-p0", "-D", "##", given=b"a##bc####d#e##")
    assert run.printed("consume", "-t", topic, "-e") == ["a", "bc", "", "d#e"]
