"""What an import loads."""

from __future__ import annotations

import import_time


def test_an_import_is_timed() -> None:
    assert import_time.import_ms("pass") > 0


def test_an_optional_dependency_that_is_loaded_is_seen() -> None:
    assert import_time.optional_modules("pass") == []
    assert import_time.optional_modules("import rich") == ["rich"]
