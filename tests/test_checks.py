"""The checks of `make check` see what they are there to see: style, types, import rules.

Each tool runs with the project's own settings on something that breaks them. That the last check,
of the generated files, sees a difference is shown in `tools/test_protogen.py`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
TIMEOUT_S = 240


def run(*command: str | Path, cwd: Path = ROOT, text: str = "") -> tuple[int, str]:
    """The status of a tool and all that it prints."""
    completed = subprocess.run(
        command,
        cwd=cwd,
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT_S,
        check=False,
        text=True,
    )
    return completed.returncode, completed.stdout


@pytest.mark.promise("`make check` finds breaches of style, types and import rules")
@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("def f() -> None:\n    print(1)\n", "T201"),
        ("def f(a: list[int] = []) -> None:\n    del a\n", "B006"),
        ("import os\n", "F401"),
        ("def f(x: int) -> None:\n" + "    if x:\n        x += 1\n" * 11, "C901"),
        ("X = " + "1 + " * 30 + "1\n", "E501"),
    ],
)
def test_ruff_finds_a_breach_of_style(code: str, rule: str) -> None:
    status, output = run(
        *(sys.executable, "-m", "ruff", "check", "--no-cache"),
        *("--stdin-filename", "pykclient/breach.py", "-"),
        text=code,
    )
    assert status == 1
    assert rule in output


@pytest.mark.promise("`make check` finds breaches of style, types and import rules")
def test_ruff_finds_another_format() -> None:
    command = (sys.executable, "-m", "ruff", "format", "--check", "--no-cache")
    status, _ = run(*command, "--stdin-filename", "pykclient/breach.py", "-", text="x = 'a'\n")
    assert status == 1


@pytest.mark.promise("`make check` finds breaches of style, types and import rules")
def test_mypy_is_strict(tmp_path: Path) -> None:
    module = tmp_path / "breach.py"
    module.write_text("def untyped(x):\n    return x\n\n\ndef bare(x: list) -> None: ...\n")
    status, output = run(
        *(sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml"),
        *("--cache-dir", tmp_path / "cache", module),
        cwd=tmp_path,
    )
    assert status == 1, output
    assert "[no-untyped-def]" in output
    assert "[type-arg]" in output


@pytest.mark.promise("the core does no I/O; one loop drives it")
@pytest.mark.promise("`make check` finds breaches of style, types and import rules")
@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("pykclient.records.batch", "pykclient.network.drive"),
        ("pykclient.producer.core", "pykclient.consumer.core"),
        ("pykclient.network.broker.client", "socket"),
        ("pykclient.consumer.core", "time"),
        ("spark_connector.source", "pykclient.records.batch"),
    ],
)
def test_the_import_rules_see_a_breach(tmp_path: Path, module: str, imported: str) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in ("pykclient", "spark_connector"):
        shutil.copytree(ROOT / package, tmp_path / package)
    with (tmp_path / f"{module.replace('.', '/')}.py").open("a", encoding="utf-8") as file:
        file.write(f"\nimport {imported}\n")
    status, output = run(BIN / "lint-imports", "--no-cache", cwd=tmp_path)
    assert status == 1, output
    assert f"{module} -> {imported} (l." in output
    assert "0 broken." not in output
