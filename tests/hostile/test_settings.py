"""Whatever settings from text say, they import, read and contact only what the process allows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

MODULE = """
import os
from os import system
def made(*given): return "token"
class Made:
    def __call__(self, *given): return b""
"""
ALLOWED = {"import inside_canary", "contact 127.0.0.2"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("inside", "outside"):
        (tmp_path / f"{name}_canary.py").write_text(MODULE)
        place = tmp_path / f"{name}_canary"
        place.mkdir()
        for file in ("file.pem", "token"):
            (place / file).write_text("text")
        (place / "x.properties").write_text("key=text\n")
    (tmp_path / "inside_canary" / "link.pem").symlink_to("../outside_canary/file.pem")
    return tmp_path


def probed(folder: Path, seed: int, count: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.settings_probe", str(seed), str(count), str(folder)],
        # An empty file of authorities: to read those of the system takes most of the time.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "SSL_CERT_FILE": os.devnull},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def check(report: dict[str, Any]) -> None:
    closed, opened, program = (set(report[each]["seen"]) for each in ("closed", "open", "program"))
    # Files of certificates and keys, which stay in the process, are open while no switch is set.
    assert {each for each in closed if not each.startswith("open ")} == set()
    assert {each for each in opened if not each.startswith("open ./inside_canary")} <= ALLOWED
    assert all(report[each]["accepted"] for each in report)
    # The hook sees what it is to see.
    assert {"import outside_canary", "command os.system"} <= program


@pytest.mark.promise("settings from text import, read and contact only what the process allows")
def test_settings_from_text_reach_nothing_outside_the_policy(folder: Path) -> None:
    report = probed(folder, seed=3, count=120)
    check(report)
    assert {"import inside_canary", "contact 127.0.0.2"} < set(report["open"]["seen"])


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_no_settings_from_text_reach_anything_outside_the_policy(folder: Path, seed: int) -> None:
    check(probed(folder, seed, count=1_000))
