"""Whatever a broker sends, a call ends in its time, with a typed error, in little memory and CPU.

Clients run in processes of their own, with either core; brokers in this one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from pykclient import Producer
from pykclient.accel import flaw_of_compiled
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.message import encode_response
from tests.hostile.client import TOPIC
from tests.hostile.peer import Received, Reply, ScriptedBroker, metadata
from tests.hostile.responses import HOSTILE
from tests.integration.loopback_server import LoopbackServer

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from tests.hostile.payloads import Hostile

CORES = ("pure", "compiled") if flaw_of_compiled() is None else ("pure",)
CALLS_OF_CORES = ("send", "poll", "poll_arrow")
"""Calls that run code of the core; all else is the same in both."""

MET = [
    (core, hostile)
    for core in CORES
    for hostile in HOSTILE
    if core == CORES[-1] or hostile.call in CALLS_OF_CORES
]
CLIENT_COUNT = 3
"""Processes for each core: most of the time each waits."""

GRACE_S = 2.0
CPU_S_MAX = 1.0
GROWTH_KB_MAX = 200_000
TEXT_LENGTH_MAX = 4_000
TIMEOUT_S = 20

Report = dict[str, Any]


class Client:
    """A process that makes calls."""

    def __init__(self, core: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.client"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYKCLIENT_ACCEL": core},
            text=True,
        )

    def meet(self, hostile: Hostile) -> Report:
        """Send the client process to the broker; return how its call ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        peer = hostile.peer()
        with LoopbackServer(peer) as server:
            order = {
                "call": hostile.call,
                "timeout_ms": hostile.timeout_ms,
                "settings": {
                    "bootstrap_servers": server.address,
                    "request_timeout_ms": hostile.timeout_ms * 2 // 3,
                    **hostile.settings,
                },
            }
            print(json.dumps(order), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{hostile.name}: the client ended; see its stacks on stderr")
        report: Report = json.loads(line)
        # Each is to be cheap, and a call may meet several.
        report["cpu_seconds"] /= max(1, getattr(peer, "hostile_count", 1))
        return report

    def close(self) -> None:
        """End the client process."""
        self._process.communicate()


def meet_all(core: str, part: Sequence[Hostile]) -> dict[tuple[str, str], Report]:
    client = Client(core)
    try:
        return {(core, hostile.name): client.meet(hostile) for hostile in part}
    finally:
        client.close()


@pytest.fixture(scope="module")
def reports() -> dict[tuple[str, str], Report]:
    """Run every call and return how each ended."""
    for hostile in HOSTILE:
        hostile.peer()  # has the large responses made, before calls have a time
    jobs = [
        (core, [hostile for each, hostile in MET if each == core][n::CLIENT_COUNT])
        for core in CORES
        for n in range(CLIENT_COUNT)
    ]
    found: dict[tuple[str, str], Report] = {}
    with ThreadPoolExecutor(len(jobs)) as pool:
        for part in pool.map(meet_all, *zip(*jobs, strict=True)):
            found |= part
    return found


def test_there_are_enough_of_them_and_each_has_a_name() -> None:
    assert len({hostile.name for hostile in HOSTILE}) == len(HOSTILE) >= 100


@pytest.mark.promise("whatever a broker sends, a call ends in time, with bounded memory and CPU")
@pytest.mark.parametrize(("core", "hostile"), MET, ids=lambda value: getattr(value, "name", value))
def test_a_call_ends_as_the_table_says(
    core: str, hostile: Hostile, reports: dict[tuple[str, str], Report]
) -> None:
    if flaws_of(hostile, reports[core, hostile.name]):
        # Many ran at once, perhaps on a busy machine: now alone, and with more time.
        again = hostile._replace(given_ms=hostile.timeout_ms * 4)
        assert flaws_of(again, meet_all(core, [again])[core, again.name]) == []


def flaws_of(hostile: Hostile, report: Report) -> list[str]:
    """List what differs from the table, or costs too much."""
    if hostile.error is None:
        is_expected = (report["error"], report["text"]) == (None, hostile.text)
    else:
        is_expected = report["is_ours"] and hostile.error in report["error"]
        is_expected = is_expected and hostile.text in report["text"]
    waits = 2 if hostile.call == "send" else 1  # for metadata, then for the delivery
    judged = {
        f"ended with {report['error']}: {report['text'][:2_000]}": is_expected,
        f"a text of {len(report['text'])} signs": len(report["text"]) < TEXT_LENGTH_MAX,
        f"took {report['seconds']} s": (
            report["seconds"] < waits * hostile.timeout_ms / 1_000 + GRACE_S
        ),
        f"grew by {report['growth_kb']} kB": report["growth_kb"] < GROWTH_KB_MAX,
        f"took {report['cpu_seconds']} s of CPU": report["cpu_seconds"] < CPU_S_MAX,
    }
    return [what for what, is_good in judged.items() if not is_good]


def test_a_response_that_nothing_requested_closes_an_idle_connection() -> None:
    is_idle, is_closed = threading.Event(), threading.Event()

    def respond(received: Received) -> Reply:
        def send(connection: socket.socket) -> None:
            header = received.header
            good = encode_response(metadata(received), header.api_version, header.correlation_id)
            connection.sendall(good)
            assert is_idle.wait(TIMEOUT_S)
            connection.sendall(received.frame(b"", correlation_id=99))
            while connection.recv(4096):
                pass
            is_closed.set()

        return send

    with (
        LoopbackServer(ScriptedBroker({ApiKey.METADATA: respond})) as server,
        Producer(bootstrap_servers=server.address, enable_idempotence=False) as producer,
    ):
        assert len(producer.partitions_for(TOPIC)) == 1
        is_idle.set()
        assert is_closed.wait(TIMEOUT_S)
