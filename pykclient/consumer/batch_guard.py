"""BatchGuard: what an application may call while it has a batch of `ExactlyOnce` in hand.

The loop polls, goes back after an abort and commits. A call of the application that does the same
would pass over records, or commit what an abort takes back: it is refused before it does anything.

Owner: the consumer's thread.
"""

from __future__ import annotations

from enum import Enum

from pykclient.errors import UsageError


class BatchUse(Enum):
    """States of the last batch, as its application sees it."""

    NONE = "none"
    """The loop is at work, or was left."""
    UNUSED = "unused"
    """The loop has returned it, and its ``with`` block has not begun."""
    OPEN = "open"
    """Its ``with`` block runs."""
    ENDED = "ended"
    """Its block has ended; the loop goes on with the next one."""


class BatchGuard:
    """The state, which `ExactlyOnce` sets, and the calls that it forbids."""

    def __init__(self) -> None:
        self.state = BatchUse.NONE

    def on_loop_left(self) -> None:
        """Allow polls after the loop, unless its last batch was not used."""
        if self.state is BatchUse.ENDED:
            self.state = BatchUse.NONE

    def check_poll(self, call: str) -> None:
        """Raise unless the application may take records.

        Raises:
            UsageError: a batch is in hand, or the next one belongs to the loop.
        """
        if self.state is BatchUse.NONE:
            return
        if self.state is BatchUse.UNUSED:
            raise UsageError(
                f"{call}() passes over a batch of ExactlyOnce that was not used in a with block: "
                f"use it, or close the consumer, and the group reads it again"
            )
        where = "in a block" if self.state is BatchUse.OPEN else "between the batches"
        raise UsageError(
            f"{call}() {where} of ExactlyOnce takes records that no transaction has: leave the "
            f"call out. The loop polls, and heartbeats go on while a block works, for up to "
            f"max_poll_interval_ms"
        )

    def check_seek(self, call: str) -> None:
        """Raise unless the application may move the consumer.

        Raises:
            UsageError: a block is open.
        """
        self._refuse_in_block(
            call,
            "the end of the block commits the offsets behind its records, and the consumer would "
            "go on elsewhere. Seek after the block",
        )

    def check_commit(self, call: str) -> None:
        """Raise unless the application may commit.

        Raises:
            UsageError: a block is open.
        """
        self._refuse_in_block(
            call,
            "the end of the block commits the offsets, in its transaction. An abort would lose "
            "what is committed here: leave the call out",
        )

    def _refuse_in_block(self, call: str, reason: str) -> None:
        if self.state is BatchUse.OPEN:
            raise UsageError(f"{call}() in a block of ExactlyOnce: {reason}")
