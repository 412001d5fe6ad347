"""The documents that are written from the code: of settings, and of state machines."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.test_config import CONFIGS, kafka_settings, unbuilt_keys
from tools.config_reference import reference
from tools.state_tables import MACHINES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.config.client import ClientConfig

ROOT = Path(__file__).parents[2]
PACKAGES = ("pykclient", "spark_connector")


def section(client: str) -> str:
    return reference().split(f"\n## {client.title()}\n")[1].split("\n## ")[0]


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
    """Yield the modules that define a table of transitions, and its name there."""
    for path in (path for name in PACKAGES for path in (ROOT / name).rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target).startswith("NEXT"):
                module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                yield module, ast.unparse(node.target)


def test_every_table_of_the_code_is_in_it() -> None:
    assert sorted(tables()) == sorted((machine.module, machine.table) for machine in MACHINES)
