"""Rows as a table with a heading, or as JSON, one object per line.

On a terminal, the package rich draws the table if it is installed. Output to a file or program is
plain lines, which do not depend on the terminal.

Owner: the main thread; it holds no state.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from pykclient.cli.complaint import write_output

if TYPE_CHECKING:
    from collections.abc import Iterator

GAP: Final = "  "
NOTHING: Final = "-"
WIDTH_MAX: Final = 10_000
"""Width of the trial drawing that finds out whether the table fits the terminal."""
_ESCAPES: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
"""Escapes for control characters: names chosen by others must not control the terminal."""


Row = Mapping[str, object]
"""Values by column name; all rows of a table have the same names."""


def write_rows(kind: str, rows: Sequence[Row], *, is_json: bool) -> None:
    """Print rows of one type to standard output; nothing if there are none.

    In JSON, each row is an object whose ``type`` is `kind`. In a table, None is ``-``, and a
    mapping of topics to partitions reads ``topic(0,1)``.
    """
    if not is_json and rows and sys.stdout.isatty() and find_spec("rich") is not None:
        _draw(rows)
        return
    objects = (json.dumps({"type": kind, **row}) for row in rows)
    lines = objects if is_json else _table(rows)
    write_output("".join(f"{line}\n" for line in lines))


def shown(text: str) -> str:
    """Return a name with control characters escaped, safe for a terminal."""
    return text.translate(_ESCAPES)


def _table(rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        return
    heading = _heading(rows)
    cells = [[_cell(value) for value in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(heading, *cells, strict=True)]
    are_numbers = _are_numbers(rows)
    for line in (heading, *cells):
        yield GAP.join(
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(line, widths, are_numbers, strict=True)
        ).rstrip()


def _draw(rows: Sequence[Row]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name, is_number in zip(_heading(rows), _are_numbers(rows), strict=True):
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row.values()))
    console = Console()
    if console.measure(table, options=console.options.update(width=WIDTH_MAX)).maximum <= (
        console.width
    ):
        console.print(table)
        return
    for row in rows:  # too wide: print each row as a block
        block = Table(box=SIMPLE_HEAD, show_header=False, pad_edge=False)
        for name, value in zip(_heading(rows), row.values(), strict=True):
            block.add_row(name, Text(_cell(value)))
        console.print(block)


def _heading(rows: Sequence[Row]) -> list[str]:
    return [name.upper().replace("_", "-") for name in rows[0]]


def _are_numbers(rows: Sequence[Row]) -> list[bool]:
    """Return for each column whether it has numbers, which are right-aligned."""
    return [
        {int} <= {type(value) for value in column} <= {int, type(None)}
        for column in zip(*(row.values() for row in rows), strict=True)
    ]


def _cell(value: object) -> str:
    if isinstance(value, Mapping):
        text = ", ".join(f"{topic}({_listed(numbers)})" for topic, numbers in value.items())
    elif isinstance(value, Iterable) and not isinstance(value, str):
        text = _listed(value)
    else:
        text = NOTHING if value is None else str(value)
    return shown(text) or NOTHING


def _listed(values: Iterable[object]) -> str:
    return ",".join(map(str, values))
