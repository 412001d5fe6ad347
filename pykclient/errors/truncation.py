"""LogTruncationError: records that were read are no longer in the log.

Source: KIP-320; Java class ``LogTruncationException``.
"""

from __future__ import annotations

from pykclient.errors.broker import OffsetOutOfRangeError

__all__ = ["LogTruncationError"]


class LogTruncationError(OffsetOutOfRangeError):
    """The log was cut before the position, and may have other records there by now.

    Raised with `auto_offset_reset` none; the position stays. `offset` is the position, and
    `diverging_offset` the first offset at which the log may differ from what was read; None if no
    broker knows.
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
