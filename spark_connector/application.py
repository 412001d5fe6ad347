"""The name of the Spark application that runs this process, as far as the process can know it.

Spark gives a process that plans a write no id of its application. All of them have one parent: the
daemon that Spark forks them from, or the JVM. Its id and its start name it on its machine, and the
machine's boot and name do the rest.

Owner: none.
Source: proc(5).
"""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path
from typing import Final

INIT: Final = 1
"""The process that inherits those whose parent has ended: it tells nothing."""
_START: Final = 19
"""The place of ``starttime`` behind the name in ``/proc/PID/stat``."""


def application_name(proc: Path = Path("/proc")) -> str:
    """Return a name that processes of one application have in common, and no others.

    It is empty where the system does not tell: without ``/proc``, or when the parent has ended.
    """
    parent = os.getppid()
    if parent == INIT:
        return ""
    try:
        stat = (proc / str(parent) / "stat").read_text()
        boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
        start = stat.rpartition(")")[2].split()[_START]
    except (OSError, IndexError):
        return ""
    text = f"{socket.gethostname()} {boot} {parent} {start}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
