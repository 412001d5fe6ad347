"""Progress of long work, shown on standard error if it is a terminal.

Owner: the main thread.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def progress(
    what: str, total: int | None, *, is_shown: bool = True
) -> Iterator[Callable[[int], None]]:
    """Show a progress bar while the block runs, and yield a function that updates it.

    The block calls the function with the amount done so far. `total` None is for work of unknown
    size. Nothing is shown without a terminal, without the package rich, or if `is_shown` is false
    because the terminal has other output.
    """
    if not is_shown or not sys.stderr.isatty():
        yield _show_nothing
        return
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )
    except ImportError:
        yield _show_nothing
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
    with bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


def _show_nothing(done: int) -> None:
    """Do nothing, without a terminal."""
