"""Clients that are interrupted at random neither hang nor lose anything.

Method: a program sends, reads and commits in its own process, where signals, destructors and log
records interrupt it (`program`). The brokers and the judge of its journal are here.
``PYKCLIENT_STORM_COUNT`` sets the number of interruptions in each case.
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
from tests.storm.judge import Journal, Log, violations
from tests.storm.program import HEARTBEAT_INTERVAL_MS, PARTITIONS, SESSION_TIMEOUT_MS, TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
READINGS = ("classic", "consumer", "assign")
COUNT, SOAK_COUNT = (int(os.environ.get("PYKCLIENT_STORM_COUNT", n)) for n in ("400", "1700"))
COUNT_WITH_WARNINGS = 300
TIMEOUT_S = 240.0
SHOWN_MAX = 30
GROUP_SETTINGS = GroupSettings(
    group_min_session_timeout_ms=500,
    group_consumer_session_timeout_ms=SESSION_TIMEOUT_MS,
    group_consumer_heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
    group_consumer_assignment_interval_ms=0,
)
"""A member whose first request was interrupted stays in the group until its session expires."""

CASES = [
    case
    for core in ("compiled", "pure")
    for reading in READINGS
    for case in (
        pytest.param(core, reading, 1, COUNT),
        *(pytest.param(core, reading, seed, SOAK_COUNT, marks=pytest.mark.soak) for seed in (2, 3)),
    )
]
"""Each core with each group protocol. In soak these are 20,400 interruptions."""
CASES_WITH_WARNINGS = [("compiled", "classic"), ("pure", "consumer"), ("compiled", "assign")]


@pytest.fixture
def core(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name == "compiled" and implementation != name:
        pytest.skip("the core is not compiled here")
    return name


@pytest.fixture
def fake() -> Iterator[FakeKafka]:
    """Start three brokers whose groups do not wait for long, and the topic."""
    with FakeKafka(3, group_settings=GROUP_SETTINGS) as fake:
        with fake.control() as cluster:
            cluster.create_topic(TOPIC, len(PARTITIONS))
        yield fake


class Storm:
    """Runs the program, and keeps its journals."""

    def __init__(self, fake: FakeKafka, folder: Path, core: str) -> None:
        self._fake = fake
        self._path = folder / "journal.json"
        self._core = core

    def run(self, reading: str, seed: int, count: int, *options: str) -> Journal:
        """Run the program; fail with all violations."""
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
        assert not found, "\n".join([*found[:SHOWN_MAX], done.stderr[-8_000:]])
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
    "whatever interrupts a call, nothing hangs, is lost or doubled, or is committed unprocessed"
)
@pytest.mark.slow
@pytest.mark.parametrize(("core", "reading", "seed", "count"), CASES, indirect=["core"])
def test_nothing_hangs_and_nothing_is_lost(
    core: str, reading: str, seed: int, count: int, fake: FakeKafka, tmp_path: Path
) -> None:
    journal = Storm(fake, tmp_path, core).run(reading, seed, count)
    assert sum(journal.counts[kind] for kind in KINDS) >= count
    assert all(journal.counts[kind] for kind in KINDS)


@pytest.mark.promise(
    "whatever interrupts a call, nothing hangs, is lost or doubled, or is committed unprocessed"
)
@pytest.mark.parametrize(("core", "reading"), CASES_WITH_WARNINGS, indirect=["core"])
def test_no_warning_is_without_a_cause(
    core: str, reading: str, fake: FakeKafka, tmp_path: Path
) -> None:
    """Goal: no interruption causes a warning, such as of an unclosed socket."""
    options = ("-X", "dev", "-W", "error")
    Storm(fake, tmp_path, core).run(reading, 3, COUNT_WITH_WARNINGS, *options)
