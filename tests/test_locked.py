"""What `make` installs: every package with the digests of its files, and no other file is taken."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from hashlib import sha256
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


@pytest.mark.parametrize("file", sorted(LOCKED.glob("*.txt")), ids=lambda file: file.name)
def test_every_package_has_the_digests_of_its_files(file: Path) -> None:
    for name, pins in pins_of(file).items():
        for pin in pins:
            assert pin.digests, name
            assert all(re.fullmatch("[0-9a-f]{64}", each) for each in pin.digests), name


@pytest.mark.parametrize("python", PYTHONS)
def test_what_the_project_names_is_locked_for_each_python(python: str) -> None:
    """After a change of pyproject.toml `make locked` writes new digests."""
    pins = pins_of(LOCKED / "requirements.txt")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    named = {
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *(each for extra in project["project"]["optional-dependencies"].values() for each in extra),
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


def test_a_file_with_a_changed_byte_is_not_installed(tmp_path: Path) -> None:
    wheel = tmp_path / "locked_example-1.0-py3-none-any.whl"
    info = "locked_example-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: locked-example\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    digest = sha256(wheel.read_bytes()).hexdigest()
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(f"locked-example==1.0 --hash=sha256:{digest}\n")
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--no-input"]
    command += ["--disable-pip-version-check", "--require-hashes", "--find-links", str(tmp_path)]
    command += ["--requirement", str(requirements)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    data = bytearray(wheel.read_bytes())
    data[data.index(b"Version: 1.0")] ^= 1
    wheel.write_bytes(data)
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "DO NOT MATCH THE HASHES" in ended.stderr
