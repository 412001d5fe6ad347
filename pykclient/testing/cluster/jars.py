"""Kafka's jars, and other sets of jars, downloaded once into the user's cache folder.

The folder of a set, such as ``$XDG_CACHE_HOME/pykclient/kafka-<version>`` (default ``~/.cache``),
either does not exist or is complete: jars are downloaded into a folder next to it, verified, and
moved into place in one step, under a file lock so that only one process downloads. After that no
network is needed.

They come from Maven Central, through ``mvn`` if it is on the PATH, otherwise through the Ivy in the
PyPI package ``pyspark``; both use the registry they are configured for. Kafka's set is
``kafka_2.13`` and ``kafka-tools`` with dependencies, and slf4j-simple as the only logger, because
it is configured by system properties and needs no file.

Jars of the tested versions are verified against the digests in ``digests/``; every jar of such a
set must have one. Other versions are verified against the registry's checksums.

``python -m pykclient.testing.cluster.jars [version ...]`` downloads jars and prints their folders.

Owner: the file system, under the lock file next to the folder.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
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
from typing import TYPE_CHECKING, NamedTuple

from pykclient.errors.base import ConfigError, KafkaTimeoutError
from pykclient.testing.clock import Deadline
from pykclient.testing.cluster.java import MissingPrerequisiteError, find_java

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pykclient.testing.cluster.java import Java

KAFKA_VERSIONS = ("4.4.0", "4.3.1", "3.9.2")
"""Tested versions, the default first. Any version from 3.9 on may be given."""

VERSION_MIN = (3, 9)
FETCH_TIMEOUT_S = 600.0
LOCK_PAUSE_S = 0.1
OUTPUT_TAIL_LINES = 15

# A Java from PyPI does not know the certificates added to this machine.
_TRUST_CURE = (
    " Java does not trust the registry's certificate: name a trust store that has it, as in "
    "JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=/etc/ssl/certs/java/cacerts."
)

_SCALA = "2.13"


class Artifact(NamedTuple):
    """A jar by its Maven coordinates."""

    group: str
    name: str
    version: str

    @property
    def jar(self) -> str:
        """File name of the jar."""
        return f"{self.name}-{self.version}.jar"


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are downloaded together into one cache folder, all or none.

    `title` is the set's name in messages. `artifacts` include their dependencies, except for
    `excluded` (groups and names), unless `is_alone`. The folder is complete if it has `required`.
    """

    title: str
    folder_name: str
    artifacts: tuple[Artifact, ...]
    required: tuple[str, ...]
    excluded: tuple[tuple[str, str], ...] = ()
    is_alone: bool = False
    digests: Path | None = None
    """File in the format of ``sha256sum`` with all jars; None if there is none."""


@dataclass(frozen=True, slots=True)
class KafkaJars:
    """The complete jars of a Kafka version on this machine."""

    version: str
    folder: Path

    @property
    def classpath(self) -> str:
        """Argument of ``java -cp``, in a fixed order."""
        return os.pathsep.join(str(jar) for jar in sorted(self.folder.glob("*.jar")))

    def class_archive(self, java: Java) -> Path:
        """Return the path of this Java's class archive, which `kafka_classes` writes."""
        return self.folder / f"classes-{java.vm_version}.jsa"

    def java_options(self, java: Java) -> tuple[str, ...]:
        """Return Java's options to run a class of these jars, with their archive if it exists."""
        archive = self.class_archive(java)
        # An archive of another Java is ignored; quietly, to keep it out of a tool's output.
        silent = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
        mapped = (f"-XX:SharedArchiveFile={archive}", *silent) if archive.exists() else ()
        return (*mapped, "-cp", self.classpath)

    @property
    def clients_jar(self) -> Path:
        """The jar with the message schemas and Kafka's own client."""
        return self.folder / f"kafka-clients-{self.version}.jar"


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return this package's cache folder; `environ` None means this process's environment."""
    environment = os.environ if environ is None else environ
    # As the XDG specification requires, ignore a relative path.
    base = Path(environment.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "pykclient"


def kafka_jars(
    version: str = KAFKA_VERSIONS[0], *, environ: Mapping[str, str] | None = None
) -> KafkaJars:
    """Return the jars of a Kafka version, downloading them if needed.

    `environ` None means this process's environment (``XDG_CACHE_HOME``, ``PATH``, ``JAVA_HOME``).

    Raises:
        ConfigError: this is not a Kafka version from 3.9 on.
        MissingPrerequisiteError: they cannot be downloaded; the message tells what to do.
        KafkaTimeoutError: another process has been downloading for more than ten minutes.
    """
    check_version(version)
    kafka, tools, clients = (
        Artifact("org.apache.kafka", name, version)
        for name in (f"kafka_{_SCALA}", "kafka-tools", "kafka-clients")
    )
    wanted = JarSet(
        title=f"Kafka {version}",
        folder_name=f"kafka-{version}",
        artifacts=(kafka, tools, Artifact("org.slf4j", "slf4j-simple", "1.7.36")),
        required=(kafka.jar, tools.jar, clients.jar),
        # Kafka 3.9 has its own logger; two of them log a warning, and which one wins is random.
        excluded=(("org.slf4j", "slf4j-reload4j"),),
        digests=digests_of_kafka(version),
    )
    return KafkaJars(version, cached_jars(wanted, environ=environ))


def cached_jars(wanted: JarSet, *, environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder of a set of jars, downloading them if needed.

    `environ` None means this process's environment (``XDG_CACHE_HOME``, ``PATH``, ``JAVA_HOME``).

    Raises:
        MissingPrerequisiteError: they cannot be downloaded; the message tells what to do.
        KafkaTimeoutError: another process has been downloading for more than ten minutes.
    """
    environment = os.environ if environ is None else environ
    folder = cache_folder(environment) / wanted.folder_name
    if _lacking(wanted, folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder.with_name(f"{folder.name}.lock")):
            if _lacking(wanted, folder):
                _fetch(wanted, folder, environment)
    return folder


def digests_of_kafka(version: str) -> Path | None:
    """Return the file with the digests of a version's jars, None if there is none."""
    found = Path(__file__).with_name("digests") / f"kafka-{version}.sha256"
    return found if found.exists() else None


def check_digests(folder: Path, digests: Path | None, title: str) -> None:
    """Verify the digests of jars.

    Raises:
        MissingPrerequisiteError: a jar differs, or has no digest; the message names it.
    """
    if digests is None:
        return
    lines = [line.split() for line in digests.read_text(encoding="ascii").splitlines()]
    known = {name: digest for digest, name in lines}
    for jar in sorted(folder.glob("*.jar")):
        with jar.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if known.get(jar.name) == digest:
            continue
        problem = (
            f"is another file than the one with the digest in {digests.name}"
            if jar.name in known
            else f"has no digest in {digests.name}"
        )
        raise MissingPrerequisiteError(
            f"{jar.name}, downloaded with {title}, {problem}, so nothing was kept. Its SHA-256 is "
            f"{digest}; check the Maven mirror that this machine uses"
        )


def check_version(version: str) -> None:
    """Check that a Kafka version is supported. Raises `ConfigError`."""
    numbers = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < VERSION_MIN:
        raise ConfigError(
            f"{version!r} is not a supported Kafka version: give one from "
            f"{'.'.join(map(str, VERSION_MIN))}.0 on, with three numbers, such as "
            f"{' or '.join(map(repr, KAFKA_VERSIONS))}"
        )


def _lacking(wanted: JarSet, folder: Path) -> list[str]:
    """Return the required jars that are missing or incomplete."""
    return [name for name in wanted.required if not zipfile.is_zipfile(folder / name)]


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold the file's lock; the kernel releases it if the holder dies."""
    import fcntl  # not on Windows, where clusters do not run either

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
                        "if it hangs in the download of the jars, end it"
                    ) from None
                time.sleep(LOCK_PAUSE_S)
        yield


def _fetch(wanted: JarSet, folder: Path, environ: Mapping[str, str]) -> None:
    """Download a set. Requires its lock, so that any partial folder is a leftover."""
    for leftover in folder.parent.glob(f"{folder.name}.partial-*"):
        shutil.rmtree(leftover)
    partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}.partial-", dir=folder.parent))
    try:
        fetched = partial / "jars"
        _fetcher_for(wanted, environ)(wanted, fetched, environ)
        lacking = _lacking(wanted, fetched)
        if lacking:
            raise MissingPrerequisiteError(
                f"{wanted.title} was downloaded without {', '.join(lacking)}; "
                "check the Maven mirror that this machine uses"
            )
        check_digests(fetched, wanted.digests, wanted.title)
        if folder.exists():  # an earlier download is damaged
            shutil.rmtree(folder)
        fetched.rename(folder)
    finally:
        shutil.rmtree(partial)


def _fetcher_for(
    wanted: JarSet, environ: Mapping[str, str]
) -> Callable[[JarSet, Path, Mapping[str, str]], None]:
    if shutil.which("mvn", path=environ.get("PATH", "")) is not None:
        return _fetch_with_maven
    if _ivy_jar() is not None:
        return _fetch_with_ivy
    raise MissingPrerequisiteError(
        f"the jars of {wanted.title} are not cached and cannot be downloaded: mvn "
        "is not on the PATH, and the PyPI package pyspark, which includes Ivy, is not installed. "
        "Install Maven (Debian, Ubuntu: apt-get install maven), or: pip install "
        f"pyspark; or copy the folder {wanted.folder_name} from another machine's cache into "
        f"{cache_folder(environ)}."
    )


def _fetch_with_maven(wanted: JarSet, folder: Path, environ: Mapping[str, str]) -> None:
    excluded = (("*", "*"),) if wanted.is_alone else wanted.excluded
    exclusions = "".join(
        f"<exclusion><groupId>{group}</groupId><artifactId>{name}</artifactId></exclusion>"
        for group, name in excluded
    )
    dependencies = "".join(
        f"<dependency><groupId>{one.group}</groupId><artifactId>{one.name}</artifactId>"
        f"<version>{one.version}</version>"
        f"<exclusions>{exclusions}</exclusions></dependency>\n"
        for one in wanted.artifacts
    )
    pom = folder.parent / "pom.xml"
    pom.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0">\n'
        "<modelVersion>4.0.0</modelVersion>\n"
        "<groupId>pykclient</groupId><artifactId>jars</artifactId><version>0</version>\n"
        f"<dependencies>\n{dependencies}</dependencies>\n</project>\n"
    )
    command = [
        *("mvn", "-q", "-B", "--strict-checksums", "-Dstyle.color=never", "-f", str(pom)),
        *("dependency:copy-dependencies", f"-DoutputDirectory={folder}"),
    ]
    _run(command, wanted.title, environ)


def _fetch_with_ivy(wanted: JarSet, folder: Path, environ: Mapping[str, str]) -> None:
    transitive = str(not wanted.is_alone).lower()
    dependencies = "".join(
        f'<dependency org="{one.group}" name="{one.name}" '
        f'rev="{one.version}" conf="default->default" transitive="{transitive}"/>\n'
        for one in wanted.artifacts
    )
    exclusions = "".join(
        f'<exclude org="{group}" module="{name}"/>\n' for group, name in wanted.excluded
    )
    module = folder.parent / "ivy.xml"
    module.write_text(
        '<ivy-module version="2.0">\n<info organisation="pykclient" module="jars"/>\n'
        f"<dependencies>\n{dependencies}{exclusions}</dependencies>\n</ivy-module>\n"
    )
    command = [
        *(str(find_java(environ).executable), "-Divy.checksums=sha1,md5"),
        *("-cp", str(_ivy_jar()), "org.apache.ivy.Main"),
        *("-ivy", str(module), "-cache", str(folder.parent / "ivy-cache")),
        *("-confs", "default", "-types", "jar", "bundle"),
        *("-retrieve", f"{folder}/[artifact]-[revision].[ext]"),
    ]
    _run(command, wanted.title, environ)


def _ivy_jar() -> Path | None:
    """Return the Ivy jar in pyspark, found without importing pyspark."""
    pyspark = importlib.util.find_spec("pyspark")
    folders = [] if pyspark is None else pyspark.submodule_search_locations or []
    found = sorted(jar for folder in folders for jar in Path(folder, "jars").glob("ivy-*.jar"))
    return found[-1] if found else None


def _run(command: Sequence[str], title: str, environ: Mapping[str, str]) -> None:
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
            f"the download of the jars of {title} failed: {error}; it needs a Maven registry "
            "once, and no network afterwards"
        ) from error
    if ended.returncode != 0:
        output = ended.stdout.decode(errors="replace")
        tail = "\n".join(output.splitlines()[-OUTPUT_TAIL_LINES:])
        raise MissingPrerequisiteError(
            f"the download of the jars of {title} failed: {command[0]} ended with status "
            f"{ended.returncode}; it needs a Maven registry once, and no network afterwards."
            f"{_TRUST_CURE if 'PKIX' in output else ''} Its last lines:\n{tail}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Download the jars of the given Kafka versions, or of all tested ones."""
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
