"""The name of the Spark application that runs this process, as far as the process can know it.

Spark does not pass the id of its application to a process that plans a write. All of these
processes have one parent: the daemon that Spark forks them from, or the JVM. Its id and start time
identify it on its machine; the machine's boot id and name do the rest.

Owner: none. Source: proc(5).
"""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path
from typing import Final

INIT: Final = 1
"""The process that inherits orphans; as a parent it identifies nothing."""
_START: Final = 19
"""The place of ``starttime`` behind the name in ``/proc/PID/stat``."""


def application_name(proc: Path = Path("/proc")) -> str:
    """Return a name that only the processes of one application share.

    It is empty if the system does not tell: without ``/proc``, or when the parent has ended.
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
