"""The command line: ``pykclient COMMAND ...``, with one folder per command.

Only results go to standard output. The exit status is 0 on success, 1 if the command found a
problem, 2 if it was called incorrectly, 3 if the expected records do not arrive, 130 after Ctrl-C,
141 if the output was closed early, 143 after SIGTERM. Each problem is one line on standard error.

Owner: the main thread.
"""

from __future__ import annotations

import argparse
import errno
import logging
import os
import re
import signal
import sys
from contextlib import contextmanager
from functools import partial
from io import TextIOWrapper
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, NoReturn

from pykclient import accel
from pykclient.cli.argument import as_text
from pykclient.cli.broker import command as broker
from pykclient.cli.complaint import reason_of, write_output
from pykclient.cli.consume import command as consume
from pykclient.cli.echo import Echo
from pykclient.cli.groups import command as groups
from pykclient.cli.log import command as log
from pykclient.cli.parts import add_parts
from pykclient.cli.produce import command as produce
from pykclient.cli.scan import command as scan
from pykclient.cli.spark import command as spark
from pykclient.cli.topics import command as topics
from pykclient.cli.transactions import command as transactions
from pykclient.errors.base import KafkaError
from pykclient.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

__all__ = ["command_parser", "main"]

BAD_STATUS = 1
INTERRUPTED_STATUS = 130
"""Exit status that shells report for a program ended by Ctrl-C."""
CLOSED_PIPE_STATUS = 141
"""Exit status that shells report for a program ended by SIGPIPE."""
TERMINATED_STATUS = 143
"""Exit status that shells report for a program ended by SIGTERM."""
STILL_WAITING = "still waiting for "
"""Start of the line that a client logs now and then about what a call waits for."""
CLIENT_NAME = re.compile(r"^\[[^]]*\] ")
"""Start of each line in a client's log. It is omitted: a command rarely has more than one
client."""


class Terminated(KeyboardInterrupt):
    """Raised at SIGTERM: the command ends as after Ctrl-C, with its own exit status."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status. `arguments` None means those of the process."""
    words = sys.argv[1:] if arguments is None else arguments
    words = [as_text(word) for word in words]
    echo = Echo(words)
    options = command_parser(echo).parse_args(words)
    if sys.stdout is None or sys.stderr is None:  # `>&-` in a shell
        return _complain("standard output and standard error must be open", BAD_STATUS)
    _show_what_the_terminal_cannot()
    try:
        with _terminable(), _logging(echo, is_verbose=getattr(options, "verbose", False)):
            status: int = options.run(options)
        write_output(is_flushed=True)
    except BrokenPipeError:
        _drop_output()
        return _complain("the output was closed early", CLOSED_PIPE_STATUS)
    except Terminated as end:
        return _complain(": ".join(["terminated", *end.args]), TERMINATED_STATUS)
    except KeyboardInterrupt as interrupt:
        return _complain(": ".join(["interrupted", *interrupt.args]), INTERRUPTED_STATUS)
    except (KafkaError, OSError) as error:
        return _complain(echo.masked(reason_of(error)), BAD_STATUS)
    return status


class _Parser(argparse.ArgumentParser):
    """A parser, also for each command, that does not accept abbreviated options.

    Otherwise ``--partition``, a partition's number, would be taken for ``--partitions``, a count.
    Its errors repeat words of the command line without secrets.
    """

    def __init__(self, *arguments: Any, echo: Echo, **keywords: Any) -> None:
        keywords.setdefault("allow_abbrev", False)
        super().__init__(*arguments, **keywords)
        self._echo = echo

    def add_subparsers(self, **keywords: Any) -> Any:
        made: Any = partial(_Parser, echo=self._echo)
        return super().add_subparsers(parser_class=made, **keywords)

    def error(self, message: str) -> NoReturn:
        super().error(self._echo.masked(message))


def command_parser(echo: Echo | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command line. `echo` masks secrets in its messages."""
    parser = _Parser(
        echo=Echo() if echo is None else echo,
        prog="pykclient",
        description="Kafka at the command line.",
        formatter_class=argparse.RawDescriptionHelpFormatter,  # the version has two lines
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = add_parts(parser, "commands", "COMMAND")
    for command in (broker, topics, produce, consume, scan, groups, transactions, spark, log):
        command.add_command(commands)
    return parser


def _version() -> str:
    """Return the version and the core in use; for the pure core, why, and how to change it."""
    version = f"pykclient {__version__} ({accel.implementation} core)"
    if accel.implementation_note is None:
        return version
    is_forced = bool(os.environ.get("PYKCLIENT_ACCEL"))
    cure = "unset that variable" if is_forced else accel.CURE
    return (
        f"{version}\nThe pure core does the same as the compiled one, but slower. It is used "
        f"because {accel.implementation_note}; for the compiled core {cure}."
    )


@contextmanager
def _terminable() -> Iterator[None]:
    """Raise `Terminated` at SIGTERM, so that clients close and leave their groups."""
    if current_thread() is not main_thread():  # only the main thread may set handlers
        yield
        return
    former = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated


class _Lines(logging.Handler):
    """Writes warnings in the form of a command's errors.

    A warning about settings is shown once, even if a command has two clients.
    """

    def __init__(self, echo: Echo) -> None:
        super().__init__(logging.WARNING)
        self._echo = echo
        self._written: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        message = self._echo.masked(CLIENT_NAME.sub("", record.getMessage()))
        if record.name == "pykclient.security":
            if message in self._written:
                return
            self._written.add(message)
        if sys.stderr.isatty() or not message.startswith(STILL_WAITING):
            sys.stderr.write(f"pykclient: {message}\n")


@contextmanager
def _logging(echo: Echo, *, is_verbose: bool) -> Iterator[None]:
    """Hide repeated log lines of connections: the command's error covers them.

    Other log lines are shown like the command's own. A line about a wait is only shown on a
    terminal.
    """
    network, package = logging.getLogger("pykclient.network"), logging.getLogger("pykclient")
    level = network.level
    lines = _Lines(echo)
    if is_verbose:
        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    else:
        network.setLevel(logging.ERROR)
        package.addHandler(lines)
    try:
        yield
    finally:
        network.setLevel(level)
        package.removeHandler(lines)


def _complain(reason: str, status: int) -> int:
    """Write the remaining results, then the line; return the exit status."""
    try:
        if sys.stdout is not None:
            write_output(is_flushed=True)
    except OSError as error:
        _drop_output()
        if error.errno != errno.EPIPE:
            reason, status = reason_of(error), BAD_STATUS
    if sys.stderr is not None:
        sys.stderr.write(f"pykclient: {reason}\n")
    return status


def _drop_output() -> None:
    """Discard unwritten output: Python would retry at exit, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_what_the_terminal_cannot() -> None:
    """Escape letters that the terminal's encoding lacks.

    Other clients choose the names of groups and topics, and no name may end the command.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a test may have replaced it
            stream.reconfigure(errors="backslashreplace")
