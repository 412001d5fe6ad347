"""Faults of a query on the Spark cluster.

Each scenario starts the query, verifies that its fault took effect, and returns when the query has
read everything. The sink is checked afterwards.

Owner: none; the arena has the state.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pykclient import Admin
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing import Direction
from pykclient.testing.cluster.processes import BrokerState
from tests.chaos.spark.arena import BATCH_COUNT, OFFICIAL, TRANSACTIONS, SparkArena
from tests.chaos.spark.delivery import EXACT, Delivery, Kind
from tests.spark.official_connector import official_classpath

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.testing import KafkaCluster, SparkApplication, SparkCluster
    from pykclient.testing.spark_cluster.application import Executor
    from pykclient.testing.spark_cluster.process_table import FoundProcess
    from tests.chaos.spark.judge import Result

SIGKILLED: Final = (-9, 137)
EARLY: Final = 1
"""Batch after which faults strike: both executors have run tasks by then."""
GROUP: Final = "chaos-progress"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fault, and the kinds of queries to run it on."""

    act: Callable[[SparkArena], None]
    is_stateless: bool = True
    is_stateful: bool = True
    deliveries: tuple[Delivery, ...] = tuple(Delivery)

    @property
    def name(self) -> str:
        return self.act.__name__

    @property
    def title(self) -> str:
        """Description of the fault, for the table."""
        first, *_ = (self.act.__doc__ or self.name).splitlines()
        return f"{first[0].lower()}{first[1:].removesuffix('.')}"

    @property
    def kinds(self) -> list[Kind]:
        """Kinds of queries to run it on."""
        return [
            Kind(is_stateful, delivery)
            for delivery in self.deliveries
            for is_stateful in (False, True)
            if (self.is_stateful if is_stateful else self.is_stateless)
        ]

    def run(
        self,
        kafka: KafkaCluster,
        spark: SparkCluster,
        kind: Kind,
        *,
        batch_count: int = BATCH_COUNT,
    ) -> Result:
        """Run it on a new query, and return the checked result."""
        made = SparkArena(kafka, spark, kind=kind, batch_count=batch_count)
        with closing(made) as arena:
            self.act(arena)
            arena.heal()
            left_open = arena.left_open() if kind.delivery.is_exact else []
            result = arena.result()
            return result._replace(
                violations=[*result.violations, *left_open, *arena.secrets_shown()]
            )


def begun(arena: SparkArena) -> SparkApplication:
    """Return the driver of a query that has ended some batches and has more input."""
    arena.send(arena.batch_count)
    driver = arena.start()
    arena.await_batch(driver, EARLY)
    return driver


def go_on(arena: SparkArena, driver: SparkApplication) -> None:
    """Heal the network, and wait until the held batch is written."""
    held = arena.reported_batch(driver)
    arena.heal()
    arena.await_batch(driver, held + 1)


def reading(arena: SparkArena) -> tuple[SparkApplication, Executor]:
    """Return the driver of a live query, and an executor whose tasks read and have no record yet.

    No task runs when responses begin to be swallowed, so none has received records before.
    """
    arena.send(arena.batch_count // 2)
    driver = arena.start(is_live=True)
    arena.await_read(driver)
    before = arena.sink_ends()
    arena.swallow(ApiKey.FETCH)
    arena.send(arena.batch_count // 2)
    executor = arena.await_held()[0]
    assert arena.sink_ends() == before
    return driver, executor


def end_live(arena: SparkArena, driver: SparkApplication) -> None:
    """Heal the network, and let a live query read everything and end."""
    arena.heal()
    arena.stop_file.touch()
    arena.await_end(driver)


def kill_python_workers(
    arena: SparkArena, driver: SparkApplication, executors: list[Executor]
) -> None:
    """Kill the Python workers of executors with tasks, and wait until Spark reports it."""
    workers = [worker for each in executors for worker in each.python_workers()]
    assert workers, "there are no Python workers"
    before = len(driver.log_text())
    for worker in workers:
        worker.kill()
    arena.await_log(driver, r"Lost task .*Python worker exited unexpectedly", behind=before)


def kill_executor(arena: SparkArena, driver: SparkApplication, executor: Executor) -> None:
    """Kill an executor, and wait until Spark reports its loss."""
    executor.kill()
    arena.await_log(driver, rf"Lost executor {executor.executor_id} on {executor.host}")


def python_worker_killed(arena: SparkArena) -> None:
    """Kill an executor's Python workers while they write."""
    driver = begun(arena)
    executors = arena.hold_writes()
    if not arena.is_stateful:
        # Tasks of three partitions run on both executors.
        executors = executors[:1]
    kill_python_workers(arena, driver, executors)
    arena.heal()
    arena.await_end(driver)


def python_worker_killed_in_read(arena: SparkArena) -> None:
    """Kill an executor's Python workers while they read."""
    driver, executor = reading(arena)
    kill_python_workers(arena, driver, [executor])
    end_live(arena, driver)


def executor_killed(arena: SparkArena) -> None:
    """Kill an executor while its tasks write."""
    driver = begun(arena)
    kill_executor(arena, driver, arena.hold_writes()[0])
    arena.heal()
    arena.await_end(driver)


def executor_killed_in_read(arena: SparkArena) -> None:
    """Kill an executor while its tasks read."""
    driver, executor = reading(arena)
    kill_executor(arena, driver, executor)
    end_live(arena, driver)


def map_output_lost(arena: SparkArena) -> None:
    """Kill the executors that hold map output: Spark runs the previous stage again."""
    driver = begun(arena)
    arena.hold_writes()
    # Both have run some of the three map tasks; the writing tasks have read their output.
    for executor in driver.executors():
        kill_executor(arena, driver, executor)
    arena.await_log(driver, r"Resubmitting ShuffleMapStage|Resubmitted ShuffleMapTask")
    arena.heal()
    arena.await_end(driver)


def executor_paused(arena: SparkArena) -> None:
    """Pause an executor until it has timed out and is replaced, and resume it: it still writes."""
    arena.settings = {
        "spark.network.timeout": "10s",
        "spark.network.timeoutInterval": "2s",
        "spark.executor.heartbeatInterval": "1s",
        # One task then writes all of the state, in that executor.
        "spark.sql.shuffle.partitions": "1",
    }
    # Requests do not pass, so records written again at the end are the zombie's.
    driver = begun(arena)
    executor = arena.hold_writes(Direction.REQUEST)[0]
    # Spark's worker would end the paused executor.
    server = arena.server_of(executor)
    server.pause()
    executor.pause()
    go_on(arena, driver)
    arena.await_log(driver, rf"Removing executor {executor.executor_id} with no recent heartbeats")
    assert not arena.again_count()
    # Its JVM was ordered to stop, and its Python workers end with it.
    zombies = executor.python_workers()
    if arena.delivery.is_exact:
        # Brokers may reject its requests, so check that it sends, and that no other process does.
        with arena.paused(but=executor):
            arena.count(ApiKey.PRODUCE)
            resume(zombies)
            arena.await_true(lambda: arena.counted() > 0, "it stopped writing", driver)
        arena.heal()
    else:
        resume(zombies)
        arena.await_true(lambda: arena.again_count() > 0, "it stopped writing", driver)
    executor.resume()
    server.resume()
    arena.await_end(driver)
    if arena.delivery.is_exact:
        arena.settle()


def task_copied(arena: SparkArena) -> None:
    """Delay a task by a Produce without acknowledgement; Spark runs a copy on the other host."""
    arena.settings = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
    }
    driver = begun(arena)
    # Brokers have written the records of this task; the copy writes them again, and the query ends
    # without a heal.
    arena.swallow(ApiKey.PRODUCE, at_most=1)
    arena.await_swallowed(1)
    arena.await_end(driver)
    arena.await_log(driver, r"Marking task .* as speculatable")
    assert arena.again_count(), "only one attempt wrote"


def driver_killed_in_write(arena: SparkArena) -> None:
    """Kill the driver while tasks write, and start it again."""
    kill_in_write(arena, begun(arena))
    arena.await_end(arena.start())


def moved_to_the_official_source(arena: SparkArena) -> None:
    """Kill the driver while tasks write, continue with Spark's own source, and move back."""
    jars = official_classpath()
    arena.settings = {"spark.driver.extraClassPath": jars, "spark.executor.extraClassPath": jars}
    kill_in_write(arena, begun(arena))
    unfinished = arena.logged_batches("offsets")[-1]
    official = arena.start(source=OFFICIAL)
    arena.await_batch(official, unfinished)
    kill_in_write(arena, official)
    arena.await_end(arena.start())


def driver_killed_before_the_commit_log(arena: SparkArena) -> None:
    """Kill the driver when a batch is written but not yet in Spark's commit log."""
    driver = begun(arena)
    if arena.delivery.is_exact:
        arena.hold_writes()
        # The sink has finished the batch, but its driver does not receive the last response.
        arena.hold_ends(Direction.RESPONSE, tasks=arena.held_count)
        planned = arena.planned_count()
        arena.await_true(lambda: arena.committed_count() == planned, "the batch is not committed")
        kill(driver)
        arena.heal()
    else:
        kill_before_the_commit(arena, driver)
    assert_unfinished(arena)
    before = arena.again_count()
    arena.await_end(arena.start())
    # With exactly-once delivery, a batch that was written is not written again.
    assert (arena.again_count() > before) is not arena.delivery.is_exact


def driver_killed_before_the_decision(arena: SparkArena) -> None:
    """Kill the driver when all tasks of a batch have ended, before the sink's decision."""
    driver = begun(arena)
    committed = arena.committed_count()
    kill_before_the_commit(arena, driver)
    assert_unfinished(arena)
    assert arena.committed_count() == committed
    assert arena.open_transactions()
    arena.await_end(arena.start())
    assert arena.again_count(), "the batch was not written again"


def driver_killed_after_the_decision(arena: SparkArena) -> None:
    """Kill the driver between the sink's decision and the first commit of a task's rows."""
    kill_at_ends(arena, ended_tasks=0)


def driver_killed_between_two_ends(arena: SparkArena) -> None:
    """Kill the driver when the rows of one task are committed, and others are not."""
    kill_at_ends(arena, ended_tasks=1)


def transaction_coordinator_killed(arena: SparkArena) -> None:
    """Kill the coordinator of all transactions when the first task's rows are committed."""
    driver = begun(arena)
    arena.hold_writes()
    arena.hold_ends(Direction.RESPONSE, tasks=0)
    coordinator = arena.kafka.leader(TRANSACTIONS, 0)
    arena.kill_broker(coordinator)
    go_on(arena, driver)
    arena.start_broker(coordinator)
    arena.await_end(driver)


def kill_at_ends(arena: SparkArena, *, ended_tasks: int) -> None:
    """Kill the driver when a batch is decided and the rows of `ended_tasks` tasks are committed."""
    driver = begun(arena)
    arena.hold_writes()
    arena.hold_ends(Direction.REQUEST, tasks=ended_tasks)
    assert arena.open_transactions()
    kill(driver)
    arena.heal()
    assert_unfinished(arena)
    before = arena.again_count()
    arena.await_end(arena.start())
    assert arena.again_count() == before, "a batch that was decided was written again"


def driver_killed_in_the_first_batch(arena: SparkArena) -> None:
    """Kill the driver of a query that starts at latest, in its first batch with records."""
    arena.read = {"startingOffsets": "latest"}
    driver = arena.start(is_live=True)
    arena.await_true(lambda: arena.logged_batches("offsets") == [0], "no batch 0", driver)
    arena.swallow(ApiKey.FETCH)
    arena.send(arena.batch_count // 2)
    arena.await_swallowed(1)
    kill(driver)
    arena.heal()
    # The first batch has no records.
    assert arena.logged_batches("commits") == [0]
    assert arena.logged_batches("offsets") == [0, 1]
    arena.send(arena.batch_count // 2)
    arena.await_end(arena.start())


def readers(arena: SparkArena, driver: SparkApplication) -> list[FoundProcess]:
    """Wait until a live query has read everything; return the Python workers of its executors.

    They are collected while waiting, since idle executors end soon.
    """
    workers: set[FoundProcess] = set()

    def has_read_all() -> bool:
        workers.update(worker for each in driver.executors() for worker in each.python_workers())
        return arena.has_read_all()

    arena.await_true(has_read_all, "not all is read", driver)
    assert workers, "there are no Python workers"
    return list(workers)


def executors_come_and_go(arena: SparkArena) -> None:
    """End all executors of an idle query by dynamic allocation, and start new ones for records."""
    arena.settings = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.timeout": "2s",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.executorIdleTimeout": "2s",
        "spark.scheduler.minRegisteredResourcesRatio": "0",
    }
    driver = arena.start(is_live=True)
    for _ in range(2):
        arena.send(arena.batch_count // 2)
        workers = readers(arena, driver)
        arena.await_true(lambda: not driver.executors(), "the executors stay", driver)
        arena.await_ended(workers, driver)
    arena.stop_file.touch()
    arena.await_end(driver)


def master_killed(arena: SparkArena) -> None:
    """Kill the master while tasks write, and start it again."""
    driver = begun(arena)
    arena.hold_writes()
    arena.spark.master.kill()
    assert arena.spark.master.state is BrokerState.STOPPED
    arena.await_log(driver, "waiting for master to reconnect")
    go_on(arena, driver)
    arena.spark.start_master()
    arena.await_end(driver)


def leader_killed(arena: SparkArena) -> None:
    """Kill the broker that leads a partition of source and sink while tasks write."""
    driver = begun(arena)
    arena.hold_writes()
    leader = arena.kafka.leader(arena.sink, 0)
    arena.kill_broker(leader)
    go_on(arena, driver)
    arena.start_broker(leader)
    arena.await_end(driver)


def group_coordinator_killed(arena: SparkArena) -> None:
    """Kill the coordinator of the group that shows the progress, during a commit."""
    arena.read = {"commitGroup": GROUP}
    driver = begun(arena)
    with Admin(arena.settings_of_clients) as admin:
        coordinator = admin.describe_groups([GROUP])[GROUP].coordinator.id
    arena.swallow(ApiKey.OFFSET_COMMIT)
    arena.await_swallowed(1)
    arena.kill_broker(coordinator)
    go_on(arena, driver)
    arena.start_broker(coordinator)
    arena.await_end(driver)


def two_drivers(arena: SparkArena) -> None:
    """Start a second driver on the checkpoint of a running one."""
    arena.settings = {"spark.cores.max": "2"}
    first = begun(arena)
    arena.swallow(ApiKey.PRODUCE)
    arena.await_swallowed(1)
    second = arena.start()
    arena.await_log(second, "(?m)^STARTED")
    assert first.is_alive
    arena.heal()
    # Spark ends one of them when it finds the other's files.
    statuses = [arena.await_death(driver) for driver in (first, second)]
    assert any(statuses), "Spark let both end"
    arena.await_end(arena.start())


def kill_in_write(arena: SparkArena, driver: SparkApplication) -> None:
    """Kill the driver in the middle of a batch, before Spark's commit log has the batch."""
    arena.hold_writes()
    kill(driver)
    arena.heal()
    assert_unfinished(arena)


def kill_before_the_commit(arena: SparkArena, driver: SparkApplication) -> None:
    """Kill the driver when all tasks of a batch have ended, before it learns that."""
    executors = arena.hold_writes()
    driver.pause()
    arena.heal()
    arena.await_held_to_write(executors)
    planned = arena.planned_count()
    arena.await_true(lambda: arena.written_count() >= planned, "the batch is not written")
    kill(driver)


def resume(processes: list[FoundProcess]) -> None:
    for process in processes:
        process.resume()


def kill(driver: SparkApplication) -> None:
    driver.kill()
    assert not driver.is_alive
    assert driver.wait(0.0) in SIGKILLED


def assert_unfinished(arena: SparkArena) -> None:
    """Assert that the batch begun last is not in Spark's commit log."""
    assert arena.logged_batches("offsets")[-1] not in arena.logged_batches("commits")


SCENARIOS: Final = (
    Scenario(python_worker_killed),
    Scenario(python_worker_killed_in_read),
    Scenario(executor_killed),
    Scenario(executor_killed_in_read),
    Scenario(map_output_lost, is_stateless=False),
    Scenario(executor_paused),
    Scenario(task_copied, is_stateful=False),
    Scenario(driver_killed_in_write),
    Scenario(driver_killed_before_the_decision, deliveries=EXACT),
    Scenario(driver_killed_after_the_decision, deliveries=EXACT),
    Scenario(driver_killed_between_two_ends, is_stateful=False, deliveries=EXACT),
    Scenario(driver_killed_before_the_commit_log),
    Scenario(driver_killed_in_the_first_batch),
    Scenario(moved_to_the_official_source),
    Scenario(executors_come_and_go),
    Scenario(master_killed),
    Scenario(leader_killed),
    Scenario(group_coordinator_killed),
    Scenario(transaction_coordinator_killed, deliveries=EXACT),
    Scenario(two_drivers),
)
