"""The Kafka jars with the schemas: their place and contents, and running Java on them."""

from __future__ import annotations

import os
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pykclient.testing.cluster.jars import kafka_jars
from pykclient.testing.cluster.java import MissingPrerequisiteError, find_java

KAFKA_VERSION = "4.4.0"

COMPILER_MODULE = "jdk.compiler"

COORDINATORS = ("group", "share", "transaction")
"""Coordinators whose records have schemas, each in a jar beside the clients' jar."""
SINCE_4_0 = "share"
"""Coordinator that Kafka 3.9 does not have."""
CLIENTS = "kafka-clients-"


class JarError(Exception):
    """A jar that cannot be read; the message names it, and what to do."""


@dataclass(frozen=True, slots=True)
class ErrorFacts:
    """One constant of Java's enum ``Errors``."""

    code: int
    name: str
    is_retriable: bool
    is_metadata_stale: bool


class SettingFacts(NamedTuple):
    """One setting of one client, as its ``ConfigDef`` has it; all of it text."""

    client: str
    name: str
    type: str
    default: str
    importance: str
    rule: str


def find_jar() -> Path:
    """Return the kafka-clients jar in the cache folder; fetch it with its needs if missing."""
    return kafka_jars(KAFKA_VERSION).clients_jar


def read_schemas(jar: Path) -> dict[str, str]:
    """Return the texts of all message schemas in `jar` and the coordinators' jars, by name.

    Raises:
        JarError: one is missing, or has no schemas.
    """
    if not jar.name.startswith(CLIENTS):
        raise JarError(
            f"{jar} is not named {CLIENTS}<version>.jar; give that jar, under its own name, with "
            "the jars that it needs beside it"
        )
    version = jar.name.removeprefix(CLIENTS)
    schemas = _schemas_in(jar)
    for name in COORDINATORS:
        coordinator = jar.with_name(f"kafka-{name}-coordinator-{version}")
        if coordinator.exists() or name != SINCE_4_0 or not version.startswith("3."):
            schemas |= _schemas_in(coordinator)
    return schemas


def _schemas_in(jar: Path) -> dict[str, str]:
    if not jar.exists():
        raise JarError(f"{jar} does not exist; put it there, or give a version such as 4.4.0")
    if not zipfile.is_zipfile(jar):
        raise JarError(f"{jar} is not a jar; fetch it again, or give a version such as 4.4.0")
    with zipfile.ZipFile(jar) as archive:
        schemas = {
            Path(name).stem: archive.read(name).decode()
            for name in sorted(archive.namelist())
            if name.startswith("common/message/") and name.endswith(".json")
        }
    if not schemas:
        raise JarError(f"{jar} has no message schemas; give {CLIENTS}<version>.jar of Kafka")
    return schemas


def read_errors(jar: Path) -> list[ErrorFacts]:
    """Return all error codes but NONE, in the enum's order.

    Raises:
        MissingPrerequisiteError: the Java has no compiler.
        JarError: its classes cannot be used.
    """
    facts = [
        ErrorFacts(int(code), name, retriable == "true", stale == "true")
        for code, name, retriable, stale in map(str.split, _run(jar, "ErrorFacts.java"))
    ]
    return [fact for fact in facts if fact.name != "NONE"]


def read_settings(jar: Path) -> list[SettingFacts]:
    """Return all settings of the three clients that Kafka does not call internal.

    Raises:
        MissingPrerequisiteError: the Java has no compiler.
        JarError: its classes cannot be used.
    """
    return [SettingFacts(*line.split("\t")) for line in _run(jar, "SettingFacts.java")]


def _run(jar: Path, program: str) -> list[str]:
    """Start Java with `jar` and the jars beside it (slf4j is needed); return what it prints."""
    java = find_java()
    if not java.has_module(COMPILER_MODULE):
        raise MissingPrerequisiteError(
            f"{java.executable} has no compiler (module {COMPILER_MODULE}), with which Kafka's "
            f"error codes and settings are read; install a full JDK (Debian, Ubuntu: apt-get "
            f"install openjdk-17-jdk-headless)"
        )
    source = Path(__file__).with_name(program)
    classpath = os.pathsep.join((str(jar), str(jar.parent / "*")))
    run = subprocess.run(
        [str(java.executable), "-cp", classpath, str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode != 0:
        raise JarError(
            f"{jar} cannot be used; see that the jars that it needs, as slf4j-api, are beside it. "
            f"Java says: {run.stderr.partition(chr(10))[0]}"
        )
    return run.stdout.splitlines()
