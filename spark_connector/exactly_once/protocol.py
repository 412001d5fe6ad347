"""The protocol of the exactly-once sink, without input and output: the steps of driver and tasks.

1. The driver *claims* the sink before tasks begin. With its transactional id it fences earlier
drivers, finishes a batch that one of them has decided, takes the next turn, and aborts the open
transactions of earlier turns. All processes of its application share this turn. 2. An attempt of a
task writes its rows in a transaction of its own, *prepares* it and leaves it open. It never
commits. Its report has what the driver needs to end the transaction. 3. Spark accepts one attempt
of each task. The driver writes the *decision*, the transactions of these attempts, and only then
commits them. It records that they are complete, and aborts the transactions of other attempts. 4. A
repeated batch finds the decision. Complete tasks are skipped. If brokers refuse to commit a
transaction because it timed out, its rows are missing: those tasks write again if the sink is
atomic by task; otherwise the batch fails with an error that names the missing rows.

Only the driver that writes the decision commits, and there are never two: the record is written in
transactions of one transactional id, after it was read. Each step is yielded, and the caller sends
back its result.

Owner: the caller, which runs the steps. Source: design of a two-phase commit as in KIP-939, with
the decision kept by the sink.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, TypeAlias, TypeVar

from pykclient.errors import ConfigError, KafkaError
from spark_connector.exactly_once.names import ATOMIC_BATCH, slot_name
from spark_connector.exactly_once.record import Missing, SinkRecord, Stage, Written

NAMED_TASKS_MAX: Final = 10
"""Maximum number of tasks that an error names."""
TURN_MAX: Final = 2**63 - 1


class SinkTakenOverError(KafkaError):
    """Another driver has taken over the sink, and its batches count."""


class MissingRowsError(KafkaError):
    """A batch was decided, and brokers refused to commit the rows of some tasks."""


class RepeatedOtherwiseError(KafkaError):
    """A written batch is repeated with other tasks, other rows or another topic."""


class OldBatchError(KafkaError):
    """A batch has a smaller number than the last batch that the sink has written."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The step that initialises the driver's transactional id and then reads the record.

    No other driver can write the record afterwards. The result is None if there is no record.

    Raises: `SinkTakenOverError` if another driver did the same meanwhile.
    """


@dataclass(frozen=True, slots=True)
class Read:
    """The step that reads the record, or None. It may have been replaced meanwhile."""


@dataclass(frozen=True, slots=True)
class Write:
    """The step that writes the record in a transaction.

    Raises: `SinkTakenOverError` for a driver that was fenced since its last `Fence`.
    """

    record: SinkRecord


@dataclass(frozen=True, slots=True)
class End:
    """The step that commits or aborts transactions.

    The result is the ids of those that brokers refuse to end like this for good.
    """

    written: tuple[Written, ...]
    is_commit: bool


@dataclass(frozen=True, slots=True)
class FindClosed:
    """The step that finds which of these transactions are closed; its result is their ids."""

    written: tuple[Written, ...]


@dataclass(frozen=True, slots=True)
class ListOpen:
    """The step that lists the ids of all open transactions of the sink's attempts."""


@dataclass(frozen=True, slots=True)
class AbortOpen:
    """The step that aborts the open transactions of these ids and fences their producers."""

    transactional_ids: tuple[str, ...]


Step: TypeAlias = Fence | Read | Write | End | FindClosed | ListOpen | AbortOpen
Result: TypeAlias = SinkRecord | frozenset[str] | None
_Returned = TypeVar("_Returned")
Steps: TypeAlias = Generator[Step, Result, _Returned]


class View(NamedTuple):
    """The sink's record as the driver passes it to tasks: the state of the last batch."""

    turn: int
    stage: Stage
    batch: int
    query: str
    topic: str | None
    missing: tuple[Missing, ...]


class Report(NamedTuple):
    """The report of an attempt of a task.

    `written` is None if it wrote nothing. `skipped_count` is the number of rows that it dropped
    because the batch is already written.
    """

    turn: int
    query: str
    task: int
    written: Written | None
    skipped_count: int = 0


class Settled(NamedTuple):
    """The outcome of settling a batch.

    It has the ids whose transactions were committed as decided, the ids that were aborted, and, for
    a batch that was decided, each task whose rows are missing with their number.
    """

    decided: tuple[str, ...]
    aborted: tuple[str, ...]
    missing: tuple[Missing, ...]


class Action(Enum):
    """The action of a task on its rows."""

    WRITE = "write"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class SinkProtocol:
    """The rules of one sink.

    `atomicity` says whether a batch (`names.ATOMIC_BATCH`) or a task is the unit. `topic` is the
    topic of all rows, empty if rows name their own. `skips_old` means that a batch with a smaller
    number than the last one is skipped instead of an error.
    """

    sink_id: str
    atomicity: str
    topic: str = ""
    skips_old: bool = False

    def claim(self, application: str = "") -> Steps[SinkRecord]:
        """Take over the sink and return its record. See step 1 of the module."""
        return (yield from self._take_over(application))[0]

    def look(self, turn: int | None, application: str = "") -> Steps[SinkRecord]:
        """Return the record; claim the sink if its turn and its application are others.

        Processes of one application share its turn: Spark plans the batches of a query in one
        process after the other. `turn` is None in a process that has no turn yet, and `application`
        is empty if it is unknown.
        """
        if turn is not None or application:
            record = yield from _read()
            if record is not None and record.stage is not Stage.DECIDED:
                is_own = bool(application) and record.application == application
                if is_own or record.turn == turn:
                    return record
        return (yield from self.claim(application))

    def look_again(self, view: View) -> Steps[View]:
        """Return the current record, for an attempt of a task that had earlier attempts.

        A copy that Spark starts beside a slow attempt may begin after that attempt has ended and
        the batch is decided. A transaction that the copy opened then, in the last batch, would stay
        open.
        """
        record = yield from _read()
        if record is None or record.turn != view.turn:
            raise self._taken_over(view.batch + 1, view.turn, record)
        return self.view(record)

    def action(self, view: View, *, batch: int, query: str, task: int) -> Action:
        """Return the action of a task on its rows.

        Raises:
            ConfigError: the sink belongs to another query.
            OldBatchError: the sink has written a later batch.
            RepeatedOtherwiseError: this batch was written to another topic.
            MissingRowsError: the batch is incomplete and cannot be completed.
        """
        self._check_query(view.stage, view.query, query)
        if view.stage is Stage.EMPTY or batch > view.batch:
            return Action.WRITE
        if batch < view.batch:
            if self.skips_old:
                return Action.SKIP
            raise self._old_batch(batch, view.batch)
        self._check_topic(batch, view.topic)
        if view.missing:
            if self.atomicity == ATOMIC_BATCH:
                raise self._missing_rows(batch, view.missing)
            if any(each.task == task for each in view.missing):
                return Action.WRITE
        return Action.SKIP

    def commit(self, batch: int, reports: Sequence[Report]) -> Steps[int]:
        """Decide a batch whose tasks have all succeeded, and commit it. See step 3 of the module.

        Returns: the number of rows that were dropped because the batch was already written.

        Raises:
            SinkTakenOverError: another driver has the sink; no row of this one is visible.
            MissingRowsError: rows are missing. The batch is decided, and must be repeated.
            RepeatedOtherwiseError: nothing was committed: the batch was written with other rows or
                to another topic, or another batch write ran at the same time and was first.
            OldBatchError: nothing was committed: the sink has written a later batch meanwhile.
            KafkaError: a step failed; the batch has to be repeated.
        """
        if not reports:
            return 0
        written = _written(reports)
        skipped_count = sum(report.skipped_count for report in reports)
        if not written:
            found = yield from _read()
            if found is None or found.batch != batch or found.stage is Stage.COMPLETE:
                return skipped_count
        turn, query = reports[0].turn, reports[0].query
        record = yield from _fence()
        if record is None or record.turn != turn:
            raise self._taken_over(batch, turn, record)
        self._check_query(record.stage, record.query, query)
        if record.stage is Stage.DECIDED:
            # By this driver, which was interrupted: its decision counts.
            record = yield from self._complete(record)
        if batch < record.batch or (batch == record.batch and record.stage is Stage.COMPLETE):
            return skipped_count + (yield from self._drop(batch, query, record, written))
        if batch == record.batch:
            self._check_topic(batch, record.topic)
            self._check_repeat(record, len(reports), written)
        closed = yield from _find_closed(written)
        if closed:
            raise self._closed(batch, [each for each in written if each.transactional_id in closed])
        decided = record.decided(batch, query, written, topic=self.topic, task_count=len(reports))
        yield Write(decided)
        yield from self._complete(decided)
        yield from self._abort_open(turn, kept=written)
        return skipped_count

    def _drop(
        self, batch: int, query: str, record: SinkRecord, written: tuple[Written, ...]
    ) -> Steps[int]:
        """Abort the rows of attempts that were planned before their batch was decided.

        Returns: the number of their rows.
        """
        yield from _end(written, is_commit=False)
        if written and not query:
            raise self._written_otherwise(batch, record)
        if written and batch < record.batch and not self.skips_old:
            raise self._old_batch(batch, record.batch)
        if batch == record.batch:
            self._check_topic(batch, record.topic)
        return sum(each.row_count for each in written)

    def abort(self, batch: int, reports: Sequence[Report]) -> Steps[None]:
        """Abort the rows of attempts unless their batch is decided.

        Spark calls this after a failed commit, too.
        """
        if not reports:
            return
        # Ends a decision that is under way, too, one way or the other.
        record = yield from _fence()
        is_decided = record is not None and record.stage is Stage.DECIDED
        kept = record.written if is_decided and record is not None else ()
        kept_ids = {each.transactional_id for each in kept}
        undecided = tuple(
            each for each in _written(reports) if each.transactional_id not in kept_ids
        )
        if undecided:
            yield from _end(undecided, is_commit=False)
        yield from self._abort_open(reports[0].turn, kept=kept)

    def settle(self) -> Steps[Settled]:
        """End the transactions that a query has left open for good.

        Decided ones are committed, and the rest is aborted. A driver that is still running is
        fenced, as by a claim.
        """
        record, settled = yield from self._take_over("")
        return settled._replace(missing=record.missing)

    def view(self, record: SinkRecord) -> View:
        """Return the part of a record that tasks need."""
        return View(
            record.turn,
            record.stage,
            record.batch,
            record.query,
            record.topic,
            record.missing,
        )

    def _take_over(self, application: str) -> Steps[tuple[SinkRecord, Settled]]:
        record = yield from _fence()
        if record is None:
            # The first one, or the last has expired, and turns say nothing. What is open is listed
            # before the record is written: who opens more in between has fenced this driver.
            left = yield from self._open(TURN_MAX)
            record = SinkRecord(turn=1, application=application)
            yield Write(record)
            if left:
                yield AbortOpen(left)
            return record, Settled((), left, ())
        decided: tuple[Written, ...] = ()
        if record.stage is Stage.DECIDED:
            decided = record.written
            record = record.ended((yield from _end(decided, is_commit=True)))
        record = record.taken_over(application)
        yield Write(record)
        left = yield from self._abort_open(record.turn - 1, kept=())
        return record, Settled(tuple(each.transactional_id for each in decided), left, ())

    def _complete(self, decided: SinkRecord) -> Steps[SinkRecord]:
        ended = decided.ended((yield from _end(decided.written, is_commit=True)))
        yield Write(ended)
        if ended.missing:
            raise self._missing_rows(ended.batch, ended.missing)
        return ended

    def _abort_open(self, turn_max: int, kept: Sequence[Written]) -> Steps[tuple[str, ...]]:
        """Abort the open transactions of turns up to this one, and return their ids.

        Later turns are left alone: this driver may have been replaced meanwhile.
        """
        kept_ids = {each.transactional_id for each in kept}
        found = yield from self._open(turn_max)
        left = tuple(name for name in found if name not in kept_ids)
        if left:
            yield AbortOpen(left)
        return left

    def _open(self, turn_max: int) -> Steps[tuple[str, ...]]:
        found = yield ListOpen()
        assert isinstance(found, frozenset)
        slots = ((name, slot_name(self.sink_id, name)) for name in sorted(found))
        return tuple(name for name, slot in slots if slot is not None and slot.turn <= turn_max)

    def _check_query(self, stage: Stage, owner: str, query: str) -> None:
        if stage is not Stage.EMPTY and owner != query:
            raise ConfigError(
                f"Sink {self.sink_id!r} belongs to {_query(owner)}, so {_query(query)} cannot "
                f"write to it: batches of both have the same numbers. Give each checkpoint, and "
                f"each series of batch writes, a sinkId of its own."
            )

    def _check_topic(self, batch: int, topic: str | None) -> None:
        """Check that a batch is repeated to the topic that it was written to.

        The topic is None, and unknown, in a record before format 2.
        """
        if topic is None or topic == self.topic:
            return
        raise RepeatedOtherwiseError(
            f"Sink {self.sink_id!r}: batch {batch} was written to {described_topic(topic)}, and "
            f"this write of the same number is to {described_topic(self.topic)}. Its rows were not "
            f"written. Give each write a sinkId of its own; where the option 'topic' of a query "
            f"has changed, start the query once with the topic that it had."
        )

    def _check_repeat(
        self, record: SinkRecord, task_count: int, written: tuple[Written, ...]
    ) -> None:
        """Check that an incomplete batch is repeated unchanged."""
        if self.atomicity == ATOMIC_BATCH:
            raise self._missing_rows(record.batch, record.missing)
        again = tuple(sorted(each.rows for each in written))
        missing = tuple(sorted(record.missing))
        begun = (
            f"Sink {self.sink_id!r}: batch {record.batch} was written in part, by "
            f"{record.task_count} tasks, and rows are missing of {_tasks(missing)}."
        )
        if task_count != record.task_count or _counts(again) != _counts(missing):
            raise RepeatedOtherwiseError(
                f"{begun} It was repeated with {task_count} tasks, which wrote again "
                f"{_tasks(again)}: rows would be doubled or lost. Nothing of this repetition was "
                f"committed. Start the query with the settings that it had (partitions to read, "
                f"spark.sql.shuffle.partitions), so that each task gets the rows that it got; "
                f"{_offsets_file(record.batch)}"
            )
        others = [
            each
            for each, before in zip(again, missing, strict=True)
            if before.checksum is not None and each.checksum != before.checksum
        ]
        if others:
            raise RepeatedOtherwiseError(
                f"{begun} It was repeated, and {_tasks(others)} got other rows than before, or the "
                f"same ones in another order: rows could be doubled or lost. Nothing of this "
                f"repetition was committed. Start the query again if rows only come in another "
                f"order now and then, as after a shuffle. Otherwise write what is missing by hand, "
                f"and go on with another sinkId; {_offsets_file(record.batch)}"
            )

    def _missing_rows(self, batch: int, missing: tuple[Missing, ...]) -> MissingRowsError:
        cure = (
            "Start the query once without atomic=batch, and these tasks write their rows again"
            if self.atomicity == ATOMIC_BATCH
            else "Start the query again, and these tasks write their rows again"
        )
        return MissingRowsError(
            f"Sink {self.sink_id!r}: batch {batch} was decided, but brokers refused to commit the "
            f"rows of {_tasks(missing)}. Their transactions were open for longer than "
            f"kafka.transaction.timeout.ms, or were aborted by somebody else. Other rows of the "
            f"batch are visible. {cure}, where each task gets the same rows as before; "
            f"{_offsets_file(batch)}"
        )

    def _closed(self, batch: int, closed: Sequence[Written]) -> KafkaError:
        tasks = _tasks([each.rows for each in closed])
        return KafkaError(
            f"Sink {self.sink_id!r}: batch {batch} was not committed, and nothing of it is "
            f"visible: transactions are not open any more, with the rows of {tasks}. The batch "
            f"took longer than kafka.transaction.timeout.ms, or they were aborted by somebody "
            f"else. Start the query again; if the time is too short, give more (brokers allow "
            f"transaction.max.timeout.ms) or make batches smaller."
        )

    def _old_batch(self, batch: int, last: int) -> OldBatchError:
        return OldBatchError(
            f"Sink {self.sink_id!r} has written batch {last}, so batch {batch} is old. Spark "
            f"repeats only the last batch: the checkpoint was deleted, reset or restored from a "
            f"backup, or another write uses the same sinkId. Nothing of this batch was written. "
            f"Give another sinkId to write its rows. Where they are written already, as in a job "
            f"that is submitted again, skip them with the option onOldBatch=skip."
        )

    def _written_otherwise(self, batch: int, record: SinkRecord) -> RepeatedOtherwiseError:
        return RepeatedOtherwiseError(
            f"Sink {self.sink_id!r}: batch {batch} was not committed, and nothing of it is "
            f"visible: another write was, as batch {record.batch}, while this one ran. Have one "
            f"write at a time use a sinkId."
        )

    def _taken_over(self, batch: int, turn: int, record: SinkRecord | None) -> SinkTakenOverError:
        now = "its record is gone" if record is None else f"turn {record.turn} has it now"
        return SinkTakenOverError(
            f"Sink {self.sink_id!r}: batch {batch} was planned in turn {turn}, and {now}: another "
            f"driver writes with the same sinkId. Nothing that this one has written and not "
            f"decided is visible. Run one query, with one checkpoint."
        )


def _fence() -> Steps[SinkRecord | None]:
    record = yield Fence()
    assert record is None or isinstance(record, SinkRecord)
    return record


def _read() -> Steps[SinkRecord | None]:
    record = yield Read()
    assert record is None or isinstance(record, SinkRecord)
    return record


def _end(written: tuple[Written, ...], *, is_commit: bool) -> Steps[frozenset[str]]:
    if not written:
        return frozenset()
    refused = yield End(written, is_commit=is_commit)
    assert isinstance(refused, frozenset)
    return refused


def _find_closed(written: tuple[Written, ...]) -> Steps[frozenset[str]]:
    if not written:
        return frozenset()
    closed = yield FindClosed(written)
    assert isinstance(closed, frozenset)
    return closed


def _written(reports: Sequence[Report]) -> tuple[Written, ...]:
    return tuple(report.written for report in reports if report.written is not None)


def _query(query: str) -> str:
    return f"query {query}" if query else "batch writes"


def described_topic(topic: str) -> str:
    """Return the text for a sink's topic in messages, empty if rows name their own."""
    return f"topic {topic!r}" if topic else "topics that rows name"


def _counts(tasks: Sequence[Missing]) -> list[tuple[int, int]]:
    return [(each.task, each.row_count) for each in tasks]


def _tasks(tasks: Sequence[Missing]) -> str:
    if not tasks:
        return "no task"
    named = ", ".join(f"{each.task} ({each.row_count} rows)" for each in tasks[:NAMED_TASKS_MAX])
    more = len(tasks) - NAMED_TASKS_MAX
    return f"tasks {named}" + (f" and {more} more" if more > 0 else "")


def _offsets_file(batch: int) -> str:
    return f"the offsets that the batch reads stand in offsets/{batch} of its checkpoint."
