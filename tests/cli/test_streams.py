"""Trouble with a command's streams: closed pipes, full disks, Ctrl-C, no terminal."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pykclient import Admin, Consumer, Producer, TopicPartition
from pykclient.testing import FakeKafka
from tests.records.batches import build

if TYPE_CHECKING:
    from tests.cli.commands import Commands

NO_ROOM = Path("/dev/full")
TIMEOUT_S = 20.0


@pytest.fixture
def filled(run: Commands, topic: str) -> str:
    """Provide a topic of two records, which a group has begun to read."""
    run.printed("produce", "-t", topic, "-p0", given=b"one\ntwo\n")
    reset = ["groups", "reset", f"of {topic}", "--topic", topic, "--to-earliest", "--execute"]
    run.printed(*reset, "--create")
    return topic


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(build([(1000, None, b"v", ())]))
    return path


def start(broker: FakeKafka, *arguments: str, **streams: Any) -> subprocess.Popen[bytes]:
    environ = {**os.environ, "PYKCLIENT_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    streams = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, "env": environ, **streams}
    return subprocess.Popen([sys.executable, "-m", "pykclient", *arguments], **streams)


def named(arguments: tuple[str, ...], topic: str) -> list[str]:
    return [topic if each == "TOPIC" else each for each in arguments]


@pytest.mark.parametrize(
    "arguments",
    [
        ("consume", "-t", "TOPIC", "-e"),
        ("scan", "-t", "TOPIC"),
        ("topics", "describe", "TOPIC"),
        ("groups", "list"),
    ],
)
def test_a_pipe_without_a_reader(
    broker: FakeKafka, filled: str, arguments: tuple[str, ...]
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with start(broker, *named(arguments, filled), stdout=writer) as process:
        os.close(writer)
        complaint = process.communicate(timeout=TIMEOUT_S)[1]
    assert (process.returncode, complaint) == (
        141,
        b"pykclient: the output was closed early\n",
    )


@pytest.mark.skipif(not NO_ROOM.exists(), reason="there is no /dev/full")
def test_what_is_outside_of_ascii_is_taken_and_shown_in_the_locale_c(
    broker: FakeKafka, topic: str, tmp_path: Path
) -> None:
    """LC_ALL=C, with both of Python's ways to UTF-8 off: words come as halves of pairs."""
    environ = {
        **os.environ,
        "PYKCLIENT_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
    }
    environ.pop("PYTHONIOENCODING", None)
    file = tmp_path / "großer Wert"
    file.write_bytes("größer".encode())

    def run(*arguments: str) -> bytes:
        return subprocess.run(
            [sys.executable, "-m", "pykclient", *arguments],
            env=environ,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=True,
        ).stdout

    run("produce", "-t", topic, "-p", "0", "-k", "schlüssel", "-H", "café=crème", str(file))
    run("produce", "-t", topic, "-p", "0", "-l", "-K", "→", str(file))
    shown = run("consume", "-t", topic, "-e", "-f", "%k → %s, %h\\n")
    assert shown.decode().splitlines() == ["schlüssel → größer, café=crème", " → größer, "]
    assert run("consume", "-t", topic, "-e", "-G", "größe").decode() == "größer\n" * 2
    with broker.control() as cluster:
        assert cluster.committed("größe")


@pytest.mark.parametrize(
    "arguments",
    [
        ("consume", "-t", "TOPIC", "-e", "--json"),
        ("scan", "-t", "TOPIC"),
        ("topics", "describe", "TOPIC"),
        ("groups", "list"),
        ("log", "SEGMENT"),
    ],
)
def test_a_full_disk(
    broker: FakeKafka, filled: str, segment: Path, arguments: tuple[str, ...]
) -> None:
    command = [str(segment) if each == "SEGMENT" else each for each in named(arguments, filled)]
    with (
        NO_ROOM.open("wb") as full,
        start(broker, *command, stdout=full) as process,
    ):
        complaint = process.communicate(timeout=TIMEOUT_S)[1]
    assert (process.returncode, complaint) == (
        1,
        b"pykclient: the output cannot be written: No space left on device\n",
    )


@pytest.mark.parametrize(
    ("arguments", "redirection", "complaint"),
    [
        (
            ("topics", "list"),
            ">&-",
            b"pykclient: standard output and standard error must be open\n",
        ),
        (("topics", "list"), "2>&-", b""),
        (
            ("produce", "-t", "TOPIC"),
            "<&-",
            b"pykclient: standard input is closed; name a file, or write to it "
            b"(0 records were sent)\n",
        ),
    ],
)
def test_a_stream_that_is_closed(
    broker: FakeKafka, topic: str, arguments: tuple[str, ...], redirection: str, complaint: bytes
) -> None:
    command = [sys.executable, "-m", "pykclient", *named(arguments, topic)]
    ended = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {redirection}', "sh", *command],
        env={**os.environ, "PYKCLIENT_BOOTSTRAP_SERVERS": broker.bootstrap_servers},
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (1, complaint)


def test_ctrl_c_ends_reading_with_what_was_printed(broker: FakeKafka, filled: str) -> None:
    with start(broker, "consume", "-t", filled, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"one\n", b"two\n"]
        process.send_signal(signal.SIGINT)
        complaint = process.communicate(timeout=TIMEOUT_S)[1]
    assert (process.returncode, complaint) == (
        130,
        b"pykclient: interrupted: 2 records were printed\n",
    )


def test_ctrl_c_ends_the_reading_of_a_file(broker: FakeKafka, segment: Path) -> None:
    segment.write_bytes(segment.read_bytes() * 50_000)  # more than a pipe holds
    with start(broker, "log", "--values", str(segment), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"Dumping ")
        process.send_signal(signal.SIGINT)
        complaint = process.communicate(timeout=TIMEOUT_S)[1]
    assert (process.returncode, complaint) == (130, b"pykclient: interrupted\n")


@pytest.mark.parametrize("command", ["scan -t t", "topics list", "groups list"])
def test_ctrl_c_ends_waiting_for_a_broker(broker: FakeKafka, command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(TIMEOUT_S)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with start(broker, *command.split(), "-b", address, stdout=subprocess.PIPE) as process:
            connection, _ = server.accept()  # it waits for a response, which never comes
            with connection:
                process.send_signal(signal.SIGINT)
                output, complaint = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, output, complaint) == (130, b"", b"pykclient: interrupted\n")


def test_sigterm_ends_a_member_which_leaves_its_group(broker: FakeKafka, filled: str) -> None:
    group = f"group of {filled}"
    with start(broker, "consume", "-t", filled, "-G", group, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"one\n", b"two\n"]
        process.send_signal(signal.SIGTERM)
        complaint = process.communicate(timeout=TIMEOUT_S)[1]
    assert (process.returncode, complaint) == (
        143,
        b"pykclient: terminated: 2 records were printed\n",
    )
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.describe_groups([group])[group].members == ()


def test_ctrl_c_ends_sending_with_what_was_sent(broker: FakeKafka, topic: str) -> None:
    first = TopicPartition(topic, 0)
    with (
        start(broker, "produce", "-t", topic, "-p0", stdin=subprocess.PIPE) as process,
        Consumer(
            bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer,
    ):
        assert process.stdin is not None
        process.stdin.write(b"a line, sent while no other has come\n")
        process.stdin.flush()
        consumer.assign([first])
        (record,) = consumer.poll(TIMEOUT_S)
        assert record.value == b"a line, sent while no other has come"
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        complaint = process.stderr.read()
        assert process.wait(TIMEOUT_S) == 130
    assert complaint == b"pykclient: interrupted: 1 record was sent\n"


def test_a_failed_delivery_ends_sending_while_input_is_open(broker: FakeKafka, topic: str) -> None:
    small = f"{topic}-small"
    with broker.control() as cluster:
        cluster.create_topic(small, 1, config={"max.message.bytes": "200"})
    with start(broker, "produce", "-t", small, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        try:
            process.stdin.write(b"v" * 1_000 + b"\n")
            process.stdin.flush()
            assert process.wait(TIMEOUT_S) == 1
        finally:
            process.kill()
        complaint = process.stderr.read()
    assert (complaint.count(b"\n"), b"(0 records were sent)\n" in complaint) == (1, True)


def test_a_broker_that_goes_away_ends_reading_with_a_line() -> None:
    with FakeKafka() as broker:
        with broker.control() as cluster:
            cluster.create_topic("t")
        times = ("-X", "default.api.timeout.ms=500")
        with start(broker, "consume", "-t", "t", *times, stdout=subprocess.PIPE) as process:
            with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                producer.send("t", b"v").result(timeout=10)
            assert process.stdout is not None
            assert process.stdout.readline() == b"v\n"
            with broker.control() as cluster:
                cluster.stop_broker(0)
            complaint = process.communicate(timeout=TIMEOUT_S)[1]
    assert (process.returncode, complaint.count(b"\n")) == (1, 1)
    assert b"connection refused" in complaint


def test_without_a_terminal_tables_are_plain_lines(broker: FakeKafka, filled: str) -> None:
    environ = {key: value for key, value in os.environ.items() if key not in ("TERM", "LANG")}
    environ |= {"PYKCLIENT_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    with start(
        broker,
        *("topics", "describe", filled),
        stdout=subprocess.PIPE,
        env=environ,
        start_new_session=True,
    ) as process:
        output, complaint = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, complaint) == (0, b"")
    assert [line.split()[1:4] for line in output.decode().splitlines()] == [
        ["PARTITION", "BEGIN-OFFSET", "END-OFFSET"],
        ["0", "0", "2"],
        ["1", "0", "0"],
    ]
