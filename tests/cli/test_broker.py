"""`pykclient broker` as a process: it serves, ends in order, and says in a line why it cannot."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pykclient.cli import main
from pykclient.testing import FakeKafka

if TYPE_CHECKING:
    from collections.abc import Iterator

T0 = TopicPartition("t", 0)
NO_ROOM = Path("/dev/full")


@contextmanager
def broker(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start `pykclient broker`; yield the process and its address, and kill it in the end."""
    command = [sys.executable, "-m", "pykclient", "broker", "--port", "0", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert re.match("Broker for experiments and tests at (127.0.0.1|localhost):", line), (
                line
            )
            yield process, line.split(" at ")[1].split(",")[0]
        finally:
            process.kill()


def test_a_broker_that_others_reach_says_that_it_is_open_to_all() -> None:
    given = ("--host", "0.0.0.0", "--advertised-host", "127.0.0.1")
    for arguments, is_open in ((given, True), (("--host", "localhost"), False)):
        with broker(*arguments) as (process, _):
            process.send_signal(signal.SIGINT)
            complaint = process.communicate(timeout=10)[1]
        warned = (
            "pykclient: the broker at --host 0.0.0.0 is open to everyone who can reach it: "
            "it neither encrypts nor asks for a password\n"
        )
        assert complaint == f"{warned if is_open else ''}pykclient: the broker has ended\n"


def test_it_serves_is_killed_and_serves_again(tmp_path: Path) -> None:
    for number, end in enumerate((signal.SIGKILL, signal.SIGINT, signal.SIGTERM)):
        with broker("--data", str(tmp_path), "--partitions", "3") as (process, servers):
            with Producer(bootstrap_servers=servers) as producer:
                producer.send("t", b"%d" % number, partition=0).result(timeout=10)
            with Consumer(
                bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest"
            ) as consumer:
                consumer.assign([T0])
                assert [each.value for each in consumer.poll(10)] == [b"%d" % number]
                consumer.commit()
                assert len(consumer.partitions_for("t")) == 3
            process.send_signal(end)
            complaint = process.communicate(timeout=10)[1]
        assert process.returncode == (0 if end != signal.SIGKILL else -signal.SIGKILL)
        assert complaint == ("pykclient: the broker has ended\n" if process.returncode == 0 else "")


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        (("--port", "TAKEN"), 1, ": Address already in use; choose another port"),
        (("--host", "no-such-host.invalid"), 1, "unknown host no-such-host.invalid: "),
        (("--data", "TAKEN"), 1, "name an empty folder"),
        (("--port", "70000"), 2, "--port 70000: give a number from 0 to 65535"),
        (("--host", "0.0.0.0"), 2, "give also --advertised-host"),
        (("--host", "0"), 2, "give also --advertised-host"),
        (("--host", "0::0"), 2, "give also --advertised-host"),
        (("--partitions", "0"), 1, "default_partition_count"),
    ],
)
def test_what_it_cannot_do_is_reported_in_a_line(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    arguments: tuple[str, str],
    status: int,
    reason: str,
) -> None:
    (tmp_path / "file").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        option, value = arguments
        if value == "TAKEN":
            value = str(tmp_path) if option == "--data" else str(taken.getsockname()[1])
        port = () if option == "--port" else ("--port", "0")
        try:
            found = main(["broker", *port, option, value])
        except SystemExit as end:
            found = int(end.code or 0)
    output, complaint = capfd.readouterr()
    assert (found, output) == (status, "")
    assert reason in complaint.splitlines()[-1]
    assert status == 2 or complaint.count("\n") == 1
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "as it was"


@pytest.mark.skipif(not NO_ROOM.exists(), reason="there is no /dev/full")
def test_a_full_disk_ends_it_with_a_line(tmp_path: Path) -> None:
    with broker("--data", str(tmp_path)) as (process, servers):
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic("t", 1)])
        segment = tmp_path / "t-0" / f"{0:020}.log"
        segment.unlink()
        segment.symlink_to(NO_ROOM)
        with Producer(bootstrap_servers=servers, delivery_timeout_ms=1_000, linger_ms=0,
                      request_timeout_ms=1_000) as producer:  # fmt: skip
            delivery = producer.send("t", b"v")
            _, complaint = process.communicate(timeout=10)
            assert delivery.exception(timeout=10) is not None
    assert process.returncode == 1
    assert complaint.count("\n") == 1
    assert f"{segment} cannot be used: No space left on device; make room" in complaint


def test_a_name_that_clients_are_sent_to_is_advertised() -> None:
    with FakeKafka(advertised_host="localhost") as fake:
        port = int(fake.bootstrap_servers.rpartition(":")[2])
        assert fake.bootstrap_servers.startswith("localhost:")
        with Producer(bootstrap_servers=f"127.0.0.1:{port}") as producer:
            assert producer.send("t", b"v").result(timeout=10).offset == 0


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6")
def test_an_ipv6_address_is_one_that_clients_take() -> None:
    try:
        fake = FakeKafka(host="::1")
    except OSError as error:
        pytest.skip(f"this machine has none: {error}")
    with fake:
        assert fake.bootstrap_servers.startswith("[::1]:")
        with Producer(bootstrap_servers=fake.bootstrap_servers) as producer:
            assert producer.send("t", b"v").result(timeout=10).offset == 0


def test_a_port_is_given_back_when_the_folder_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    with pytest.raises(Exception, match="name an empty folder"):
        FakeKafka(port=port, data=tmp_path)
    assert before in (0, len(os.listdir("/proc/self/fd")))
