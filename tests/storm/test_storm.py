"""Interrupted at random, again and again, clients neither hang nor lose anything.

Method: a program that sends, reads and commits is a process of its own, in which signals,
destructors and log records interrupt whatever it does (`program`). Here are its brokers, and the
judge of what it noted. ``PYKCLIENT_STORM_COUNT`` says how many interruptions each case has.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pykclient import Consumer
from pykclient.accel import implementation
from pykclient.testing import FakeKafka
from pykclient.testing.fake.groups.group import GroupSettings
from tests.storm.interruptions import KINDS
from tests.storm.journal import Journal
from tests.storm.judge import Log, violations
from tests.storm.program import HEARTBEAT_INTERVAL_MS, PARTITIONS, SESSION_TIMEOUT_MS, TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SEEDS = (1, 2)
READINGS = ("classic", "consumer", "assign")
COUNT = int(os.environ.get("PYKCLIENT_STORM_COUNT", "1700"))
"""With two cores, three ways to read and two seeds that makes 20,400."""
COUNT_WITH_WARNINGS = 300
TIMEOUT_S = 240.0
TOLD_MAX = 30
GROUP_SETTINGS = GroupSettings(
    group_min_session_timeout_ms=500,
    group_consumer_session_timeout_ms=SESSION_TIMEOUT_MS,
    group_consumer_heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
    group_consumer_assignment_interval_ms=0,
)
"""A member whose first request was interrupted is one that nobody knows, until its session ends."""

each_reading = pytest.mark.parametrize("reading", READINGS)


@pytest.fixture(params=["compiled", "pure"])
def core(request: pytest.FixtureRequest) -> str:
    """In turn each of the two cores."""
    name: str = request.param
    if name == "compiled" and implementation != name:
        pytest.skip("the core is not compiled here")
    return name


@pytest.fixture
def fake() -> Iterator[FakeKafka]:
    """Three brokers whose groups do not wait for long, and the topic."""
    with FakeKafka(3, group_settings=GROUP_SETTINGS) as fake:
        with fake.control() as cluster:
            cluster.create_topic(TOPIC, len(PARTITIONS))
        yield fake


class Storm:
    """Runs the program, and keeps what it noted."""

    def __init__(self, fake: FakeKafka, folder: Path, core: str) -> None:
        self._fake = fake
        self._path = folder / "journal.json"
        self._core = core

    def run(self, reading: str, seed: int, count: int, *options: str) -> Journal:
        """Let it come over the program; fail with all that must not be."""
        servers = self._fake.bootstrap_servers
        arguments = [servers, reading, str(seed), str(count), str(self._path)]
        done = subprocess.run(
            [sys.executable, *options, "-m", "tests.storm.program", *arguments],
            env=os.environ | {"PYKCLIENT_ACCEL": self._core},
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-8_000:]
        journal = Journal.read(self._path)
        found = violations(journal, read_log(servers))
        assert not found, "\n".join([*found[:TOLD_MAX], done.stderr[-8_000:]])
        return journal


def read_log(servers: str) -> Log:
    log: Log = {}
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(PARTITIONS)
        ends = consumer.end_offsets(PARTITIONS)
        while any(consumer.position(place) < end for place, end in ends.items()):
            for record in consumer.poll(1.0, 100_000):
                assert isinstance(record.value, bytes)
                log.setdefault(record.partition, []).append(int(record.value))
    return log


@pytest.mark.promise(
    "whatever interrupts a call, nothing hangs, is lost, doubled, or committed too far"
)
@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@each_reading
def test_nothing_hangs_and_nothing_is_lost(
    core: str, reading: str, seed: int, fake: FakeKafka, tmp_path: Path
) -> None:
    journal = Storm(fake, tmp_path, core).run(reading, seed, COUNT)
    assert sum(journal.counts[kind] for kind in KINDS) >= COUNT
    assert all(journal.counts[kind] for kind in KINDS)


@pytest.mark.promise(
    "whatever interrupts a call, nothing hangs, is lost, doubled, or committed too far"
)
@each_reading
def test_nor_is_anybody_warned_in_vain(
    core: str, reading: str, fake: FakeKafka, tmp_path: Path
) -> None:
    """Goal: no warning, as of a socket that nobody closed, comes of an interruption."""
    options = ("-X", "dev", "-W", "error")
    Storm(fake, tmp_path, core).run(reading, 3, COUNT_WITH_WARNINGS, *options)
