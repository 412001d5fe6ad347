"""A secret for queries on a Spark cluster, and a search for it in the cluster's files.

Owner: none; it holds no state.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from pykclient.testing import ClusterSecurity

SECRET: Final = "canary-5f0c6d1e"
SECURITY: Final = ClusterSecurity(
    listeners=("SASL_PLAINTEXT",), mechanisms=("SCRAM-SHA-256",), users={"alice": SECRET}
)
"""Brokers that require the secret, with frames that a proxy can read."""
SECRET_FILE: Final = "secret"
"""File with the secret in the cluster's folder; event logs would show a command line."""
_PASSED_OVER: Final = (SECRET_FILE, "spark", "local")
"""Not searched: the secret itself, installed software, and memory that Spark spills to disk."""


def hide_secret(folder: Path, text: str = SECRET) -> Path:
    """Write the secret, or a text that contains it, to the file that drivers read."""
    file = folder / SECRET_FILE
    file.write_text(text)
    return file


def shown(folder: Path, text: str) -> list[Path]:
    """Return the files in the folder of a Spark cluster that contain a text.

    Searched are the output of drivers, executors and servers, with plans and errors; event logs;
    checkpoints; and the master's records of applications.
    """
    wanted, found = text.encode(), []
    for place, folders, names in os.walk(folder):
        if Path(place) == folder:
            folders[:] = [name for name in folders if name not in _PASSED_OVER]
            names = [name for name in names if name not in _PASSED_OVER]
        for path in (Path(place, name) for name in names):
            # Processes that end remove their files.
            with contextlib.suppress(FileNotFoundError):
                if wanted in path.read_bytes():
                    found.append(path)
    return sorted(found)
