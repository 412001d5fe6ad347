"""Which implementation is chosen, and that each is whole."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pykclient import accel
from pykclient.errors.base import ConfigError

if TYPE_CHECKING:
    from types import ModuleType

    from pykclient.accel.abc import Accelerator


@pytest.mark.parametrize("wanted", [None, "", "pure"])
def test_the_pure_core_is_used_unless_another_is_asked_for(wanted: str | None) -> None:
    assert accel.choose(wanted) == "pure"


def test_asking_for_the_compiled_core_says_that_it_is_not_built() -> None:
    with pytest.raises(ConfigError, match=r"PYKCLIENT_ACCEL=compiled: .* no compiled core"):
        accel.choose("compiled")


def test_an_unknown_implementation_is_refused_with_the_choices() -> None:
    with pytest.raises(ConfigError, match=r"PYKCLIENT_ACCEL=rust: .* pure and compiled"):
        accel.choose("rust")


def test_the_environment_decides_at_import() -> None:
    program = "from pykclient import accel; print(accel.implementation)"
    environment = dict(os.environ, PYKCLIENT_ACCEL="pure")
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "pure\n"
    environment["PYKCLIENT_ACCEL"] = "compiled"
    failed = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert failed.returncode != 0
    assert "this build has no compiled core" in failed.stderr


def test_what_the_package_exports_is_the_chosen_implementation(core: ModuleType) -> None:
    for name in core.__all__:
        if name in accel.__all__:
            assert getattr(accel, name) is getattr(core, name)
    assert set(accel.__all__) - {"implementation"} <= set(core.__all__)


def test_the_pure_core_keeps_the_contract() -> None:
    # What mypy checks here is the test: a module may stand for a Protocol.
    implementation: Accelerator = accel.pure
    assert implementation.murmur2(b"") == 275646681
