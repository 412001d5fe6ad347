"""The programs of the pages under docs/, and what becomes of them when they run.

A program is a Python block that begins with a comment that names its file. It runs in this process,
as its module `__main__` would, with another address and, where a test says so, other words.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import signal
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

DOCS = Path(__file__).parents[2] / "docs"
WRITTEN_ADDRESS = "localhost:9092"
BLOCK = re.compile(r"^```python\n(?:# ([\w.]+\.py)\n)?(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Ended:
    """The outcome of a program: its exit status as a shell has it, and its output."""

    status: int
    printed: str
    said: str
    """The text on stderr, without log lines."""


@dataclass(frozen=True)
class Program:
    """A program of a page, by the name of the file in its first line."""

    page: str
    name: str
    text: str

    def at(self, servers: str) -> Program:
        return self.with_words({WRITTEN_ADDRESS: servers})

    def with_words(self, words: dict[str, str]) -> Program:
        """Return the program with some of its words replaced; each must be in it."""
        text = self.text
        for word, other in words.items():
            assert word in text, f"{self.page}, {self.name}: no {word}"
            text = text.replace(word, other)
        return replace(self, text=text)

    def with_any_of(self, words: dict[str, str]) -> Program:
        """Return the program with those words replaced that are in it."""
        return self.with_words({word: words[word] for word in words if word in self.text})

    def run(
        self,
        *arguments: str,
        stop_when: Callable[[str], bool] = lambda _: False,
        by: signal.Signals = signal.SIGTERM,
        output: TextIO | None = None,
    ) -> Ended:
        """Run it to its end; a signal comes when what it has printed or logged is enough.

        With an `output` it prints there, and nothing is kept of it.
        """
        printed, said = _Written(stop_when, by), io.StringIO()
        logged = _Logged(printed)
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        root = logging.getLogger()
        level = root.level
        root.addHandler(logged)
        root.setLevel(logging.INFO)  # `basicConfig` does nothing under pytest, which has handlers
        argv, sys.argv = sys.argv, [self.name, *arguments]
        try:
            with contextlib.redirect_stdout(output or printed), contextlib.redirect_stderr(said):
                status = _status_of(compile(self.text, self.name, "exec"), said)
        finally:
            sys.argv = argv
            root.removeHandler(logged)
            root.setLevel(level)
            for number, handler in handlers.items():
                signal.signal(number, handler)
        return Ended(status, printed.getvalue(), said.getvalue())


@cache
def programs() -> dict[str, Program]:
    """Return the programs of all pages, by the names of their files."""
    found: dict[str, Program] = {}
    for page in sorted(DOCS.glob("*.md")):
        for program in _programs_of(page):
            assert program.name not in found, f"two programs are named {program.name}"
            found[program.name] = program
    return found


def _programs_of(page: Path) -> Iterator[Program]:
    for name, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if name:
            yield Program(page.name, name, text)


def _status_of(code: object, said: io.StringIO) -> int:
    try:
        exec(code, {"__name__": "__main__"})  # type: ignore[arg-type]
    except SystemExit as end:
        if isinstance(end.code, str):
            said.write(f"{end.code}\n")
            return 1
        return int(end.code or 0)
    return 0


class _Written(io.StringIO):
    """The output of a program; it signals the program once, when there is enough to read."""

    def __init__(self, is_enough: Callable[[str], bool], by: signal.Signals) -> None:
        super().__init__()
        self._signal = by
        self._is_enough = is_enough
        self._is_stopped = False

    def write(self, text: str) -> int:
        count = super().write(text)
        self.look(self.getvalue())
        return count

    def close(self) -> None:
        """Keep the output: a program closes its streams at its end, and the test reads them."""

    def look(self, text: str) -> None:
        is_ready = signal.getsignal(self._signal) is not signal.SIG_DFL
        if is_ready and not self._is_stopped and self._is_enough(text):
            self._is_stopped = True
            os.kill(os.getpid(), self._signal)


class _Logged(logging.Handler):
    """A log handler that also checks each line."""

    def __init__(self, written: _Written) -> None:
        super().__init__(logging.INFO)
        self._written = written

    def emit(self, record: logging.LogRecord) -> None:
        self._written.look(record.getMessage())
