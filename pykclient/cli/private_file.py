"""Private files: whether all users of the machine may read a file, by its permissions.

Owner: none; a function only.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def is_readable_by_all(file: Path) -> bool:
    """Return True if any user may read a file, through the folders that it is in.

    It is False where permissions cannot be looked at, and on Windows, which has them elsewhere.
    """
    if os.name == "nt":
        return False
    try:
        place = file.resolve()
        readable = [place.stat().st_mode & stat.S_IROTH]
        entered = [folder.stat().st_mode & stat.S_IXOTH for folder in place.parents]
    except (OSError, RuntimeError):
        return False
    return all(readable) and all(entered)
