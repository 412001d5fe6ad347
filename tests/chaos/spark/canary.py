"""A secret that queries on a Spark cluster are given, and what of the cluster shows it.

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
"""Brokers that no client reads or writes without the secret, and whose frames a proxy can read."""
SECRET_FILE: Final = "secret"
"""Where a driver finds it, in the cluster's folder: event logs show its command line."""
_PASSED_OVER: Final = (SECRET_FILE, "spark", "local")
"""The secret itself, what is installed, and what Spark keeps of its memory on disk."""


def hide_secret(folder: Path, text: str = SECRET) -> Path:
    """Write the secret, or a text with it, where drivers find it."""
    file = folder / SECRET_FILE
    file.write_text(text)
    return file


def shown(folder: Path, text: str) -> list[Path]:
    """The files in the folder of a Spark cluster that have a text in them.

    They are what drivers, executors and servers have printed, plans and errors among it, event
    logs, checkpoints, and what the master keeps of applications.
    """
    wanted, found = text.encode(), []
    for place, folders, names in os.walk(folder):
        if Path(place) == folder:
            folders[:] = [name for name in folders if name not in _PASSED_OVER]
            names = [name for name in names if name not in _PASSED_OVER]
        for path in (Path(place, name) for name in names):
            # What has ended is taken away.
            with contextlib.suppress(FileNotFoundError):
                if wanted in path.read_bytes():
                    found.append(path)
    return sorted(found)
