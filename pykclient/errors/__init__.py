"""All errors that this library raises: the tree in `base`, and one class per broker error code.

`error_for_code` converts a broker's error code to its error.
"""

from __future__ import annotations

from pykclient.errors import base as base
from pykclient.errors import broker as broker
from pykclient.errors.base import *  # noqa: F403 - all of it, as its __all__ says
from pykclient.errors.broker import *  # noqa: F403

__all__: list[str] = []
__all__ += base.__all__
__all__ += broker.__all__
__all__ += ["LogTruncationError"]


class LogTruncationError(broker.OffsetOutOfRangeError):
    """The log was truncated before the position, and may have other records there (KIP-320).

    Raised if `auto_offset_reset` is none; the position does not change. `offset` is the position,
    and `diverging_offset` the first offset at which the log may differ from the records read; None
    if no broker knows it.
    """

    def __init__(
        self,
        message: str,
        *,
        topic: str,
        partition: int,
        offset: int,
        diverging_offset: int | None,
    ) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.diverging_offset = diverging_offset
