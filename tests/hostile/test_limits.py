"""The tables of limits in docs/design/security.md: what they name exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from pykclient.consumer.config import ConsumerConfig
from tests.hostile.responses import HOSTILE

ROOT: Final = Path(__file__).parents[2]
HEADINGS: Final = ("## What a broker may send", "## What settings may cost")
NAME: Final = re.compile(r"`([^`]+)`")
ROW_NAME: Final = re.compile(r"\*([^*]+)\*")


class Limit(NamedTuple):
    """One row: its names in back-ticks and in italics."""

    what: str
    limit: str
    place: str
    shown_by: str


def limits() -> list[Limit]:
    page = (ROOT / "docs" / "design" / "security.md").read_text("utf-8")
    found = []
    for heading in HEADINGS:
        section = page.partition(heading)[2].partition("\n## ")[0]
        rows = [line for line in section.splitlines() if line.startswith("| ")]
        found += [Limit(*(cell.strip() for cell in row.strip("|").split("|"))) for row in rows[2:]]
    return found


def test_the_table_is_read() -> None:
    assert len(limits()) >= 20


@pytest.mark.parametrize("limit", limits(), ids=lambda limit: limit.what)
def test_each_limit_is_where_the_table_says_and_shown_by_what_it_names(limit: Limit) -> None:
    (place,) = NAME.findall(limit.place)
    source = (ROOT / "pykclient" / place).read_text("utf-8")
    for name in NAME.findall(limit.limit):
        is_constant = re.search(rf"^{name}\b.* = ", source, re.MULTILINE) is not None
        assert is_constant or ConsumerConfig.setting_of(name) is not None, name
    tests = NAME.findall(limit.shown_by)
    rows = ROW_NAME.findall(limit.shown_by)
    assert tests or rows
    assert set(rows) <= {hostile.name for hostile in HOSTILE}
    all_tests = "".join(file.read_text("utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    for test in tests:
        assert f"def {test}(" in all_tests, test
