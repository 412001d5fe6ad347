"""Everything that is measured, once, with tiny sizes, at a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import growth
import suite
from contestants.job import Job
from measuring.arena import Arena, ContestantFailedError
from measuring.benchmark import Benchmark, parser_of, run_benchmarks
from measuring.client import CLIENTS, CONFLUENT, PYKCLIENT, RAW_SOCKET
from measuring.measurement import Measurement, grouped, read_run
from measuring.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from measuring.benchmark import Settings
    from measuring.client import Client
    from pykclient.testing import KafkaCluster


@pytest.fixture
def arena(kafka_cluster: KafkaCluster) -> Arena:
    return Arena(kafka_cluster.bootstrap_servers)


@pytest.mark.promise("one command measures every target beside every rival, with the verdict")
@pytest.mark.soak
@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_suite_measures_what_every_target_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "PARTITION_COUNTS", (1, 3))
    assert suite.main(["--records", "1000", "--runs", "1", "--output", str(tmp_path)]) == 0
    assert (tmp_path / "clients.png").is_file()
    groups = grouped(read_run(tmp_path / "results.json").measurements)
    if reasons := {reason for client in CLIENTS if (reason := client.missing("latency"))}:
        pytest.skip(f"not every rival can be measured here: {'; '.join(sorted(reasons))}")
    unjudged = [target.what for target in TARGETS if target.judge(groups) is None]
    assert unjudged == []


@pytest.mark.kafka
@pytest.mark.parametrize("client", [PYKCLIENT, RAW_SOCKET], ids=lambda client: client.name)
def test_the_broker_has_every_record_that_was_sent(arena: Arena, client: Client) -> None:
    figures = arena.produce(client, "produce", 25_001)
    assert all(value > 0 for value in figures.values())


@pytest.mark.kafka
def test_transactions_are_measured_over_more_than_one(arena: Arena) -> None:
    figures = arena.transactions(PYKCLIENT, 1_500)
    assert figures["records_per_second"] > 0


@pytest.mark.kafka
def test_records_that_did_not_arrive_end_the_benchmark(arena: Arena) -> None:
    with (
        arena.filled_topic(10, value_bytes=1) as job,
        pytest.raises(ContestantFailedError) as raised,
    ):
        arena.append(PYKCLIENT, "consume", job)  # a job that sends nothing
    assert f"pykclient, consume: 0 of 10 records arrived in {job.topic}" in str(raised.value)


@pytest.mark.kafka
@pytest.mark.parametrize("client", [PYKCLIENT, CONFLUENT], ids=lambda client: client.name)
def test_a_client_that_fails_ends_the_benchmark_with_its_own_output(
    arena: Arena, client: Client
) -> None:
    job = Job("localhost:1", "t", 1, 10, value_bytes=-1)
    with pytest.raises(ContestantFailedError, match=rf"{client.name}, produce:(.|\n)*ValueError"):
        arena.run(client, "produce", job)


@pytest.mark.kafka
def test_what_was_measured_before_a_failure_is_kept(tmp_path: Path) -> None:
    def measure(_: Arena, __: Settings) -> Iterator[Measurement]:
        yield Measurement("first", "case", "client", {"import_ms": 1.0})

    def fail(_: Arena, __: Settings) -> Iterator[Measurement]:
        yield Measurement("second", "case", "client", {"import_ms": 2.0})
        raise ContestantFailedError("on purpose")

    path = tmp_path / "run.json"
    benchmarks = [Benchmark("first", "First", measure), Benchmark("second", "Second", fail)]
    with pytest.raises(ContestantFailedError, match="on purpose"):
        run_benchmarks(benchmarks, parser_of(None).parse_args(["--json", str(path)]))
    assert [measurement.benchmark for measurement in read_run(path).measurements] == ["first"]
