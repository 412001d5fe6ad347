"""The cache of Kafka's jars: complete or absent, downloaded once, with clear errors.

Maven and Java are small programs here with the same effects on the file system.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pykclient.errors.base import ConfigError
from pykclient.testing.cluster import jars as module
from pykclient.testing.cluster.jars import (
    KAFKA_VERSIONS,
    Artifact,
    JarSet,
    KafkaJars,
    cache_folder,
    cached_jars,
    kafka_jars,
)
from pykclient.testing.cluster.java import Java, MissingPrerequisiteError
from tests.testing.test_jvm import fake_java

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
VERSION = "4.9.9"
"""A version without digests in this package, as a user may choose."""
JARS = tuple(f"{name}-{VERSION}.jar" for name in ("kafka_2.13", "kafka-tools", "kafka-clients"))
PROCESS_COUNT = 3
TIMEOUT_S = 60


class Machine:
    """A PATH with chosen programs, and a separate cache."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.cache = folder / "cache"
        self.calls = folder / "calls"
        self._jar = folder / "prototype.jar"
        with zipfile.ZipFile(self._jar, "w") as jar:
            jar.writestr("META-INF/MANIFEST.MF", "")

    @property
    def environ(self) -> Mapping[str, str]:
        return {"PATH": str(self.bin), "XDG_CACHE_HOME": str(self.cache)}

    @property
    def call_count(self) -> int:
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0

    def add(self, name: str, body: str) -> None:
        """Put a program on the PATH that records its calls and arguments."""
        program = self.bin / name
        program.write_text(f'#!/bin/sh\nPATH=/usr/bin:/bin\necho "$0 $*" >> {self.calls}\n{body}\n')
        program.chmod(0o755)

    def add_maven(self, *, jars: tuple[str, ...] = JARS, before: str = "") -> None:
        copies = "".join(f'cp {self._jar} "$out/{name}"\n' for name in jars)
        find = 'for word; do case "$word" in -DoutputDirectory=*) out="${word#*=}" ;; esac; done\n'
        self.add("mvn", f'{before}\n{find}mkdir -p "$out"\n{copies}')


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_jars_are_fetched_once_and_then_nothing_is_run(machine: Machine) -> None:
    machine.add_maven()
    first = kafka_jars(VERSION, environ=machine.environ)
    second = kafka_jars(VERSION, environ=machine.environ)
    assert first == second == KafkaJars(VERSION, machine.cache / "pykclient" / f"kafka-{VERSION}")
    assert machine.call_count == 1
    assert first.clients_jar.is_file()
    assert first.classpath.split(os.pathsep) == sorted(str(first.folder / name) for name in JARS)
    leftovers = {path.name for path in first.folder.parent.iterdir()}
    assert leftovers == {f"kafka-{VERSION}", f"kafka-{VERSION}.lock"}


def test_several_processes_fetch_once(machine: Machine, tmp_path: Path) -> None:
    """The download waits until all processes have begun, so that they meet at the lock."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    machine.add_maven(before=f"read line < {gate}")
    program = (
        "from pykclient.testing.cluster.jars import kafka_jars\n"
        "print('asking', flush=True)\n"
        f"print(kafka_jars('{VERSION}').folder)\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=machine.environ,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(PROCESS_COUNT)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "asking\n"
    gate.write_text("go\n")
    folder = str(machine.cache / "pykclient" / f"kafka-{VERSION}")
    for process in processes:
        assert process.communicate(timeout=TIMEOUT_S)[0].strip() == folder
        assert process.returncode == 0
    assert machine.call_count == 1


def test_what_an_interrupted_fetch_left_is_removed(machine: Machine) -> None:
    machine.add_maven()
    leftover = machine.cache / "pykclient" / f"kafka-{VERSION}.partial-1"
    leftover.mkdir(parents=True)
    kafka_jars(VERSION, environ=machine.environ)
    assert not leftover.exists()


def test_a_damaged_cache_is_fetched_anew(machine: Machine) -> None:
    machine.add_maven()
    jars = kafka_jars(VERSION, environ=machine.environ)
    jars.clients_jar.write_bytes(b"half a j")
    assert zipfile.is_zipfile(kafka_jars(VERSION, environ=machine.environ).clients_jar)
    assert machine.call_count == 2


def test_a_failed_fetch_leaves_no_folder_and_shows_why(machine: Machine) -> None:
    machine.add("mvn", "echo no registry in reach; exit 3")
    with pytest.raises(MissingPrerequisiteError, match="status 3") as caught:
        kafka_jars(VERSION, environ=machine.environ)
    assert "no registry in reach" in str(caught.value)
    assert [path.name for path in cache_folder(machine.environ).iterdir()] == [
        f"kafka-{VERSION}.lock"
    ]


def test_a_registry_that_java_does_not_trust_is_named_with_its_cure(machine: Machine) -> None:
    machine.add("mvn", "echo PKIX path building failed; exit 1")
    with pytest.raises(MissingPrerequisiteError, match=r"javax\.net\.ssl\.trustStore"):
        kafka_jars(VERSION, environ=machine.environ)


def test_an_incomplete_fetch_is_not_taken(machine: Machine) -> None:
    machine.add_maven(jars=JARS[:2])
    with pytest.raises(MissingPrerequisiteError, match=r"without kafka-clients-4\.9\.9\.jar"):
        kafka_jars(VERSION, environ=machine.environ)
    assert not (machine.cache / "pykclient" / f"kafka-{VERSION}").exists()


def test_without_maven_the_ivy_of_pyspark_is_used(machine: Machine, tmp_path: Path) -> None:
    """Java is a program that prints its version, and as Ivy retrieves files by the pattern."""
    pytest.importorskip("pyspark")
    java = fake_java(tmp_path / "jdk", "17")
    machine.add(
        "java",
        f'case "$*" in *org.apache.ivy.Main*) ;; *) exec {java} "$@" ;; esac\n'
        'while [ "$1" != -retrieve ]; do shift; done\n'
        'out="${2%/*}"; mkdir -p "$out"\n'
        + "".join(f'cp {tmp_path}/prototype.jar "$out/{name}"\n' for name in JARS),
    )
    jars = kafka_jars(VERSION, environ=machine.environ)
    assert {path.name for path in jars.folder.iterdir()} == set(JARS)
    assert "-Divy.checksums=sha1,md5" in machine.calls.read_text().split()


def test_jars_are_fetched_without_what_they_depend_on_where_that_is_meant(machine: Machine) -> None:
    artifact = Artifact("org.example", "one", "1.0")
    wanted = JarSet("One", "one-1.0", (artifact,), required=("one-1.0.jar",), is_alone=True)
    pom = machine.cache / "pom"
    machine.add_maven(jars=wanted.required, before=f'cp "${{6}}" {pom}')
    assert [path.name for path in cached_jars(wanted, environ=machine.environ).iterdir()] == [
        artifact.jar
    ]
    assert "<groupId>*</groupId><artifactId>*</artifactId></exclusion>" in pom.read_text()


def test_a_jar_with_a_changed_byte_is_refused(machine: Machine, tmp_path: Path) -> None:
    artifact = Artifact("org.example", "one", "1.0")
    digest = sha256((tmp_path / "prototype.jar").read_bytes()).hexdigest()
    pins = tmp_path / "one.sha256"

    def fetched(*lines: str) -> Path:
        pins.write_text("".join(f"{line}\n" for line in lines))
        wanted = JarSet("One", "one-1.0", (artifact,), (artifact.jar,), digests=pins)
        return cached_jars(wanted, environ=machine.environ)

    machine.add_maven(jars=(artifact.jar, "two-1.0.jar"))
    with pytest.raises(MissingPrerequisiteError, match=r"two-1\.0\.jar, .* no digest in one"):
        fetched(f"{digest}  one-1.0.jar")
    changed = digest.replace(digest[0], "0" if digest[0] != "0" else "1", 1)
    with pytest.raises(MissingPrerequisiteError, match=r"one-1\.0\.jar, .* another file than"):
        fetched(f"{changed}  one-1.0.jar", f"{digest}  two-1.0.jar")
    assert not (machine.cache / "pykclient" / "one-1.0").exists()
    folder = fetched(f"{digest}  one-1.0.jar", f"{digest}  two-1.0.jar", f"{digest}  three.jar")
    assert {path.name for path in folder.iterdir()} == {"one-1.0.jar", "two-1.0.jar"}


@pytest.mark.parametrize("version", KAFKA_VERSIONS)
def test_the_tested_versions_of_kafka_are_pinned(machine: Machine, version: str) -> None:
    names = tuple(
        f"{name}-{version}.jar" for name in ("kafka_2.13", "kafka-tools", "kafka-clients")
    )
    machine.add_maven(jars=names)
    with pytest.raises(MissingPrerequisiteError, match="is another file than"):
        kafka_jars(version, environ=machine.environ)
    cached = cache_folder() / f"kafka-{version}"
    if cached.exists():
        module.check_digests(cached, module.digests_of_kafka(version), "what is cached")


def test_maven_and_ivy_check_what_the_registry_says(machine: Machine) -> None:
    """For other versions, the checksums are the registry's."""
    machine.add_maven()
    kafka_jars(VERSION, environ=machine.environ)
    assert "--strict-checksums" in machine.calls.read_text().split()


def test_without_maven_and_pyspark_both_are_named(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(MissingPrerequisiteError) as caught:
        kafka_jars(VERSION, environ=machine.environ)
    message = str(caught.value)
    assert "apt-get install maven" in message
    assert "pip install pyspark" in message
    assert str(machine.cache / "pykclient") in message


@pytest.mark.parametrize("version", ["", "4.3", "../4.3.1", "2.8.2", "3.8.1", "four"])
def test_a_version_that_cannot_be_started_is_refused(machine: Machine, version: str) -> None:
    machine.add_maven()
    with pytest.raises(ConfigError, match=r"4\.3\.1"):
        kafka_jars(version, environ=machine.environ)
    assert machine.call_count == 0


def test_the_cache_folder_follows_xdg_where_the_path_is_absolute() -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/var/cache/me"}) == Path("/var/cache/me/pykclient")
    assert cache_folder({"XDG_CACHE_HOME": "me"}) == Path.home() / ".cache" / "pykclient"
    assert cache_folder({}) == Path.home() / ".cache" / "pykclient"


def test_a_java_maps_the_archive_of_its_classes_where_there_is_one(tmp_path: Path) -> None:
    jars, java = KafkaJars("4.3.1", tmp_path), Java(Path("java"), tmp_path, 17, "17.0.15+6")
    assert jars.java_options(java) == ("-cp", "")
    (tmp_path / "classes-17.0.15+6.jsa").touch()
    (tmp_path / "kafka.jar").touch()
    archive, *_, flag, classpath = jars.java_options(java)
    assert archive == f"-XX:SharedArchiveFile={tmp_path}/classes-17.0.15+6.jsa"
    assert (flag, classpath) == ("-cp", f"{tmp_path}/kafka.jar")
    other = Java(Path("java"), tmp_path, 21, "21")
    assert jars.java_options(other) == (flag, classpath)


def test_the_command_fetches_and_prints_the_path_or_what_is_missing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.add_maven()
    for name, value in machine.environ.items():
        monkeypatch.setenv(name, value)
    assert module.main([VERSION]) == 0
    assert (
        capsys.readouterr().out == f"Kafka {VERSION}: {machine.cache}/pykclient/kafka-{VERSION}\n"
    )
    assert module.main(["4.3"]) == 1
    assert "three numbers" in capsys.readouterr().err
