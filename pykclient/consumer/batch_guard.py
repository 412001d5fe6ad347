"""BatchGuard: refuses calls of an application that holds a batch of `ExactlyOnce`.

The loop polls, seeks back after an abort, and commits. If the application did the same, records
would be skipped, or offsets committed that an abort takes back. The guard raises before the call
has an effect.

Owner: the consumer's thread.
"""

from __future__ import annotations

from enum import Enum

from pykclient.errors import UsageError


class BatchUse(Enum):
    """State of the last batch, as the application sees it."""

    NONE = "none"
    """The loop is running, or was left."""
    UNUSED = "unused"
    """The loop has returned the batch, and its ``with`` block has not begun."""
    OPEN = "open"
    """The ``with`` block of the batch is running."""
    ENDED = "ended"
    """The block has ended; the loop continues with the next batch."""


class BatchGuard:
    """Holds the state, which `ExactlyOnce` sets, and checks calls against it."""

    def __init__(self) -> None:
        self.state = BatchUse.NONE

    def on_loop_left(self) -> None:
        """Allow polls after the loop, unless its last batch was not used."""
        if self.state is BatchUse.ENDED:
            self.state = BatchUse.NONE

    def check_poll(self, call: str) -> None:
        """Raise if the application may not take records.

        Raises:
            UsageError: a batch is open, or the next one belongs to the loop.
        """
        if self.state is BatchUse.NONE:
            return
        if self.state is BatchUse.UNUSED:
            raise UsageError(
                f"{call}() would skip a batch of ExactlyOnce that was not used in a with block: "
                f"use it, or close the consumer, and the group reads it again"
            )
        where = "in a block" if self.state is BatchUse.OPEN else "between the batches"
        raise UsageError(
            f"{call}() {where} of ExactlyOnce takes records that are in no transaction: leave the "
            f"call out. The loop polls, and heartbeats continue while a block runs, for up to "
            f"max_poll_interval_ms"
        )

    def check_seek(self, call: str) -> None:
        """Raise if the application may not change positions.

        Raises:
            UsageError: a block is open.
        """
        self._refuse_in_block(
            call,
            "the end of the block commits the offsets after its records, and the consumer would "
            "continue elsewhere. Seek after the block",
        )

    def check_commit(self, call: str) -> None:
        """Raise if the application may not commit.

        Raises:
            UsageError: a block is open.
        """
        self._refuse_in_block(
            call,
            "the end of the block commits the offsets, in its transaction. If that is aborted, "
            "records committed here are lost: leave the call out",
        )

    def _refuse_in_block(self, call: str, reason: str) -> None:
        if self.state is BatchUse.OPEN:
            raise UsageError(f"{call}() in a block of ExactlyOnce: {reason}")
