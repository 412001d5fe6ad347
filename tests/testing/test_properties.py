"""What is written must come back as it was, by the reader that this package has for the format."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pykclient.config.properties import from_properties
from pykclient.testing.cluster.properties import dump_properties

if TYPE_CHECKING:
    from pathlib import Path

    from pykclient.testing.cluster.properties import PropertyValue

# A lone surrogate is no text, and a name is never empty.
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("value", "written"),
    [(True, "true"), (False, "false"), (5, "5"), (-1, "-1"), (0.5, "0.5"), ("", "")],
)
def test_values_are_written_as_java_reads_them(value: PropertyValue, written: str) -> None:
    assert dump_properties({"log.dirs": value}) == f"log.dirs={written}\n"


@given(st.dictionaries(TEXT.filter(bool), TEXT, max_size=5))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_comes_back_as_it_was(tmp_path: Path, properties: dict[str, str]) -> None:
    text = dump_properties(properties)
    assert text.isascii()
    file = tmp_path / "some.properties"
    file.write_text(text)
    assert from_properties(file) == properties
