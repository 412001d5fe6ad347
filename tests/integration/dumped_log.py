"""Java's DumpLogSegments on one file, and `pykclient log` on the same.

Owner: the calling thread, for the length of one call.
"""

from __future__ import annotations

import io
import re
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING

from pykclient.cli import main
from pykclient.testing.cluster.jars import kafka_jars
from pykclient.testing.cluster.java import find_java

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["java_dump", "our_dump"]

TIMEOUT_S = 120.0


def java_dump(version: str, path: Path, *arguments: str) -> list[str]:
    """The lines that the tool of a Kafka version prints; it may complain of gaps, and no more."""
    package = "kafka.tools" if version < "4" else "org.apache.kafka.tools"
    quiet = ("-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
    java = [str(find_java().executable), *quiet, "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8"]
    tool = ["-cp", kafka_jars(version).classpath, f"{package}.DumpLogSegments"]
    command = [*java, *tool, "--files", str(path), *arguments]
    answer = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)
    complaint = answer.stderr.decode(errors="replace")
    assert answer.returncode == 0, complaint
    # It wants the offsets of every segment to begin at 0.
    gap = re.compile(r"Non-consecutive offsets in .*|  -?\d+ is followed by \d+")
    assert all(gap.fullmatch(line) for line in complaint.splitlines()), complaint
    # Only line feeds end a line: a record may hold any other character.
    return answer.stdout.decode().split("\n")


def our_dump(path: Path, *arguments: str) -> list[str]:
    """The lines that `pykclient log` prints; none of them may be a complaint."""
    output, complaint = io.StringIO(), io.StringIO()
    # In this process: a new one for each of many searches would cost half a minute.
    with redirect_stdout(output), redirect_stderr(complaint):
        status = main(["log", str(path), *arguments])
    assert (status, complaint.getvalue()) == (0, "")
    return output.getvalue().split("\n")
