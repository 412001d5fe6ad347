"""The machine and the software that a figure was measured on, as `RESULTS.md` names them.

Owner: none.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys


def describe(distributions: list[str]) -> dict[str, str]:
    """Name -> what it is: cores, memory, system, load, Python, each distribution's version."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory_bytes / 2**30:.0f} GiB",
        "system": platform.platform(terse=True),
        "load at the start": f"{os.getloadavg()[0]:.1f}",
        "Python": f"{platform.python_version()} ({sys.implementation.name})",
        **{name: _version(name) for name in distributions},
    }


def _version(distribution: str) -> str:
    if distribution == "pykclient":
        from pykclient.version import __version__

        return __version__
    return importlib.metadata.version(distribution)
