"""The documents that are written from the code: of settings, and of state machines."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.test_config import CONFIGS, kafka_settings, unbuilt_keys
from tools import config_reference, keyword_types, state_tables
from tools.config_reference import reference
from tools.state_tables import MACHINES, document

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from pykclient.config.client import ClientConfig

ROOT = Path(__file__).parents[2]
PACKAGES = ("pykclient", "spark_connector")

EACH = pytest.mark.parametrize("tool", [config_reference, keyword_types, state_tables])


def section(client: str) -> str:
    return reference().split(f"\n## {client.title()}\n")[1].split("\n## ")[0]


@EACH
def test_the_document_is_up_to_date(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["--check"]) == 0, capsys.readouterr().out


@EACH
def test_check_reports_what_differs_and_writing_cures_it(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = ["--into", str(tmp_path)]
    assert tool.main([*into, "--check"]) == 1
    assert f"differs: {tool.PATH}" in capsys.readouterr().out
    assert tool.main(into) == 0
    assert tool.main([*into, "--check"]) == 0
    (tmp_path / tool.PATH).write_text("edited by hand")
    assert tool.main([*into, "--check"]) == 1


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.client)
def test_every_key_of_kafka_is_in_one_table_with_its_default_or_the_reason(
    config: type[ClientConfig],
) -> None:
    text = section(config.client)
    supported, *refused = text.split("**Refused.**")
    names = {row["name"] for row in kafka_settings(config)}
    ours = {setting.key for setting in config.settings() if setting.is_ours}
    described = re.findall(r"^\| \*?`([^`]+)`", text, re.MULTILINE)
    assert sorted(described) == sorted(names | ours)
    documented = {
        key for part in refused for key in re.findall(r"^\| `([^`]+)`", part, re.MULTILINE)
    }
    assert documented == {name.replace("_", ".") for name in unbuilt_keys(config)}
    assert all(part.strip().splitlines()[0].endswith(".") for part in refused)
    assert f"Of Kafka's {len(names)} keys {len(names) - len(documented)} are" in supported


def tables() -> Iterator[tuple[str, str]]:
    """The modules that define a table of transitions, and its name there."""
    for path in (path for name in PACKAGES for path in (ROOT / name).rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target).startswith("NEXT"):
                module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                yield module, ast.unparse(node.target)


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
