"""The Java that runs a program from its source, for tests that hold ours against Kafka's classes.

The Java runtime that `make` may fetch runs Kafka and has no compiler, so these tests ask for more
than the brokers do. Where that cannot be had they are skipped with the cure, and in CI they fail.

Owner: none; it holds no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.testing.cluster.java import MissingPrerequisiteError, find_java
from pykclient.testing.fixtures import skip_or_fail

if TYPE_CHECKING:
    from pykclient.testing.cluster.java import Java

__all__ = ["java_with_compiler"]

COMPILER_MODULE = "jdk.compiler"


def java_with_compiler() -> Java:
    """Find it, or end the test that asks."""
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
