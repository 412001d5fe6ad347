"""Java's DumpLogSegments on one file, and `pykclient log` on the same.

Owner: the calling thread, for the length of one call.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

from pykclient.testing.jvm import find_java
from pykclient.testing.kafka_jars import kafka_jars

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["java_dump", "our_dump"]

TIMEOUT_S = 120.0


def java_dump(version: str, path: Path, *arguments: str) -> list[str]:
    """The lines that the tool of a Kafka version prints; it may complain of gaps, and no more."""
    package = "kafka.tools" if version < "4" else "org.apache.kafka.tools"
    quiet = ("-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
    java = [str(find_java().executable), *quiet, "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8"]
    tool = ["-cp", kafka_jars(version).classpath, f"{package}.DumpLogSegments"]
    lines, complaint = _run([*java, *tool, "--files", str(path), *arguments])
    # It wants the offsets of every segment to begin at 0.
    gap = re.compile(r"Non-consecutive offsets in .*|  -?\d+ is followed by \d+")
    assert all(gap.fullmatch(line) for line in complaint.splitlines()), complaint
    return lines


def our_dump(path: Path, *arguments: str) -> list[str]:
    """The lines that `pykclient log` prints; none of them may be a complaint."""
    lines, complaint = _run([sys.executable, "-m", "pykclient", "log", str(path), *arguments])
    assert complaint == ""
    return lines


def _run(command: Sequence[str]) -> tuple[list[str], str]:
    answer = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)
    complaint = answer.stderr.decode(errors="replace")
    assert answer.returncode == 0, complaint
    # Only line feeds end a line: a record may hold any other character.
    return answer.stdout.decode().split("\n"), complaint
