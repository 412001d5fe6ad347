"""Shared code of the tools that generate a document: write it, or compare it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def write_or_compare(
    arguments: Sequence[str] | None, tool: str, path: Path, text: Callable[[Path], str]
) -> int:
    """Write the document, or with ``--check`` only compare it; return the exit status.

    Args:
        arguments: the command line, None for the process's own.
        tool: the module that runs; it names itself in messages.
        path: the document, below the project's root.
        text: returns the wanted contents, given the path of the document.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {tool}")
    parser.add_argument("--into", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--check", action="store_true", help="only compare; 1 if it differs")
    options = parser.parse_args(arguments)
    found: Path = options.into / path
    wanted = text(found)
    if found.exists() and found.read_text(encoding="utf-8") == wanted:
        return 0
    if options.check:
        print(f"differs: {path}; run python -m {tool}")
        return 1
    found.parent.mkdir(parents=True, exist_ok=True)
    found.write_text(wanted, encoding="utf-8")
    print(f"written: {path}")
    return 0
