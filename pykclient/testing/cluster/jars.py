"""Kafka's own jars, fetched once into the user's cache folder.

A version's folder ``$XDG_CACHE_HOME/pykclient/kafka-<version>`` (``~/.cache`` where that is unset)
either does not exist or is complete: the jars are fetched into a folder beside it, checked, and
moved into place in one step, under a file lock so that several processes fetch once. Once it is
there no network is needed.

They come from Maven Central, through ``mvn`` where it is on the PATH, else through the Ivy that the
PyPI package ``pyspark`` carries; both read the registry that they were set up for. The set is
``kafka_2.13`` and ``kafka-tools`` with their dependencies, and slf4j-simple as the one logger,
since it is set by system properties and needs no file.

Run as ``python -m pykclient.testing.cluster.jars [version ...]`` it fetches and prints the folders.

Owner: the file system, under the lock file beside the folder.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pykclient.errors.base import ConfigError, KafkaTimeoutError
from pykclient.testing.clock import Deadline
from pykclient.testing.cluster.java import MissingPrerequisiteError, find_java

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pykclient.testing.cluster.java import Java

KAFKA_VERSIONS = ("4.3.1", "3.9.2")
"""The versions that are tested here, the default first. Any from 3.9 on may be given."""

VERSION_MIN = (3, 9)
FETCH_TIMEOUT_S = 600.0
LOCK_PAUSE_S = 0.1
OUTPUT_TAIL_LINES = 15

# A Java from PyPI does not know the certificates that were added to this machine.
_TRUST_CURE = (
    " Java does not trust the registry's certificate: name a trust store that has it, as in "
    "JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=/etc/ssl/certs/java/cacerts."
)

_SCALA = "2.13"
_DEPENDENCIES = (
    ("org.apache.kafka", f"kafka_{_SCALA}", "{version}"),
    ("org.apache.kafka", "kafka-tools", "{version}"),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)
# Kafka 3.9 brings a logger of its own; two at once log a complaint and choose by chance.
_EXCLUDED = (("org.slf4j", "slf4j-reload4j"),)


@dataclass(frozen=True, slots=True)
class KafkaJars:
    """The jars of one Kafka version, complete on this machine."""

    version: str
    folder: Path

    @property
    def classpath(self) -> str:
        """What ``java -cp`` takes, in a fixed order."""
        return os.pathsep.join(str(jar) for jar in sorted(self.folder.glob("*.jar")))

    def class_archive(self, java: Java) -> Path:
        """Where `class_archive` puts the classes as this Java maps them into its memory."""
        return self.folder / f"classes-{java.vm_version}.jsa"

    def java_options(self, java: Java) -> tuple[str, ...]:
        """What a Java takes to run a class of these jars; with their archive, if there is one."""
        archive = self.class_archive(java)
        # One of another Java is passed over; without a word, since it would be in a tool's output.
        silent = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
        mapped = (f"-XX:SharedArchiveFile={archive}", *silent) if archive.exists() else ()
        return (*mapped, "-cp", self.classpath)

    @property
    def clients_jar(self) -> Path:
        """The jar that holds the message schemas and Kafka's own client."""
        return self.folder / f"kafka-clients-{self.version}.jar"


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """The folder under which this package caches; `environ` None means this process's own."""
    environment = os.environ if environ is None else environ
    # The XDG specification: a relative path in the variable is invalid and ignored.
    base = Path(environment.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "pykclient"


def kafka_jars(
    version: str = KAFKA_VERSIONS[0], *, environ: Mapping[str, str] | None = None
) -> KafkaJars:
    """Give the jars of a Kafka version, fetching them if they are not cached yet.

    `environ` None means this process's environment (``XDG_CACHE_HOME``, ``PATH``, ``JAVA_HOME``).

    Raises:
        ConfigError: the version is not a Kafka version from 3.9 on.
        MissingPrerequisiteError: there is no way to fetch them, or fetching failed; says the cure.
        KafkaTimeoutError: another process has been fetching them for more than ten minutes.
    """
    environment = os.environ if environ is None else environ
    check_version(version)
    folder = cache_folder(environment) / f"kafka-{version}"
    jars = KafkaJars(version, folder)
    if _lacking(jars):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder.with_name(f"{folder.name}.lock")):
            if _lacking(jars):
                _fetch(jars, environment)
    return jars


def check_version(version: str) -> None:
    """Check that a version of Kafka can be started. Raises `ConfigError`."""
    numbers = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < VERSION_MIN:
        raise ConfigError(
            f"{version!r} is not a Kafka version that can be started here: give one from "
            f"{'.'.join(map(str, VERSION_MIN))}.0 on, with three numbers, such as "
            f"{' or '.join(map(repr, KAFKA_VERSIONS))}"
        )


def _lacking(jars: KafkaJars) -> list[str]:
    """The jars without which nothing here works and which are absent or not whole."""
    names = [
        f"kafka_{_SCALA}-{jars.version}.jar",
        f"kafka-tools-{jars.version}.jar",
        jars.clients_jar.name,
    ]
    return [name for name in names if not zipfile.is_zipfile(jars.folder / name)]


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold the file's lock; the kernel frees it when the holder dies, however it dies."""
    deadline = Deadline(FETCH_TIMEOUT_S)
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if deadline.has_passed():
                    raise KafkaTimeoutError(
                        f"another process has held {path} for {deadline.timeout_ms} ms; "
                        "if it hangs while it fetches Kafka's jars, end it"
                    ) from None
                time.sleep(LOCK_PAUSE_S)
        yield


def _fetch(jars: KafkaJars, environ: Mapping[str, str]) -> None:
    """Requires the version's lock, so that whatever lies beside the folder is left over."""
    for leftover in jars.folder.parent.glob(f"{jars.folder.name}.partial-*"):
        shutil.rmtree(leftover)
    partial = Path(tempfile.mkdtemp(prefix=f"{jars.folder.name}.partial-", dir=jars.folder.parent))
    try:
        fetched = KafkaJars(jars.version, partial / "jars")
        _way_to_fetch(environ)(fetched, environ)
        lacking = _lacking(fetched)
        if lacking:
            raise MissingPrerequisiteError(
                f"Kafka {jars.version} was fetched without {', '.join(lacking)}; "
                "check the Maven mirror that this machine is set up for"
            )
        if jars.folder.exists():  # An earlier one was damaged.
            shutil.rmtree(jars.folder)
        fetched.folder.rename(jars.folder)
    finally:
        shutil.rmtree(partial)


def _way_to_fetch(
    environ: Mapping[str, str],
) -> Callable[[KafkaJars, Mapping[str, str]], None]:
    if shutil.which("mvn", path=environ.get("PATH", "")) is not None:
        return _fetch_with_maven
    if _ivy_jar() is not None:
        return _fetch_with_ivy
    raise MissingPrerequisiteError(
        "Kafka's jars are not cached, and there is nothing to fetch them with: mvn is not on the "
        "PATH, and the PyPI package pyspark, whose Ivy would do, is not installed. To cure it, "
        "install Maven (Debian, Ubuntu: apt-get install maven), or: pip install pyspark; or copy "
        f"the folder kafka-<version> from another machine's cache into {cache_folder(environ)}."
    )


def _fetch_with_maven(target: KafkaJars, environ: Mapping[str, str]) -> None:
    exclusions = "".join(
        f"<exclusion><groupId>{group}</groupId><artifactId>{name}</artifactId></exclusion>"
        for group, name in _EXCLUDED
    )
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{revision.format(version=target.version)}</version>"
        f"<exclusions>{exclusions}</exclusions></dependency>\n"
        for group, name, revision in _DEPENDENCIES
    )
    pom = target.folder.parent / "pom.xml"
    pom.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0">\n'
        "<modelVersion>4.0.0</modelVersion>\n"
        "<groupId>pykclient</groupId><artifactId>kafka</artifactId><version>0</version>\n"
        f"<dependencies>\n{dependencies}</dependencies>\n</project>\n"
    )
    command = [
        *("mvn", "-q", "-B", "-Dstyle.color=never", "-f", str(pom)),
        *("dependency:copy-dependencies", f"-DoutputDirectory={target.folder}"),
    ]
    _run(command, target.version, environ)


def _fetch_with_ivy(target: KafkaJars, environ: Mapping[str, str]) -> None:
    dependencies = "".join(
        f'<dependency org="{group}" name="{name}" '
        f'rev="{revision.format(version=target.version)}" conf="default->default"/>\n'
        for group, name, revision in _DEPENDENCIES
    )
    exclusions = "".join(f'<exclude org="{group}" module="{name}"/>\n' for group, name in _EXCLUDED)
    module = target.folder.parent / "ivy.xml"
    module.write_text(
        '<ivy-module version="2.0">\n<info organisation="pykclient" module="kafka"/>\n'
        f"<dependencies>\n{dependencies}{exclusions}</dependencies>\n</ivy-module>\n"
    )
    command = [
        *(str(find_java(environ).executable), "-cp", str(_ivy_jar()), "org.apache.ivy.Main"),
        *("-ivy", str(module), "-cache", str(target.folder.parent / "ivy-cache")),
        *("-confs", "default", "-types", "jar", "bundle"),
        *("-retrieve", f"{target.folder}/[artifact]-[revision].[ext]"),
    ]
    _run(command, target.version, environ)


def _ivy_jar() -> Path | None:
    """The Ivy inside pyspark, which is found without being imported."""
    pyspark = importlib.util.find_spec("pyspark")
    folders = [] if pyspark is None else pyspark.submodule_search_locations or []
    found = sorted(jar for folder in folders for jar in Path(folder, "jars").glob("ivy-*.jar"))
    return found[-1] if found else None


def _run(command: Sequence[str], version: str, environ: Mapping[str, str]) -> None:
    try:
        ended = subprocess.run(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingPrerequisiteError(
            f"fetching the jars of Kafka {version} failed: {error}; it needs a registry of Maven "
            "packages once, and nothing after that"
        ) from error
    if ended.returncode != 0:
        output = ended.stdout.decode(errors="replace")
        tail = "\n".join(output.splitlines()[-OUTPUT_TAIL_LINES:])
        raise MissingPrerequisiteError(
            f"fetching the jars of Kafka {version} failed: {command[0]} ended with status "
            f"{ended.returncode}; it needs a registry of Maven packages once, and nothing after "
            f"that.{_TRUST_CURE if 'PKIX' in output else ''} Its last lines:\n{tail}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch the jars of the given Kafka versions, all tested ones when none is given."""
    parser = argparse.ArgumentParser(
        prog="python -m pykclient.testing.cluster.jars", description=main.__doc__
    )
    parser.add_argument("version", nargs="*", help=f"such as {KAFKA_VERSIONS[0]}")
    for version in parser.parse_args(arguments).version or KAFKA_VERSIONS:
        try:
            jars = kafka_jars(version)
        except (ConfigError, MissingPrerequisiteError, KafkaTimeoutError) as error:
            sys.stderr.write(f"{error}\n")
            return 1
        sys.stdout.write(f"Kafka {version}: {jars.folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
