"""`make` installs every package by the digests of its files, and no other file."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCKED = ROOT / "tools" / "locked"
PYTHONS = ("3.11.0", "3.12.0", "3.13.0", "3.14.0", "3.15.0")
NOT_INSTALLED = ("gssapi",)
"""It is built against a library of the system, so that who wants its tests installs it."""


class Pin(NamedTuple):
    """One package of a file of pip's, where its marker holds."""

    version: str
    marker: Marker | None
    digests: tuple[str, ...]


def pins_of(file: Path) -> dict[str, list[Pin]]:
    found: dict[str, list[Pin]] = {}
    text = file.read_text("ascii").replace("\\\n", " ")
    for line in filter(None, (line.partition("#")[0].strip() for line in text.splitlines())):
        requirement, *digests = re.split(r"\s+--hash=sha256:", line)
        name, version, _, marker = re.fullmatch(
            r"([a-z0-9-]+)==(\S+)( ; (.+))?", requirement
        ).groups()  # type: ignore[union-attr]
        pin = Pin(version, Marker(marker) if marker else None, tuple(digests))
        found.setdefault(name, []).append(pin)
    return found


@pytest.mark.parametrize("python", PYTHONS)
def test_what_the_project_names_is_locked_for_each_python(python: str) -> None:
    """After a change of pyproject.toml `make locked` writes new digests."""
    pins = pins_of(LOCKED / "requirements.txt")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras, groups = project["project"]["optional-dependencies"], project["dependency-groups"]
    named = {
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *(each for extra in extras.values() for each in extra),
        *(each for group in groups.values() for each in group if isinstance(each, str)),
    }
    environment = {"python_version": python.rpartition(".")[0], "python_full_version": python}
    for text in sorted(named):
        wanted = Requirement(text)
        if wanted.name in NOT_INSTALLED:
            continue
        versions = [
            pin.version
            for pin in pins[canonicalize_name(wanted.name)]
            if pin.marker is None or pin.marker.evaluate(environment)
        ]
        assert len(versions) == 1, text
        assert wanted.specifier.contains(versions[0]), text
