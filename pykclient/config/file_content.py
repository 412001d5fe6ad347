"""Reads files that settings name, limited in size, and in time if one is a pipe.

Source: ours. A named pipe without a writer would block its reader forever.
"""

from __future__ import annotations

import os
import select
import stat
import time
from typing import Final

from pykclient.errors.base import ConfigError

PIPE_TIMEOUT_S: Final = 10.0
"""Maximum time in seconds to read a pipe or a terminal to its end."""


def read_file(place: str, setting: str, *, bytes_max: int) -> bytes:
    """Return the contents of a file.

    Raises:
        ConfigError: it cannot be read, is larger, or is a pipe that does not end in time.
    """
    try:
        descriptor = os.open(place, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        try:
            is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            deadline_s = None if is_regular else time.monotonic() + PIPE_TIMEOUT_S
            data = _read(descriptor, bytes_max, deadline_s)
        finally:
            os.close(descriptor)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{setting} cannot be read: {reason}.") from error
    if len(data) > bytes_max:
        raise ConfigError(f"{setting} has more than {bytes_max} bytes.")
    return data


def _read(descriptor: int, bytes_max: int, deadline_s: float | None) -> bytes:
    """Read to the end, or one byte beyond the limit."""
    data = bytearray()
    while len(data) <= bytes_max:
        if deadline_s is not None:
            remaining_s = max(0.0, deadline_s - time.monotonic())
            if not select.select([descriptor], [], [], remaining_s)[0]:
                raise TimeoutError(None, f"nothing came from it for {PIPE_TIMEOUT_S:g} seconds")
        read = os.read(descriptor, min(65_536, bytes_max + 1 - len(data)))
        if not read:
            break
        data += read
    return bytes(data)
