"""The name of an application: the same in processes of one parent, empty where nothing tells it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_connector.application import application_name

PROC = Path("/proc")
ASK = "from spark_connector.application import application_name; print(application_name())"


def proc_of(path: Path, start: int) -> Path:
    """Return a folder that says when the parent of this process was started."""
    stat = path / str(os.getppid()) / "stat"
    stat.parent.mkdir(parents=True)
    stat.write_text(f"{os.getppid()} (a) name) S {' '.join(['0'] * 18)} {start} 0")
    boot = path / "sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("boot\n")
    return path


def test_a_process_that_has_the_id_of_one_before_is_another_application(tmp_path: Path) -> None:
    first, again, second = (
        application_name(proc_of(tmp_path / name, start))
        for name, start in (("a", 5), ("b", 5), ("c", 6))
    )
    assert first == again != second


def test_without_proc_it_is_not_known(tmp_path: Path) -> None:
    assert application_name(tmp_path) == ""


@pytest.mark.skipif(not (PROC / "self/stat").exists(), reason="the system has no /proc")
def test_processes_of_one_parent_have_one_name() -> None:
    names = {
        subprocess.run([sys.executable, "-c", ASK], capture_output=True, check=True).stdout
        for _ in range(2)
    }
    assert len(names) == 1
    assert len(names.pop().strip()) == 16
