"""The Kafka jars with the schemas: where they are, what is in them, and running Java on them."""

from __future__ import annotations

import os
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path

from pykclient.testing.cluster.jars import kafka_jars
from pykclient.testing.cluster.java import MissingPrerequisiteError, find_java

KAFKA_VERSION = "4.4.0"

COMPILER_MODULE = "jdk.compiler"

COORDINATORS = ("group", "share", "transaction")
"""Whose records have schemas of their own, each in a jar beside the clients' jar."""


@dataclass(frozen=True, slots=True)
class ErrorFacts:
    """One constant of Java's enum ``Errors``."""

    code: int
    name: str
    is_retriable: bool
    is_metadata_stale: bool


def find_jar() -> Path:
    """The kafka-clients jar in the cache folder; fetched, with what it needs, when missing."""
    return kafka_jars(KAFKA_VERSION).clients_jar


def read_schemas(jar: Path) -> dict[str, str]:
    """Schema name -> its text, for all message schemas in `jar` and the coordinators' jars."""
    coordinators = (
        jar.with_name(jar.name.replace("-clients-", f"-{name}-coordinator-"))
        for name in COORDINATORS
    )
    schemas: dict[str, str] = {}
    for path in (jar, *coordinators):
        with zipfile.ZipFile(path) as archive:
            schemas |= {
                Path(name).stem: archive.read(name).decode()
                for name in sorted(archive.namelist())
                if name.startswith("common/message/") and name.endswith(".json")
            }
    return schemas


def read_errors(jar: Path) -> list[ErrorFacts]:
    """All error codes but NONE, in the enum's order.

    Starts Java with `jar` and the jars beside it (slf4j is needed).

    Raises:
        MissingPrerequisiteError: the Java has no compiler.
    """
    java = find_java()
    if not java.has_module(COMPILER_MODULE):
        raise MissingPrerequisiteError(
            f"{java.executable} has no compiler (module {COMPILER_MODULE}), with which Kafka's "
            f"error codes are read; install a full JDK (Debian, Ubuntu: apt-get install "
            f"openjdk-17-jdk-headless)"
        )
    source = Path(__file__).with_name("ErrorFacts.java")
    classpath = os.pathsep.join((str(jar), str(jar.parent / "*")))
    run = subprocess.run(
        [str(java.executable), "-cp", classpath, str(source)],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = (line.split() for line in run.stdout.splitlines())
    facts = [
        ErrorFacts(int(code), name, retriable == "true", stale == "true")
        for code, name, retriable, stale in rows
    ]
    return [fact for fact in facts if fact.name != "NONE"]
