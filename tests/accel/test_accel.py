"""Which implementation is chosen, and that each is whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pykclient import accel
from pykclient.errors.base import ConfigError

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[2]


def test_a_choice_is_kept() -> None:
    implementation, note = accel.choose("pure")
    assert implementation == "pure"
    assert note == "PYKCLIENT_ACCEL=pure selects the pure core"


def test_an_unknown_implementation_is_refused_with_the_choices() -> None:
    with pytest.raises(ConfigError, match=r"PYKCLIENT_ACCEL=rust: .* pure and compiled"):
        accel.choose("rust")


@pytest.mark.parametrize("wanted", [None, ""])
def test_the_fastest_core_there_is_is_used_unless_another_is_set(
    core: ModuleType, wanted: str | None
) -> None:
    implementation, note = accel.choose(wanted)
    is_built = find_spec("pykclient.accel.compiled.send") is not None
    assert implementation == ("compiled" if is_built else "pure")
    assert (note is None) == is_built


def run(program: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a new interpreter that finds pykclient in `folder`."""
    inherited = {name: text for name, text in os.environ.items() if name != "PYKCLIENT_ACCEL"}
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**inherited, "PYTHONPATH": str(folder), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


SHOW = "from pykclient import accel; print(accel.implementation, accel.implementation_note)"
COMPILED = Path("pykclient", "accel", "compiled")


@pytest.fixture
def unbuilt(tmp_path: Path) -> Path:
    """Provide a folder with the package as it is before anything is compiled."""
    ignored = shutil.ignore_patterns("*.so", "__pycache__", "build_failure.txt")
    shutil.copytree(ROOT / "pykclient", tmp_path / "pykclient", ignore=ignored)
    return tmp_path


def test_a_build_without_a_compiled_core_runs_on_the_pure_one_and_reports_it(
    unbuilt: Path,
) -> None:
    done = run(SHOW, unbuilt)
    assert done.stdout.startswith("pure this build has no compiled core")
    assert done.stderr == ""


LOG_OF_CLIENTS = """
import logging
from pykclient import Consumer, Producer

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
with Producer(bootstrap_servers="localhost:1") as p, Consumer(bootstrap_servers="localhost:1") as c:
    pass
"""


@pytest.mark.promise(
    "installing needs no compiler; clients log at INFO why the compiled core is missing"
)
def test_a_build_that_failed_is_no_warning_and_each_client_logs_the_reason(unbuilt: Path) -> None:
    (unbuilt / COMPILED / "build_failure.txt").write_text("CompileError: no cc\n")
    done = run(SHOW, unbuilt, PYTHONWARNINGS="error")
    assert done.stdout == "pure the compiled core was not built (CompileError: no cc)\n"
    assert done.stderr == ""
    logged = run(LOG_OF_CLIENTS, unbuilt).stderr.splitlines()
    notes = [line for line in logged if "runs on the pure core" in line]
    assert [line.partition(": ")[2] for line in notes] == [
        "the compiled core was not built (CompileError: no cc)"
    ] * 2
    assert [line.split()[:2] for line in notes] == [
        ["INFO", "pykclient.producer"],
        ["INFO", "pykclient.consumer"],
    ]


def test_a_compiled_core_that_does_not_load_leaves_the_pure_one(unbuilt: Path) -> None:
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    for source in (unbuilt / COMPILED).glob("*.pyx"):
        source.with_suffix(suffix).write_bytes(b"not a library")
    done = run(SHOW, unbuilt)
    assert done.stdout.startswith("pure the compiled core does not load")
    assert done.stderr == ""


def test_a_compiled_core_of_an_older_build_that_lacks_a_name_leaves_the_pure_one(
    unbuilt: Path,
) -> None:
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    (unbuilt / COMPILED / f"send{suffix}").touch()
    (unbuilt / COMPILED / "__init__.py").write_text("import types\n\ntypes.of_a_later_build\n")
    done = run(SHOW, unbuilt)
    assert done.stdout.startswith("pure the compiled core does not load (module 'types' has no")
    assert done.stderr == ""


def test_a_setting_of_a_compiled_core_that_is_not_built_is_an_error_with_the_cure(
    unbuilt: Path,
) -> None:
    failed = run(SHOW, unbuilt, PYKCLIENT_ACCEL="compiled")
    assert failed.returncode != 0
    assert "ConfigError: PYKCLIENT_ACCEL=compiled: this build has no compiled core" in failed.stderr
    assert "install a C compiler" in failed.stderr


def test_the_environment_decides_at_import(core: ModuleType) -> None:
    wanted = core.__name__.rpartition(".")[2]
    program = (
        "from pykclient import accel\n"
        "print(accel.implementation)\n"
        "for name in accel.__all__[:5]: print(name, getattr(accel, name).__module__)"
    )
    done = run(program, ROOT, PYKCLIENT_ACCEL=wanted)
    first, *classes = done.stdout.splitlines()
    assert first == wanted
    expected = {name: getattr(core, name).__module__ for name in accel.__all__[:5]}
    assert dict(line.split() for line in classes) == expected


def test_every_implementation_has_all_names(core: ModuleType) -> None:
    assert set(accel.__all__) - {"implementation", "implementation_note"} <= set(core.__all__)
    for name in core.__all__:
        assert getattr(core, name)
