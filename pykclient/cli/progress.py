"""How far long work has come, shown on standard error where that is a terminal.

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
    """Show a bar while the block runs, which calls what it is given with how much is done by now.

    `total` None is for work whose end is not known. Without a terminal, or without the package
    rich, nothing is shown; nor when `is_shown` is false, since the terminal is used otherwise.
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
    """There is no terminal to show it on."""
