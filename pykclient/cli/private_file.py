"""Private files: checks whether all users of the machine may read a file.

Owner: none; a function only.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def is_readable_by_all(file: Path) -> bool:
    """Return whether any user may read a file, given the permissions of its folders too.

    False if the permissions cannot be read, and on Windows, which stores them differently.
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
