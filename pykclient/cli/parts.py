"""Commands with subcommands: a call without one is an error that lists them.

Owner: none; it holds no state.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import argparse

WRONG_CALL_STATUS: Final = 2
"""Exit status of `argparse`, and of most commands."""


def add_parts(
    parser: argparse.ArgumentParser, title: str, metavar: str
) -> argparse._SubParsersAction[argparse.ArgumentParser]:
    """Add subcommands to a parser; each sets its own `run`."""
    parser.set_defaults(run=partial(_list_parts, parser))
    return parser.add_subparsers(title=title, metavar=metavar)


def _list_parts(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    parser.print_help(sys.stderr)
    return WRONG_CALL_STATUS
