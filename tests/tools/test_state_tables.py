"""docs/design/states.md has every state machine of the code, as its table is."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tools.state_tables import MACHINES, PATH, document, main

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]


def tables() -> Iterator[tuple[str, str]]:
    """The modules that define a table of transitions, and its name there."""
    for path in (ROOT / "pykclient").rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target).startswith("NEXT"):
                module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                yield module, ast.unparse(node.target)


def test_the_document_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().out


def test_every_table_of_the_code_is_in_it() -> None:
    assert sorted(tables()) == sorted((machine.module, machine.table) for machine in MACHINES)


def test_a_transition_has_its_reason() -> None:
    reasons = {"batch": {"open > closed": "it is full", "any > done": "it has ended"}}
    section = document(reasons).split("## A batch of the producer\n")[1].split("\n## ")[0]
    assert section.splitlines()[5:] == [
        "| open | closed | it is full |",
        "| closed | in flight |  |",
        "|  | done | it has ended |",
        "| in flight | closed |  |",
        "|  | done | it has ended |",
        "| done | | |",
    ]


@pytest.mark.parametrize(
    ("reasons", "complaint"),
    [
        ({"no such": {}}, "there is no state machine no such"),
        ({"batch": {"done > open": "never"}}, "batch has no transition done > open"),
    ],
)
def test_a_reason_without_a_transition_is_an_error(
    reasons: dict[str, dict[str, str]], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        document(reasons)


def test_check_reports_what_differs_and_writing_cures_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = ["--into", str(tmp_path)]
    assert main([*into, "--check"]) == 1
    assert f"differs: {PATH}" in capsys.readouterr().out
    assert main(into) == 0
    assert main([*into, "--check"]) == 0
