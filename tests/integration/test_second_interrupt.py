"""A client that ends while no broker is in reach says so, and a second Ctrl-C ends it at once.

Method: each program runs in a process of its own and says on stdout when its brokers may go. A
signal is sent when stderr has the line that the next step waits for.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pykclient import Producer
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing import FakeKafka
from pykclient.testing.fake.faults import drop
from tests.testing.test_processes import await_true

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.promise(
    "a shutdown that takes long logs what it waits for, and a second Ctrl-C ends it"
)

PATIENCE_S = 60.0
"""Less than what each program would wait without a second Ctrl-C."""
BEGINNING = """
import logging, sys, time
from pykclient import Consumer, Producer
from pykclient.network import long_close
from pykclient.producer.sender import thread

long_close.NOTICE_MS = 0
thread.EXIT_TIMEOUT_MS = 600_000
thread.LOOK_AGAIN_S = 0.05
logging.basicConfig(format="%(message)s")
logging.getLogger("pykclient.network").setLevel("CRITICAL")

def wait_for_interrupt():
    print("ready", flush=True)
    sys.stdin.readline()  # the brokers go away meanwhile
    print("waiting", flush=True)
    while True:  # a signal right before a wait without an end would not end it
        time.sleep(0.05)

def filled(servers, **settings):
    producer = Producer(bootstrap_servers=servers, delivery_timeout_ms=600_000, **settings)
    producer.partitions_for("t")
    return producer

def assigned(servers):
    consumer = Consumer(bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest")
    consumer.subscribe(["t"])
    while not consumer.poll(0.1):
        pass
    return consumer
"""
WITH_BLOCK = """
with filled(sys.argv[1]) as producer:
    try:
        wait_for_interrupt()
    finally:
        for _ in range(290):
            producer.send("t", b"v")
"""
CLOSE = """
producer = filled(sys.argv[1])
try:
    wait_for_interrupt()
except KeyboardInterrupt:
    producer.send("t", b"v")
producer.close()
"""
EXIT_HOOK = """
producer = filled(sys.argv[1], linger_ms=0)
try:
    wait_for_interrupt()
except KeyboardInterrupt:
    producer.send("t", b"v")
"""
CONSUMER = """
with assigned(sys.argv[1]) as consumer:
    wait_for_interrupt()
"""
BOTH = """
with filled(sys.argv[1]) as producer, assigned(sys.argv[1]) as consumer:
    try:
        wait_for_interrupt()
    finally:
        producer.send("t", b"v")
"""
FLUSH = """
producer = filled(sys.argv[1])
try:
    wait_for_interrupt()
finally:
    producer.send("t", b"v")
    try:
        producer.flush()
    finally:
        producer.close()
"""


@pytest.fixture
def fake() -> Iterator[FakeKafka]:
    with FakeKafka() as fake:
        with Producer(bootstrap_servers=fake.bootstrap_servers) as producer:
            producer.send("t", b"v").result()
        yield fake


def run_until_interrupted_twice(
    command: list[str], is_waiting: Callable[[subprocess.Popen[str]], object], fake: FakeKafka
) -> tuple[int, list[str], str]:
    """Run a command without brokers, and press Ctrl-C, and again once it says that it waits.

    Return its status, the lines on stderr before the second Ctrl-C, and the text after it.
    """
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYKCLIENT_BOOTSTRAP_SERVERS": fake.bootstrap_servers},
    ) as process:
        try:
            is_waiting(process)
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            lines = []
            for line in process.stderr:
                lines.append(line)
                if "still waiting for" in line:
                    break
            process.send_signal(signal.SIGINT)
            _, rest = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    return process.returncode, lines, rest


@pytest.mark.parametrize(
    ("program", "what"),
    [
        (WITH_BLOCK, "close: still waiting for the delivery of 290 records for 1 partitions, "),
        pytest.param(
            *(CLOSE, "close: still waiting for the delivery of 1 records"), marks=pytest.mark.soak
        ),
        (EXIT_HOOK, "the program ends: still waiting for the delivery of 1 records"),
        pytest.param(
            *(CONSUMER, "close: still waiting for group 'g' to take the last commit"),
            marks=pytest.mark.soak,
        ),
        (BOTH, "close: still waiting for group 'g' to take the last commit"),
        pytest.param(
            *(FLUSH, "flush: still waiting for the delivery of 1 records"), marks=pytest.mark.soak
        ),
    ],
    ids=["with block", "close", "exit hook", "consumer", "consumer in producer", "flush"],
)
def test_a_program_says_what_it_waits_for_and_ends_at_the_second_interrupt(
    program: str, what: str, fake: FakeKafka
) -> None:
    def is_waiting(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        fake.close()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "waiting\n"

    command = [sys.executable, "-c", BEGINNING + program, fake.bootstrap_servers]
    status, lines, rest = run_until_interrupted_twice(command, is_waiting, fake)
    assert status in (0, 1, -signal.SIGINT)
    assert what in lines[-1]
    assert "; Ctrl-C ends the wait: " in lines[-1]
    assert "Exception ignored" not in rest
    if "producer" in program:
        assert "were not delivered" in rest
    assert rest.count("still waiting") == 0, "the second Ctrl-C has ended every wait"


COMMAND = """
import sys
from pykclient.cli import main
from pykclient.network import long_close
from pykclient.producer.sender import thread

long_close.NOTICE_MS, thread.LOOK_AGAIN_S = 0, 0.05
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("arguments", "api", "what", "rest"),
    [
        (
            ("produce", "-t", "t"),
            ApiKey.PRODUCE,
            "the delivery of 1 records for 1 partitions",
            "pykclient: interrupted: 0 records were sent\n",
        ),
        (
            ("consume", "-t", "t", "-G", "g"),
            ApiKey.OFFSET_COMMIT,
            "group 'g' to take the last commit",
            "pykclient: interrupted: 1 record was printed\n",
        ),
    ],
    ids=["produce", "consume"],
)
def test_a_command_says_what_it_waits_for_and_ends_at_the_second_interrupt(
    arguments: tuple[str, ...], api: ApiKey, what: str, rest: str, fake: FakeKafka
) -> None:
    def is_waiting(process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        with fake.control() as cluster:
            handle = cluster.faults.add(drop(), api, times=None)
        if api is ApiKey.PRODUCE:
            process.stdin.write("a line\n")
            process.stdin.flush()
            await_true(lambda: handle.used_count > 0, "a broker has the record, and is silent")
        else:
            assert process.stdout is not None
            assert process.stdout.readline() == "v\n"

    command = [sys.executable, "-c", COMMAND, *arguments]
    status, lines, after = run_until_interrupted_twice(command, is_waiting, fake)
    assert status == 130
    assert lines[-1].startswith(f"pykclient: close: still waiting for {what}")
    assert "; Ctrl-C ends the wait: " in lines[-1]
    assert after.endswith(rest)
    assert "Traceback" not in after
