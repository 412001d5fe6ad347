"""Error lines of commands, and output of results whose errors name the output.

Owner: none; it holds no state.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pykclient.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

OUTPUT: Final = "the output cannot be written"


def reason_of(error: BaseException) -> str:
    """Return the reason of an error, with the thing that it concerns."""
    reason: str | None = str(error)
    if isinstance(error, OSError) and error.errno is not None:
        reason = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    # Users of a command know this setting as an option.
    text = str(reason).replace("bootstrap_servers", "-b (bootstrap_servers)")
    return " ".join(text.split())


def absent_topic(topic: str) -> UsageError:
    """Return the error for a topic that does not exist."""
    return UsageError(
        f"there is no topic {topic!r}; `pykclient topics list` shows the existing ones"
    )


def absent_partition(topic: str, partition: int, count: int) -> UsageError:
    """Return the error for a partition that a topic of `count` partitions lacks."""
    return UsageError(f"topic {topic!r} has no partition {partition}, only 0 to {count - 1}")


def write_output(data: str | bytes = "", *, is_flushed: bool = False) -> None:
    """Write to standard output. Raises `OSError`, which names it."""
    with named(OUTPUT):
        if isinstance(data, str):
            sys.stdout.write(data)
        else:
            sys.stdout.buffer.write(data)
        if is_flushed:
            sys.stdout.flush()


@contextmanager
def named(what: str) -> Iterator[None]:
    """Add the name of what was read or written to system errors, as in errors of `open`."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, what) from error


def records_were(done: str, count: int) -> str:
    """Return how many records something was done to, in words."""
    return f"1 record was {done}" if count == 1 else f"{count} records were {done}"
