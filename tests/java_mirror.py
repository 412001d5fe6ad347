"""Programs in Java, run from their source, for tests that hold ours against Kafka's classes.

The Java runtime that `make` may fetch runs Kafka and has no compiler, so these tests need more
than the brokers do. Where that cannot be had they are skipped with the cure, and in CI they fail.

Owner: the test that made it.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final, Self

from pykclient.testing.cluster.jars import kafka_jars
from pykclient.testing.cluster.java import MissingPrerequisiteError, find_java
from pykclient.testing.fixtures import skip_or_fail
from pykclient.testing.spark_cluster.home import QUICK_JVM

if TYPE_CHECKING:
    from pathlib import Path

    from pykclient.testing.cluster.java import Java

COMPILER_MODULE: Final = "jdk.compiler"
EXIT_TIMEOUT_S: Final = 30.0


def java_with_compiler() -> Java:
    """Find it, or end the test that needs it."""
    try:
        java = find_java()
    except MissingPrerequisiteError as error:
        skip_or_fail(f"Kafka's own classes cannot be run: {error}")
    if not java.has_module(COMPILER_MODULE):
        skip_or_fail(
            f"{java.executable} has no compiler (module {COMPILER_MODULE}), which the Java half of "
            "this test needs: put a full JDK 17 or newer on the PATH or in JAVA_HOME "
            "(Debian, Ubuntu: apt-get install openjdk-17-jre-headless)"
        )
    return java


class JavaMirror:
    """A long-lived process with Kafka's own classes: a request, and a response, are a line each.

    A context manager that ends it. Where there is no Java, no compiler or no jar it ends the test.
    """

    def __init__(self, source: Path) -> None:
        java = java_with_compiler()
        try:
            jars = kafka_jars()
        except MissingPrerequisiteError as error:
            skip_or_fail(str(error))
        silent = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
        self._process = subprocess.Popen(
            [
                str(java.executable),
                "-Xmx256m",
                *QUICK_JVM,
                silent,
                *jars.java_options(java),
                str(source),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=EXIT_TIMEOUT_S)

    def call(self, line: str) -> str:
        """Return the line that Java prints; what it raised is the test's failure."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        response = self._process.stdout.readline().rstrip("\n")
        assert response, "the Java process has ended"
        assert not response.startswith("error "), f"{response}; the line was {line[:200]}"
        return response
