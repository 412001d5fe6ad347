"""The site of docs/: built without a warning, searchable, with every public name."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.soak  # a minute of CPU

ROOT = Path(__file__).parents[2]
PUBLIC_MODULES = ("pykclient", "pykclient.errors", "pykclient.serialization", "pykclient.testing")
NOT_CLASSES = {"__version__", "errors", "faults", "error_for_code", "base", "broker"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the folder of the site, as `make site` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = ["-m", "sphinx", "-W", "--keep-going", "--quiet", "-b", "html", "docs"]
    subprocess.run(
        [sys.executable, *command, str(folder / "html"), "-d", str(folder / "doctrees")],
        check=True,
        cwd=ROOT,
    )
    return folder / "html"


def test_the_site_has_every_page_and_can_be_searched(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    assert [str(page) for page in pages if not (site / page.with_suffix(".html")).exists()] == []
    assert "wakeup" in (site / "searchindex.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_the_reference_has_every_public_name(site: Path, module: str) -> None:
    reference = (site / "api.html").read_text(encoding="utf-8")
    names = set(importlib.import_module(module).__all__) - NOT_CLASSES
    assert [name for name in sorted(names) if f'id="{module}.{name}"' not in reference] == []
