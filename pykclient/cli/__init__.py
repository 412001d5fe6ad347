"""The command line: ``pykclient COMMAND ...``, each command in a folder of its own.

Results go to standard output, and nothing else does. The exit status is 0 when all went well, 1
when the command met something bad (it says what, on standard error), 2 when it was called wrongly.

Owner: the main thread.
"""

from __future__ import annotations

import argparse
import os
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING

from pykclient.cli.groups import command as groups
from pykclient.cli.log import command as log
from pykclient.errors.base import KafkaError
from pykclient.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

INTERRUPTED_STATUS = 130
"""What a shell reports of a program that was ended by Ctrl-C."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that `arguments` name, None = those of the process; its exit status."""
    parser = argparse.ArgumentParser(prog="pykclient", description="Kafka at the command line.")
    parser.add_argument("--version", action="version", version=f"pykclient {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    groups.add_command(commands)
    log.add_command(commands)
    options = parser.parse_args(arguments)
    _show_what_the_terminal_cannot()
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has had enough (`| head`). Python would complain once more when
        # it flushes standard output at its end, unless that goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED_STATUS
    except (KafkaError, OSError) as error:
        sys.stdout.flush()
        sys.stderr.write(f"pykclient: {error}\n")
        return 1
    return status


def _show_what_the_terminal_cannot() -> None:
    """Have output show escapes in the place of letters that the terminal's encoding has not.

    Names of groups and topics come from strangers; none may end the command.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a test may have put another one there
            stream.reconfigure(errors="backslashreplace")
