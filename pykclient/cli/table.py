"""Rows as a table with a heading, or as JSON, one object a line.

Owner: the main thread; it holds no state.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

GAP: Final = "  "
NOTHING: Final = "-"
_ESCAPES: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
"""Names that others have chosen must not control the terminal."""


Row = Mapping[str, object]
"""Values by name; the names make the heading, the same in all rows of a table."""


def write_rows(kind: str, rows: Sequence[Row], *, is_json: bool) -> None:
    """Print rows of one type to standard output, nothing when there are none.

    As JSON each is an object whose ``type`` is `kind`. In a table None is ``-``, and a mapping of
    topics to partitions reads ``topic(0,1)``.
    """
    objects = (json.dumps({"type": kind, **row}) for row in rows)
    lines = objects if is_json else _table(rows)
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def shown(text: str) -> str:
    """Return a name as a terminal may have it, control characters escaped."""
    return text.translate(_ESCAPES)


def _table(rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        return
    heading = [name.upper().replace("_", "-") for name in rows[0]]
    cells = [[_cell(value) for value in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(heading, *cells, strict=True)]
    are_numbers = [
        {int} <= {type(value) for value in column} <= {int, type(None)}
        for column in zip(*(row.values() for row in rows), strict=True)
    ]
    for line in (heading, *cells):
        yield GAP.join(
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(line, widths, are_numbers, strict=True)
        ).rstrip()


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
