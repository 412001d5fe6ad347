"""A contest: several clients at the same job in turns, each turn a topic or a reading of its own.

Owner: the thread that runs it.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from measuring.measurement import Measurement

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from measuring.arena import Arena
    from measuring.benchmark import Settings
    from measuring.client import Client

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry:
    """A client, what it does, and under which name it stands in the results."""

    client: Client
    action: str
    label: str = ""

    @property
    def name(self) -> str:
        """The name in the results: that of the client, unless there is a label."""
        return self.label or self.client.name


def in_turns(entries: Sequence[T], run_count: int) -> Iterator[T]:
    """Each entry `run_count` times, in an order that turns, so that none always goes first."""
    for turn in range(run_count):
        first = turn % len(entries) if entries else 0
        yield from entries[first:]
        yield from entries[:first]


def produce_contest(
    arena: Arena,
    settings: Settings,
    place: tuple[str, str],
    entries: Sequence[Entry],
    batch_bytes: int = 1_000_000,
) -> Iterator[Measurement]:
    """Measure how fast the entries send; `place` is the benchmark and the case."""
    for entry in in_turns(_able(settings, entries), settings.run_count):
        record_count = settings.records_for(entry.client)
        figures = arena.produce(entry.client, entry.action, record_count, batch_bytes=batch_bytes)
        yield Measurement(*place, entry.name, figures)


def read_contest(
    arena: Arena, settings: Settings, place: tuple[str, str], entries: Sequence[Entry]
) -> Iterator[Measurement]:
    """Measure how fast the entries read one filled topic; slow ones read a smaller one."""
    able = _able(settings, entries)
    with ExitStack() as stack:
        jobs = {
            record_count: stack.enter_context(arena.filled_topic(record_count))
            for record_count in {settings.records_for(entry.client) for entry in able}
        }
        for entry in in_turns(able, settings.run_count):
            job = jobs[settings.records_for(entry.client)]
            yield Measurement(*place, entry.name, arena.run(entry.client, entry.action, job))


def _able(settings: Settings, entries: Sequence[Entry]) -> list[Entry]:
    return [entry for entry in entries if settings.able(entry.action, [entry.client])]
