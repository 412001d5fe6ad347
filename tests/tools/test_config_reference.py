"""docs/configuration.md says of every key of Kafka's clients whether it is supported."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.test_config import CONFIGS, kafka_settings, unbuilt_keys
from tools.config_reference import PATH, main, reference

if TYPE_CHECKING:
    from pykclient.config.client import ClientConfig

ROOT = Path(__file__).parents[2]


def section(client: str) -> str:
    return reference().split(f"\n## {client.title()}\n")[1].split("\n## ")[0]


@pytest.mark.promise(
    "`docs/configuration.md` has every key of Kafka's clients, supported or refused with reason"
)
def test_the_document_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().out
    assert (ROOT / PATH).read_text(encoding="utf-8") == reference()


@pytest.mark.promise(
    "`docs/configuration.md` has every key of Kafka's clients, supported or refused with reason"
)
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.client)
def test_every_key_of_kafka_is_in_one_table_with_its_default_or_the_reason(
    config: type[ClientConfig],
) -> None:
    text = section(config.client)
    supported, *refused = text.split("**Refused.**")
    names = {row["name"] for row in kafka_settings(config)}
    ours = {setting.key for setting in config.settings() if setting.is_ours}
    told = re.findall(r"^\| \*?`([^`]+)`", text, re.MULTILINE)
    assert sorted(told) == sorted(names | ours)
    told_refused = {
        key for part in refused for key in re.findall(r"^\| `([^`]+)`", part, re.MULTILINE)
    }
    assert told_refused == {name.replace("_", ".") for name in unbuilt_keys(config)}
    assert all(part.strip().splitlines()[0].endswith(".") for part in refused)
    assert f"Of Kafka's {len(names)} keys {len(names) - len(told_refused)} are" in supported


def test_check_tells_what_differs_and_writing_cures_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = ["--into", str(tmp_path)]
    assert main([*into, "--check"]) == 1
    assert "differs: docs/configuration.md" in capsys.readouterr().out
    assert main(into) == 0
    assert main([*into, "--check"]) == 0
    (tmp_path / PATH).write_text("edited by hand")
    assert main([*into, "--check"]) == 1
