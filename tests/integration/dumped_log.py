"""Java's DumpLogSegments on one file, and `pykclient log` on the same.

Owner: the calling thread, for the length of one call.
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING

from pykclient.cli import main
from tests.integration.java_tools import dump_segments

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["java_dump", "our_dump"]


def java_dump(version: str, path: Path, *arguments: str) -> list[str]:
    """The lines that the tool of a Kafka version prints; it may complain of gaps, and no more."""
    output, complaint = (each.decode() for each in dump_segments(version, path, options=arguments))
    # It wants the offsets of every segment to begin at 0.
    gap = re.compile(r"Non-consecutive offsets in .*|  -?\d+ is followed by \d+")
    assert all(gap.fullmatch(line) for line in complaint.splitlines()), complaint
    # Only line feeds end a line: a record may hold any other character.
    return output.split("\n")


def our_dump(path: Path, *arguments: str) -> list[str]:
    """The lines that `pykclient log` prints; none of them may be a complaint."""
    output, complaint = io.StringIO(), io.StringIO()
    # In this process: a new one for each of many searches would cost half a minute.
    with redirect_stdout(output), redirect_stderr(complaint):
        status = main(["log", str(path), *arguments])
    assert (status, complaint.getvalue()) == (0, "")
    return output.getvalue().split("\n")
