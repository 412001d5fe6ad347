"""SentToTasks: what the driver pickles for tasks, and only its own version of the wheel unpickles.

The version comes first, and the object as bytes: a task of another version names both versions,
instead of an attribute that one of them lacks.

Owner: none, it has no state.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from pykclient.errors import ConfigError
from pykclient.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable


class SentToTasks:
    """A reader or writer, whose attributes are pickled behind the version of this package."""

    def __reduce__(self) -> tuple[Callable[[str, bytes], SentToTasks], tuple[str, bytes]]:
        return unpickled, (__version__, pickle.dumps((type(self), self.__dict__)))


def unpickled(driver_version: str, pickled: bytes) -> SentToTasks:
    """The object that a driver of this version has pickled.

    Raises: `ConfigError` when this process has another version.
    """
    if driver_version != __version__:
        raise ConfigError(
            f"The driver has version {driver_version} of pykclient, and this executor "
            f"{__version__}: install the driver's version on every executor, or send it along "
            f"with spark.archives."
        )
    kind, attributes = pickle.loads(pickled)  # noqa: S301 - the driver's, as all of a task is
    made: SentToTasks = kind.__new__(kind)
    made.__dict__.update(attributes)
    return made
