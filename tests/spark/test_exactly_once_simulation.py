"""Random faults against the protocol of the exactly-once sink, beside a model of what Spark may do.

A seed chooses: attempts of tasks fail, are repeated, copied while they go on, started again after
they have succeeded, and cut off, so that they write on as zombies; drivers die at any step, are
replaced while they live, forget their turn, and repeat a batch with as many tasks or others; a
commit raises with a part of it done, and abort follows; transactions run out of time. After each
step no row may be visible twice, or before the batch that precedes it; a batch that the query has
noted must be visible whole, in order within each task. In the end no transaction is left open. A
failing seed is the bug report.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

import pytest

from pykclient.errors import KafkaError
from spark_connector.exactly_once.names import ATOMIC_BATCH, ATOMIC_TASK, SlotName, slot_id
from spark_connector.exactly_once.protocol import (
    AbortOpen,
    Action,
    End,
    Fence,
    FindClosed,
    ListOpen,
    MissingRowsError,
    Read,
    Report,
    Result,
    SinkProtocol,
    SinkTakenOverError,
    Step,
    Steps,
    View,
    Write,
)
from spark_connector.exactly_once.record import SinkRecord, Stage, Written
from tests.soak import seeds

SINK: Final = "orders"
QUERY: Final = "query"
BATCH_COUNT: Final = 10
ROW_COUNT: Final = 6
FAULTY_STEPS: Final = 1_200
STEPS_MAX: Final = 6_000

Row = tuple[int, int]
Doing = Callable[[], None]
Life = Generator["Step | Doing | None", Result, None]


@dataclass
class Transaction:
    """A transactional id at its coordinator, as KIP-890 has it."""

    epoch: int = 0
    rows: list[Row] | None = None
    """Those of the transaction that is open; None while none is."""
    last: tuple[int, bool] | None = None

    def initialize(self) -> int:
        self.epoch += 1
        self.rows = None
        self.last = None
        return self.epoch


class Defects:
    """What is planted; nothing here."""

    ids_by_task = False
    ends_before_decision = False
    ignores_decision = False
    abort_ignores_decision = False
    writes_unfenced = False
    aborts_later_turns = False


class World:
    """The brokers, the query's checkpoint, and everything that runs."""

    def __init__(self, seed: int, atomicity: str, defects: type[Defects]) -> None:
        self.random = Random(seed)
        self.atomicity = atomicity
        self.defects = defects
        self.transactions: dict[str, Transaction] = {}
        self.driver_epoch = 0
        self.record: SinkRecord | None = None
        self.visible: list[Row] = []
        self.checkpoint = 0
        """The batch that comes next."""
        self.task_counts: dict[int, int] = {}
        self.drivers: list[Driver] = []
        self.attempts: list[Attempt] = []
        self.workers = [Worker("w0"), Worker("w1")]
        self.is_faulty = True
        self.batch_count = BATCH_COUNT

    def chance(self, probability: float) -> bool:
        return self.is_faulty and self.random.random() < probability

    # The brokers.

    def produce(self, name: str, epoch: int, row: Row) -> None:
        found = self.transactions[name]
        if found.epoch != epoch:
            raise KafkaError("fenced")
        found.rows = [*(found.rows or []), row]

    def end(self, written: Written, *, is_commit: bool) -> bool:
        """End a transaction; whether it is ended so."""
        found = self.transactions[written.transactional_id]
        epoch = written.producer_epoch
        if found.last == (epoch, is_commit) and found.epoch == epoch + 1:
            return True
        if found.epoch != epoch or found.rows is None:
            return False
        if is_commit:
            self.show(found.rows)
        found.rows, found.last, found.epoch = None, (epoch, is_commit), epoch + 1
        return True

    def show(self, rows: list[Row]) -> None:
        assert not set(rows) & set(self.visible), f"twice: {set(rows) & set(self.visible)}"
        assert rows == sorted(rows), f"out of order: {rows}"
        assert not self.visible or rows[0][0] >= self.visible[-1][0], f"too late: {rows}"
        self.visible += rows

    def run(self, step: Step, driver: Driver) -> Result:
        if isinstance(step, Fence):
            self.driver_epoch += 1
            driver.epoch = self.driver_epoch
        elif isinstance(step, Read):
            record = self.record
            if record is not None and self.defects.ignores_decision:
                return replace(record, stage=Stage.EMPTY, batch=-1)
            is_hidden = self.defects.abort_ignores_decision and driver.is_aborting
            return None if is_hidden else record
        elif isinstance(step, Write):
            if driver.epoch != self.driver_epoch and not self.defects.writes_unfenced:
                raise SinkTakenOverError("fenced")
            self.record = step.record
        elif isinstance(step, End):
            return self._end_all(step)
        elif isinstance(step, FindClosed):
            return frozenset(
                each.transactional_id for each in step.written if not self._is_open(each)
            )
        elif isinstance(step, ListOpen):
            return frozenset(
                name for name, each in self.transactions.items() if each.rows is not None
            )
        else:
            assert isinstance(step, AbortOpen)
            for name in step.transactional_ids:
                self.transactions[name].initialize()
        return None

    def _end_all(self, step: End) -> Result:
        refused = set()
        for each in step.written:
            if self.chance(0.02):
                raise KafkaError("no response in time")
            if not self.end(each, is_commit=step.is_commit):
                refused.add(each.transactional_id)
        return frozenset(refused)

    def _is_open(self, written: Written) -> bool:
        found = self.transactions[written.transactional_id]
        return found.rows is not None and found.epoch == written.producer_epoch

    # What runs.

    def protocol(self) -> SinkProtocol:
        if self.defects.ends_before_decision:
            return _EndsFirst(SINK, self.atomicity)
        if self.defects.aborts_later_turns:
            return _AbortsAll(SINK, self.atomicity)
        return SinkProtocol(SINK, self.atomicity)

    def step(self) -> None:
        if not self.drivers or (len(self.drivers) < 2 and self.chance(0.01)):
            self.drivers.append(Driver(self))
        if self.chance(0.008):
            self.kill(self.random.choice(self.drivers))
            return
        if self.chance(0.006):
            self._run_out_of_time()
        actor = self.random.choice([*self.drivers, *self.attempts])
        actor.advance()
        if actor.is_over:
            (self.drivers if isinstance(actor, Driver) else self.attempts).remove(actor)  # type: ignore[arg-type]

    def kill(self, driver: Driver) -> None:
        self.drivers.remove(driver)
        self.attempts = [
            each for each in self.attempts if each.driver is not driver or self.chance(0.5)
        ]

    def _run_out_of_time(self) -> None:
        opened = [each for each in self.transactions.values() if each.rows is not None]
        if opened:
            self.random.choice(opened).initialize()

    def finish(self) -> None:
        """Run all batches to their end, and one more after what was left over has stopped."""
        for number in range(STEPS_MAX):
            if number == FAULTY_STEPS:
                self.is_faulty = False
            if self.checkpoint >= self.batch_count and not self.is_faulty:
                if self.batch_count > BATCH_COUNT:
                    break
                for driver in list(self.drivers):
                    self.kill(driver)
                self.attempts.clear()
                self.batch_count += 1
            self.step()
        assert self.checkpoint == BATCH_COUNT + 1, f"stuck at batch {self.checkpoint}"
        expected = [(batch, row) for batch in range(self.batch_count) for row in range(ROW_COUNT)]
        assert sorted(self.visible) == expected
        driver_left = [name for name, each in self.transactions.items() if each.rows is not None]
        assert driver_left == [], "left open"


class Actor:
    """A life that goes on by one step when it is chosen."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_over = False
        self._life: Life | None = None
        self._pending: Step | Doing | None = None

    def live(self) -> Life:
        raise NotImplementedError

    def run(self, step: Step) -> Result:
        raise NotImplementedError

    def advance(self) -> None:
        if self._life is None:
            self._life = self.live()
            self._go(lambda life: next(life))
            return
        try:
            pending, result = self._pending, None
            if callable(pending):
                pending()
            elif pending is not None:
                result = self.run(pending)
        except KafkaError as error:
            failure = error
            self._go(lambda life: life.throw(failure))
        else:
            self._go(lambda life: life.send(result))

    def _go(self, on: Callable[[Life], Step | Doing | None]) -> None:
        assert self._life is not None
        try:
            self._pending = on(self._life)
        except StopIteration:
            self.is_over = True


@dataclass
class Worker:
    """A Python worker, with the slots that it keeps: the turn and batch they were used for last."""

    name: str
    kept: dict[SlotName, int] = field(default_factory=dict)
    count: int = 0

    def take(self, turn: int, batch: int) -> SlotName:
        for name, last in self.kept.items():
            if name.turn == turn and last < batch:
                del self.kept[name]
                return name
        self.count += 1
        return SlotName(turn, self.name, self.count)


class Driver(Actor):
    """A driver of Spark that runs the query."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.epoch = -1
        self.is_aborting = False
        self.batch = -1
        self.reports: dict[int, Report] = {}
        self.failure: KafkaError | None = None

    def run(self, step: Step) -> Result:
        return self.world.run(step, self)

    def live(self) -> Life:
        turn: int | None = None
        while self.world.checkpoint < self.world.batch_count:
            batch = self.batch = self.world.checkpoint
            protocol = self.world.protocol()
            try:
                record = yield from protocol.look(turn)
                turn = record.turn
                yield from self._run_tasks(protocol, protocol.view(record), batch)
                reports = [self.reports[task] for task in sorted(self.reports)]
                try:
                    yield from protocol.commit(batch, reports)
                except KafkaError:
                    self.is_aborting = True
                    yield from protocol.abort(batch, reports)
                    raise
            except KafkaError as error:
                if isinstance(error, MissingRowsError):
                    self._check_missing(batch)
                return
            visible = [row for row in self.world.visible if row[0] == batch]
            assert len(visible) == ROW_COUNT, f"batch {batch} has only {visible}"
            yield None
            self.world.checkpoint = max(self.world.checkpoint, batch + 1)
            if self.world.chance(0.05):
                turn = None  # its planner's process is another one now

    def _run_tasks(self, protocol: SinkProtocol, view: View, batch: int) -> Life:
        world = self.world
        if batch not in world.task_counts or world.chance(0.3):
            count = world.random.choice((2, 3))
        else:
            count = world.task_counts[batch]
        is_partial = world.record is not None and world.record.batch == batch
        if not is_partial:
            world.task_counts[batch] = count
        self.reports, self.failure = {}, None
        running: list[Attempt] = []
        while len(self.reports) < count:
            for task in range(count):
                has_one = any(each.task == task and each.is_known for each in running)
                is_copied = world.chance(0.05)
                if is_copied or (task not in self.reports and not has_one):
                    started = Attempt(self, protocol, view, batch=batch, task=task, count=count)
                    running.append(started)
                    world.attempts.append(started)
            yield None
            if self.failure is not None:
                raise self.failure
            for each in running:
                if each.is_known and world.chance(0.01):
                    each.is_cut_off = True
                    if world.chance(0.5) and each in world.attempts:
                        world.attempts.remove(each)

    def _check_missing(self, batch: int) -> None:
        """The error is loud, and true: then the user follows its advice."""
        record = self.world.record
        assert record is not None
        if record.stage is Stage.INCOMPLETE and record.batch == batch:
            missing = sum(rows for _, rows in record.missing)
            seen = sum(row[0] == batch for row in self.world.visible)
            assert seen + missing == ROW_COUNT
            self.world.atomicity = ATOMIC_TASK


class Attempt(Actor):
    """An attempt of a task, in some worker."""

    def __init__(
        self,
        driver: Driver,
        protocol: SinkProtocol,
        view: View,
        *,
        batch: int,
        task: int,
        count: int,
    ) -> None:
        super().__init__(driver.world)
        self.driver, self.task, self.is_cut_off = driver, task, False
        self._protocol, self._view, self._batch, self._count = protocol, view, batch, count

    @property
    def is_known(self) -> bool:
        """Whether Spark takes it for one that runs."""
        return not self.is_over and not self.is_cut_off

    def live(self) -> Life:
        world = self.world
        try:
            action = self._protocol.action(
                self._view, batch=self._batch, query=QUERY, task=self.task
            )
        except KafkaError as error:
            self.driver.failure = error
            return
        if action is Action.SKIP:
            self._report(None)
            return
        if world.chance(0.1):
            worker = Worker(f"x{len(world.workers)}")
            world.workers.append(worker)
        else:
            worker = world.random.choice(world.workers)
        slot = worker.take(self._view.turn, self._batch)
        if world.defects.ids_by_task:
            slot = SlotName(self._view.turn, "w", self.task)
        name = slot_id(SINK, slot)
        epochs: list[int] = []
        transaction = world.transactions.setdefault(name, Transaction())
        rows = [(self._batch, row) for row in range(self.task, ROW_COUNT, self._count)]
        try:
            yield lambda: epochs.append(transaction.initialize())
            for row in rows:
                yield lambda row=row: world.produce(name, epochs[0], row)  # type: ignore[misc]
                if world.chance(0.01):
                    return
        except KafkaError:
            return
        worker.kept[slot] = self._batch
        yield None
        self._report(Written(self.task, len(rows), name, 1, epochs[0], 2))

    def _report(self, written: Written | None) -> None:
        # What a job of an earlier batch reports, Spark drops.
        is_late = self.driver.batch != self._batch
        if not self.is_cut_off and not is_late and self.task not in self.driver.reports:
            self.driver.reports[self.task] = Report(self._view.turn, QUERY, self.task, written)


class _EndsFirst(SinkProtocol):
    """Commits before it decides."""

    def commit(self, batch: int, reports: list[Report]) -> Steps[None]:  # type: ignore[override]
        written = tuple(each.written for each in reports if each.written is not None)
        for each in written:
            yield End((each,), is_commit=True)
        yield from super().commit(batch, reports)


class _AbortsAll(SinkProtocol):
    """Aborts what later turns have open, too."""

    def _abort_open(self, turn_max: int, kept: tuple[Written, ...]) -> Steps[None]:  # type: ignore[override]
        yield from super()._abort_open(10**9, kept)


@pytest.mark.parametrize("atomicity", [ATOMIC_TASK, ATOMIC_BATCH])
@pytest.mark.parametrize("seed", seeds(50, soak_count=500))
def test_each_row_is_visible_once_whatever_spark_does(seed: int, atomicity: str) -> None:
    World(seed, atomicity, Defects).finish()


class _IdsByTask(Defects):
    ids_by_task = True


class _EndsBeforeDecision(Defects):
    ends_before_decision = True


class _IgnoresDecision(Defects):
    ignores_decision = True


class _AbortIgnoresDecision(Defects):
    abort_ignores_decision = True


class _WritesUnfenced(Defects):
    writes_unfenced = True


class _AbortsLaterTurns(Defects):
    aborts_later_turns = True


def _losses(seed: int, defects: type[Defects]) -> bool:
    """Whether a run breaks a rule, or loses rows that it has decided."""
    world = World(seed, ATOMIC_BATCH, defects)
    world._run_out_of_time = lambda: None  # type: ignore[method-assign]
    try:
        world.finish()
    except AssertionError:
        return True
    # Nothing runs out of time here, so a sink without a defect has no row to mend.
    return world.atomicity != ATOMIC_BATCH


@pytest.mark.parametrize(
    "defects",
    [
        _IdsByTask,
        _EndsBeforeDecision,
        _IgnoresDecision,
        _AbortIgnoresDecision,
        _WritesUnfenced,
        _AbortsLaterTurns,
    ],
)
def test_a_planted_defect_is_noticed(defects: type[Defects]) -> None:
    assert any(_losses(seed, defects) for seed in range(400))


def test_without_a_defect_nothing_is_lost_unless_time_runs_out() -> None:
    assert not [seed for seed in range(40) if _losses(seed, Defects)]
