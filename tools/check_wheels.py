"""Is there a wheel of every dependency for every platform and Python? Needs a network.

    python -m tools.check_wheels [--wheel dist/pykclient-VERSION-py3-none-any.whl]

For each pair, pip resolves an install that may take nothing but wheels, and downloads none of them:
of what `pyproject.toml` depends on, or of a wheel of ours with its dependencies. The exit status is
1 when one does not resolve.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

PYPROJECT: Final = Path(__file__).parents[1] / "pyproject.toml"

PLATFORMS: Final = {
    "manylinux x86-64": ("manylinux_2_28_x86_64", "manylinux2014_x86_64"),
    "manylinux aarch64": ("manylinux_2_28_aarch64", "manylinux2014_aarch64"),
    "musllinux x86-64": ("musllinux_1_2_x86_64",),
    "musllinux aarch64": ("musllinux_1_2_aarch64",),
    "macOS x86-64": ("macosx_10_15_x86_64",),
    "macOS arm64": ("macosx_11_0_arm64",),
    "Windows x86-64": ("win_amd64",),
}
"""The tags that a present system of each kind accepts; glibc 2.28 is that of Debian 10."""

PYTHONS: Final = {
    **{f"3.{minor}": (f"3.{minor}", f"cp3{minor}") for minor in range(11, 16)},
    "3.14t": ("3.14", "cp314t"),
}
"""Arguments for pip by Python version: the version, and the binary interface."""

PROCESS_COUNT: Final = 2
TIMEOUT_S: Final = 300


def flaw(platform: str, python: str, wanted: Sequence[str]) -> str | None:
    """Return why pip cannot install `wanted` there from wheels alone; None: it can."""
    version, interface = PYTHONS[python]
    with TemporaryDirectory() as target:
        ended = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"),
                *("--quiet", "--disable-pip-version-check", "--target", target),
                *("--only-binary", ":all:", "--implementation", "cp", "--python-version", version),
                *(word for abi in (interface, "none") for word in ("--abi", abi)),
                *(word for tag in PLATFORMS[platform] for word in ("--platform", tag)),
                *wanted,
            ],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    return ended.stderr.strip() if ended.returncode else None


def main() -> int:
    """Print one line for each platform and Python, and why where there is no wheel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", type=Path, help="a wheel of ours, instead of its dependencies")
    wheel = parser.parse_args().wheel
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    wanted = [str(wheel)] if wheel else project["dependencies"]
    pairs = list(product(PLATFORMS, PYTHONS))
    with ThreadPoolExecutor(PROCESS_COUNT) as pool:
        flaws = list(pool.map(lambda pair: flaw(pair[0], pair[1], wanted), pairs))
    for (platform, python), reason in zip(pairs, flaws, strict=True):
        print(f"{platform:18} {python:6} {'ok' if reason is None else f'MISSING: {reason}'}")
    missing_count = len(flaws) - flaws.count(None)
    print(f"{len(flaws) - missing_count} of {len(flaws)} resolve: {' '.join(wanted)}")
    return 1 if missing_count else 0


if __name__ == "__main__":
    raise SystemExit(main())
