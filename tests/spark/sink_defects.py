"""Defects of an exactly-once sink, each a rule of `SinkProtocol` or of its steps that is broken.

Owner: none; they hold no state.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from spark_connector.exactly_once.names import SlotName
from spark_connector.exactly_once.protocol import (
    End,
    Fence,
    ListOpen,
    Read,
    Report,
    Result,
    SinkProtocol,
    Step,
    Steps,
    Write,
)
from spark_connector.exactly_once.record import SinkRecord, Stage, Written
from spark_connector.exactly_once.slots import Slots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pykclient import Producer

Returned = TypeVar("Returned")


class SlotsOfTask(Slots):
    """The transactional ids of a worker, which reports each step that it runs."""

    task: int
    """The task of the attempt that begins next."""


class Defect:
    """A defect that can be planted; this one breaks nothing."""

    protocol: type[SinkProtocol] = SinkProtocol
    slots: type[SlotsOfTask] = SlotsOfTask
    trusts_any_coordinator = False
    stops_before: tuple[type[Step], ...] = ()
    """The steps before which drivers often stand still, since only then the defect shows."""

    def before(self, step: Step) -> Iterator[Step]:
        """Yield steps to be run before one."""
        del step
        yield from ()

    def after(self, step: Step, result: Result, *, is_abort: bool) -> Result:
        """Return the result of a step, or a false one."""
        del step, is_abort
        return result

    def in_steps(
        self, steps: Steps[Returned], stop: Callable[[Step | None], None], *, is_abort: bool
    ) -> Steps[Returned]:
        """Return steps with the defect; call `stop` before each, with a step of `stops_before`."""
        try:
            step = next(steps)
            while True:
                try:
                    stop(step if isinstance(step, self.stops_before) else None)
                    yield from self.before(step)
                    result = self.after(step, (yield step), is_abort=is_abort)
                except Exception as error:  # noqa: BLE001  # the steps handle it, or raise it
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration as stop:
            returned: Returned = stop.value
            return returned


class IdsByTask(Defect):
    """Attempts of one task have one transactional id."""

    class slots(SlotsOfTask):
        def _take(self, turn: int, batch: int) -> tuple[SlotName, Producer | None]:
            del batch
            name = SlotName(turn, "w", self.task)
            kept = self._kept.pop(name, None)
            return name, None if kept is None else kept.producer


class EndsBeforeDecision(Defect):
    """Commits the rows of attempts before the batch is decided."""

    class protocol(SinkProtocol):
        def commit(self, batch: int, reports: Sequence[Report]) -> Steps[int]:
            written = tuple(each.written for each in reports if each.written is not None)
            if written:
                yield End(written, is_commit=True)
            return (yield from super().commit(batch, reports))


class IgnoresDecision(Defect):
    """A driver that does not see the decided batch."""

    def after(self, step: Step, result: Result, *, is_abort: bool) -> Result:
        del is_abort
        if isinstance(step, (Fence, Read)) and isinstance(result, SinkRecord):
            return replace(result, stage=Stage.EMPTY, batch=-1, written=(), missing=())
        return result


class AbortIgnoresDecision(Defect):
    """An abort after a failed commit that does not see the decided batch."""

    def after(self, step: Step, result: Result, *, is_abort: bool) -> Result:
        return None if is_abort and isinstance(step, Fence) else result


class WritesUnfenced(Defect):
    """A driver that was replaced writes the record all the same."""

    def before(self, step: Step) -> Iterator[Step]:
        if isinstance(step, Write):
            yield Fence()


class AbortsLaterTurns(Defect):
    """A driver aborts what a later one has open."""

    stops_before = (ListOpen, End)

    class protocol(SinkProtocol):
        def _abort_open(self, turn_max: int, kept: Sequence[Written]) -> Steps[tuple[str, ...]]:
            del turn_max
            return (yield from super()._abort_open(10**9, kept))


class TrustsAnyCoordinator(Defect):
    """A driver takes the record from a coordinator that may know nothing of the barrier."""

    trusts_any_coordinator = True
