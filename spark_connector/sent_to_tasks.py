"""SentToTasks: what the driver pickles for tasks, and only its own version of the wheel unpickles.

The version comes first, and the object as bytes: a task of another version names both versions,
instead of an attribute that one of them lacks. A task without this package says so (`arrived`).

Spark's daemon collects garbage after each use of a Python process that it keeps. A full collection
visits every object of every imported module, a hundred thousand with pandas: 58 ms of CPU, where a
task of a micro-batch takes 6, and the next task waits for it. So a process that Spark uses again
moves what it has loaded out of the collector's sight, once.

Owner: the thread that Spark runs in a process.
"""

from __future__ import annotations

import gc
import itertools
import os
import pickle
from typing import TYPE_CHECKING, Final

from pykclient.errors import ConfigError
from pykclient.version import __version__
from spark_connector.arrival import arrived, send_by_value
from spark_connector.shown_errors import cause_first

if TYPE_CHECKING:
    from collections.abc import Callable

FROZEN_USE: Final = 2
"""In its first use a process imports; what is garbage by then is collected after it."""

_uses = itertools.count(1)


class SentToTasks:
    """A reader or writer, whose attributes are pickled behind the version of this package."""

    def __reduce__(self) -> tuple[Callable[[str, bytes], object], tuple[str, bytes]]:
        _note_use()
        return reduced(self)


def reduced(made: object) -> tuple[Callable[[str, bytes], object], tuple[str, bytes]]:
    """Return what Spark pickles of an object that tasks get."""
    send_by_value()
    return arrived, (__version__, pickle.dumps((type(made), made.__dict__)))


@cause_first()
def unpickled(driver_version: str, pickled: bytes) -> object:
    """Return the object that a driver of this version has pickled.

    Raises: `ConfigError` if this process has another version.
    """
    if driver_version != __version__:
        raise ConfigError(
            f"The driver has version {driver_version} of pykclient, and this executor "
            f"{__version__}: install the driver's version on every executor, or send it along "
            f"with spark.archives."
        )
    kind, attributes = pickle.loads(pickled)  # noqa: S301 - the driver's, as all of a task is
    if issubclass(kind, SentToTasks):
        _note_use()
    made: object = kind.__new__(kind)
    made.__dict__.update(attributes)
    return made


def _note_use() -> None:
    """Keep what is loaded from the collector, in a process that Spark keeps: its variable says."""
    if "SPARK_REUSE_WORKER" in os.environ and next(_uses) == FROZEN_USE:
        gc.freeze()
