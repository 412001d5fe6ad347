"""Stopwatch: names the steps of the demo as they happen and says how long each took.

Owner: the thread that runs the steps.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console


class Stopwatch:
    """Steps in order, each with its seconds; a step that fails is timed too."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.perf_counter) -> None:
        self._console = console
        self._clock = clock
        self._steps: list[tuple[str, float]] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time what happens inside."""
        self._console.print(f"[bold]{name}[/bold] ...")
        start_s = self._clock()
        try:
            yield
        finally:
            self._steps.append((name, self._clock() - start_s))

    def table(self) -> Table:
        """All steps so far and their sum."""
        table = Table(title="Time taken", show_footer=True)
        table.add_column("step", footer="all steps")
        total_s = sum(seconds for _, seconds in self._steps)
        table.add_column("seconds", justify="right", footer=f"{total_s:.1f}")
        for name, seconds in self._steps:
            table.add_row(name, f"{seconds:.1f}")
        return table
