"""Queries of the connector on a Spark cluster of two hosts, under fire.

No record may be lost, and none may be twice in a query's state. `make soak` runs six scenarios, two
of which start a driver twice; `make chaos` runs all, with more batches.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pykclient.testing.cluster.cluster import BOOTSTRAP_VARIABLE
from tests.chaos.spark.arena import (
    BROKER_SETTINGS,
    BROKERS,
    SparkArena,
)
from tests.chaos.spark.canary import SECRET, SECURITY, hide_secret, shown
from tests.chaos.spark.delivery import Delivery, Kind
from tests.chaos.spark.judge import (
    judged_committed_rows,
    judged_committed_state,
    judged_rows,
    judged_state,
)
from tests.chaos.spark.scenarios import (
    Scenario,
    driver_killed_before_the_commit_log,
    driver_killed_between_two_ends,
    end_live,
    python_worker_killed,
    python_worker_killed_in_read,
    readers,
    task_copied,
)
from tests.chaos.spark.table import Campaign, Row, markdown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.testing import KafkaCluster, SparkCluster
    from pykclient.testing.fixtures import KafkaClusterFactory

BATCH_COUNT = 10
"""Faults strike after the second batch, so that a test that is seconds late still hits one."""
ESTABLISHED = "01"
"""State of an open connection in /proc/net/tcp."""
ONCE = Kind(is_stateful=False, delivery=Delivery.PER_TASK)
IN_SOAK = (
    (python_worker_killed, ONCE),
    (python_worker_killed, Kind(is_stateful=False)),
    (python_worker_killed_in_read, ONCE),
    (task_copied, Kind(is_stateful=False)),
    # two minutes, with a driver that starts twice
    (driver_killed_before_the_commit_log, Kind(is_stateful=True)),
    (driver_killed_between_two_ends, ONCE),
)


@pytest.fixture(scope="module")
def chaos_cluster(kafka_cluster_factory: KafkaClusterFactory) -> Iterator[KafkaCluster]:
    """Start three brokers behind proxies."""
    if os.environ.get(BOOTSTRAP_VARIABLE):
        pytest.skip(f"needs brokers of its own; {BOOTSTRAP_VARIABLE} names others")
    with kafka_cluster_factory(
        brokers=3, config=BROKER_SETTINGS, proxied=True, security=SECURITY
    ) as cluster:
        yield cluster


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.promise("a Spark query under fire loses no record and has none twice in its state")
@pytest.mark.parametrize(
    ("scenario", "kind"),
    [
        pytest.param(Scenario(act), kind, id=f"{act.__name__}, {kind.delivery.value}")
        for act, kind in IN_SOAK
    ],
)
def test_a_query_under_fire_loses_nothing(
    chaos_cluster: KafkaCluster, spark_cluster: SparkCluster, scenario: Scenario, kind: Kind
) -> None:
    result = scenario.run(chaos_cluster, spark_cluster, kind, batch_count=BATCH_COUNT)
    assert result.violations == []


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_python_worker_without_work_ends_and_its_connections_with_it(
    chaos_cluster: KafkaCluster, spark_cluster: SparkCluster
) -> None:
    ports = {chaos_cluster.proxy(broker).address.port for broker in BROKERS}
    made = SparkArena(chaos_cluster, spark_cluster, kind=Kind(is_stateful=False), batch_count=2)
    with closing(made) as arena:
        arena.send(1)
        driver = arena.start(is_live=True)
        workers = readers(arena, driver)
        executors = driver.executors()
        open_before = {one for worker in workers for one in connections(worker.pid, ports)}
        assert open_before
        arena.await_ended(workers, driver)
        arena.await_true(lambda: not open_before & connections(None, ports), "connections stay")
        assert driver.executors() == executors
        arena.send(1)
        arena.await_read(driver)
        end_live(arena, driver)
        assert arena.result().violations == []


def connections(pid: int | None, ports: set[int]) -> set[tuple[str, str]]:
    """Return open connections to these ports as pairs of ends, of a process or of all (None)."""
    table = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    found = {
        socket: (local, remote)
        for _, local, remote, state, *_, socket in (row[:10] for row in table)
        if state == ESTABLISHED and int(remote.partition(":")[2], 16) in ports
    }
    if pid is None:
        return {*found.values()}
    opened = {os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir()}
    return {ends for socket, ends in found.items() if f"socket:[{socket}]" in opened}


def test_a_secret_is_found_wherever_it_is_planted(tmp_path: Path) -> None:
    """The places are files that a cluster writes; the drivers' file with it is skipped."""
    hide_secret(tmp_path)
    places = [
        *("query-1.log", "master.log", "events/app-1/events_1", "chaos-1/offsets/0"),
        *("work/app-1/0/stderr", "work/app-1/0/stdout", "recovery/app-1"),
    ]
    for place in places:
        file = tmp_path / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"\xffso many words")
    assert shown(tmp_path, SECRET) == []
    for place in places:
        file = tmp_path / place
        file.write_bytes(b"\xffso many %s words" % SECRET.encode())
        assert shown(tmp_path, SECRET) == [file]
        file.unlink()


def test_the_judge_sees_what_is_lost_out_of_order_or_strange() -> None:
    wanted = ["0", "1", "2"]
    good = {key: ["0", "1", "0", "1", "2"] for key in range(3)}
    assert judged_rows(wanted, good) == (9, 0, 0, 6, [])
    lost, swapped, strange = (
        judged_rows(wanted, {**good, 1: rows})
        for rows in (["0", "2"], ["0", "2", "1"], ["0", "1", "2", "3"])
    )
    assert lost.lost_count == 1
    assert lost.violations == ["1 records were lost"]
    assert "partition 1 is out of order" in swapped.violations[0]
    assert "partition 1 has values that were never read" in strange.violations[0]


def test_the_judge_sees_what_a_state_lacks_or_has_twice() -> None:
    wanted = ["0", "1"]
    good = {key: ['["0"]', '["0"]', '["1","0"]', '["0"]'] for key in range(3)}
    assert judged_state(wanted, good) == (6, 0, 0, 6, [])
    assert judged_state(wanted, {**good, 0: ['["0"]']}).lost_count == 1
    twice = judged_state(wanted, {**good, 0: ['["0","0"]', '["0","1"]']})
    assert twice.twice_count == 1
    assert "the state of partition 0 has a number twice" in twice.violations[0]
    assert judged_state(wanted, {}).lost_count == 6


def test_the_judge_of_what_is_committed_takes_no_number_twice() -> None:
    wanted = ["0", "1", "2"]
    good = dict.fromkeys(range(3), wanted)
    assert judged_committed_rows(wanted, good) == (9, 0, 0, 0, [])
    twice = judged_committed_rows(wanted, {**good, 1: ["0", "1", "1", "2"]})
    assert (twice.twice_count, twice.violations) == (1, ["partition 1 has numbers twice: ['1']"])
    swapped = judged_committed_rows(wanted, {**good, 2: ["1", "0", "2"]})
    assert "partition 2 is out of order" in swapped.violations[0]
    assert judged_committed_rows(wanted, {**good, 0: ["0", "1"]}).lost_count == 1


def test_the_judge_of_what_is_committed_takes_one_state_of_a_batch() -> None:
    wanted = ["0", "1"]
    good = {key: ['["0"]', '["0"]', '["1","0"]'] for key in range(3)}
    assert judged_committed_state(wanted, good, 3).violations == []
    twice = judged_committed_state(wanted, good, 2)
    assert twice.twice_count == 3
    assert "partition 0 has 3 states of 2 batches" in twice.violations[0]
    late = judged_committed_state(wanted, {**good, 1: ['["1","0"]', '["0"]']}, 3)
    assert late.violations == ["the states of partition 1 are out of order: [2, 1]"]
    assert judged_committed_state(wanted, {**good, 2: ['["0"]']}, 3).lost_count == 1


def test_scenarios_and_deliveries_are_chosen_by_name() -> None:
    assert Campaign.of({}) == Campaign()
    fewer = Campaign.of({"CHAOS_SPARK_SCENARIOS": "task_copied", "CHAOS_SPARK_BATCHES": "6"})
    assert [one.name for one in fewer.scenarios] == ["task_copied"]
    assert fewer.batch_count == 6
    with pytest.raises(ValueError, match=r"\['volcano'\] are none of \w+, \w+"):
        Campaign.of({"CHAOS_SPARK_SCENARIOS": "volcano"})
    assert Campaign.of({}).deliveries == (Delivery.AT_LEAST_ONCE, Delivery.PER_TASK)
    assert Campaign.of({"CHAOS_SPARK_DELIVERIES": "PER_TASK"}).deliveries == (Delivery.PER_TASK,)
    with pytest.raises(ValueError, match=r"\['NEVER'\] are none of AT_LEAST_ONCE, \w+"):
        Campaign.of({"CHAOS_SPARK_DELIVERIES": "NEVER"})


def test_the_table_has_a_row_for_each_query() -> None:
    rows = [
        Row("task_copied", "stateless", "exactly once", 60, 1_440, 0, 0, 20, violations=0),
        Row("two_drivers", "stateful", "at least once", 30),
    ]
    lines = markdown(rows).splitlines()
    assert lines[2].endswith("| stateless | exactly once | 1,440 | 0 | 0 | 20 | 60 |")
    assert lines[3].endswith("| stateful | at least once | ? | ? | ? | ? | 30 |")
    assert lines[-1] == "2 queries, 2 min; violations: 1"
