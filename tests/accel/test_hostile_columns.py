"""What guards memory is a check that refuses, also where `python -O` takes the asserts away."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.accel.hostile_columns import arrow_cases, core_cases, not_refused

if TYPE_CHECKING:
    from types import ModuleType


def test_columns_that_are_not_what_they_say_are_refused(core: ModuleType) -> None:
    assert not_refused(core_cases(core)) == []


def test_damaged_arrow_tables_are_refused() -> None:
    assert not_refused(arrow_cases()) == []


@pytest.mark.promise(
    "wrong columns are named, with what is accepted; offsets outside their buffer are refused"
)
def test_they_are_refused_without_asserts_too(core: ModuleType) -> None:
    name = core.__name__.rpartition(".")[2]
    ended = subprocess.run(
        [sys.executable, "-O", "-m", "tests.accel.hostile_columns", name],
        env={**os.environ, "PYKCLIENT_ACCEL": name},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, "[]", "")
