"""The benchmarks run and count right; what they measure is no test's business."""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING

import pytest

import import_time
import produce_consume
from machine import describe
from produce_consume import Arena, Run
from pykclient.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from pykclient.testing import KafkaCluster

RECORD_COUNT = 2_000


@pytest.fixture
def arena(kafka_cluster: KafkaCluster) -> Arena:
    return Arena(kafka_cluster.bootstrap_servers, RECORD_COUNT)


@pytest.mark.kafka
@pytest.mark.parametrize("client", produce_consume.CLIENTS)
def test_a_client_produces_and_consumes_every_record(arena: Arena, client: str) -> None:
    package = produce_consume.CLIENTS[client].package
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed; it is in the extra bench")
    runs = list(arena.runs([client], 1))
    assert [(run.client, run.action) for run in runs] == [(client, "produce"), (client, "consume")]
    assert all(run.records_per_second > 0 and run.cpu_seconds_per_million > 0 for run in runs)


@pytest.mark.kafka
def test_records_that_did_not_arrive_end_the_benchmark(arena: Arena) -> None:
    topic = arena.new_topic("empty")
    with pytest.raises(RuntimeError, match=f"0 of {RECORD_COUNT} records are in {topic}"):
        arena.check_arrival(topic)


def test_the_table_shows_medians_and_ratios() -> None:
    runs = [
        Run(client, action, rate, cpu)
        for action in produce_consume.ACTIONS
        for client, rates in (("pykclient", (9, 300, 200)), ("kafka_python", (100, 1, 1_000)))
        for rate, cpu in zip(rates, (1.0, 5.0, 2.0), strict=True)
    ]
    rows = produce_consume.comparison(runs, ["pykclient", "kafka_python"])
    assert rows[0] == ("produce", "pykclient", "200", "2.00x", "2.00", "1.00x")
    assert rows[3] == ("consume", "kafka_python", "100", "1.00x", "2.00", "1.00x")


def test_without_the_baseline_there_is_no_ratio() -> None:
    runs = [Run("pykclient", action, 200, 1.0) for action in produce_consume.ACTIONS]
    rows = produce_consume.comparison(runs, ["pykclient"])
    assert rows[0] == ("produce", "pykclient", "200", "", "1.00", "")


def test_the_machine_is_told_with_the_versions() -> None:
    told = describe(["pykclient", "rich"])
    assert told["pykclient"] == __version__
    assert {"cores", "memory", "system", "Python", "rich"} <= told.keys()


def test_an_import_is_timed() -> None:
    assert import_time.import_ms("pass") > 0


def test_runs_are_written_with_their_machine(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    produce_consume.write_json(path, {"cores": "2"}, [Run("pykclient", "produce", 1.0, 2.0)])
    assert json.loads(path.read_text()) == {
        "machine": {"cores": "2"},
        "runs": [
            {
                "client": "pykclient",
                "action": "produce",
                "records_per_second": 1.0,
                "cpu_seconds_per_million": 2.0,
            }
        ],
    }
