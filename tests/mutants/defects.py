"""Planted defects: what could be wrong in the source, and the tests that must notice it.

They stand in the TOML files beside this one, a file for a package, a table `[[defect]]` each:
`file` and the `text` in it, which has to occur there exactly once; the `replacement`; `what` is
wrong then, in one sentence; and `tests`, node ids without parameters, each of which must fail. A
text is short, so that the code around it may change.

Owner: no state.
"""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]

PURE_CORE = "pykclient/accel/pure/"
COMPILED_SUFFIXES = (".pyx", ".pxd")


class Defect(NamedTuple):
    """One defect; `file` is a path below the project's root."""

    file: str
    what: str
    text: str
    replacement: str
    tests: tuple[str, ...]

    @property
    def is_compiled(self) -> bool:
        """Tell whether the compiled core has to be built for it."""
        return self.file.endswith(COMPILED_SUFFIXES)

    @property
    def core(self) -> str:
        """Which per-record core the tests have to run with; empty for the one that is there."""
        return "pure" if self.file.startswith(PURE_CORE) else "compiled" * self.is_compiled

    def planted_in(self, source: str) -> str:
        """Return the source with the defect in it.

        Raises:
            ValueError: the text does not occur once, or what comes out is no Python.
        """
        count = source.count(self.text)
        if count != 1:
            raise ValueError(f"the text occurs {count} times: {self.text!r}")
        planted = source.replace(self.text, self.replacement)
        if not self.is_compiled:
            ast.parse(planted)  # a SyntaxError is a ValueError
        return planted


def read_defects(folder: Path = FOLDER) -> list[Defect]:
    """Read all that there are, in the order of the files and in them."""
    return [
        Defect(**{**table, "tests": tuple(table["tests"])})
        for path in sorted(folder.glob("*.toml"))
        for table in tomllib.loads(path.read_text(encoding="utf-8"))["defect"]
    ]


def troubles(defects: Iterable[Defect], root: Path = ROOT) -> Iterator[str]:
    """Tell of each defect that cannot be planted any more, or that has no test to notice it."""
    for defect in defects:
        name = f"{defect.file}: {defect.what}"
        path = root / defect.file
        if not path.is_file():
            yield f"{name}: there is no such file"
            continue
        source = path.read_text(encoding="utf-8")
        try:
            if defect.planted_in(source) == source:
                yield f"{name}: it changes nothing"
        except (ValueError, SyntaxError) as error:
            yield f"{name}: {error}"
        if not defect.tests:
            yield f"{name}: it names no test"
        for test in defect.tests:
            file, _, function = test.partition("::")
            if function not in _tests_in(root / file):
                yield f"{name}: there is no test {test}"


@cache
def _tests_in(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found.update(f"{node.name}::{n.name}" for n in node.body if hasattr(n, "name"))
    return frozenset(found)
