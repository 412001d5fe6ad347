"""SenderMailbox: what applications' threads leave for the sender thread, and how they wake it.

It holds new batches, those put aside until they can be queued, queues whose open batch was closed
since it is full, and the wish for memory. A wake-up is left out while the sender is bound to look
soon enough by itself.

Owner: filled by any thread, emptied by the sender thread.
Source: in Java each `send` goes on to wake the sender; KIP-480.
"""

from __future__ import annotations

from collections import deque
from threading import get_ident
from typing import TYPE_CHECKING

from pykclient.network.manager import NEVER_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.producer.accumulator.batch import ProducerBatch
    from pykclient.producer.accumulator.queues import PartitionQueue

__all__ = ["SenderMailbox"]


class SenderMailbox:
    """See the module. `wakeup` makes the sender look."""

    def __init__(self, wakeup: Callable[[], None]) -> None:
        self.created: deque[tuple[PartitionQueue, ProducerBatch]] = deque()
        self.aside: deque[tuple[PartitionQueue, ProducerBatch]] = deque()
        """Batches to be queued, and not taken out before that."""
        self.sealed: deque[PartitionQueue] = deque()
        self.is_memory_wanted = False
        self._wakeup = wakeup
        self._is_woken = False
        self._waking: set[int] = set()
        """The threads that are about to wake the sender."""
        self._looks_at_ms = NEVER_MS
        """When the sender looks next, come what may."""

    def wake(self, wanted_ms: int) -> None:
        """Make the sender look by `wanted_ms`, after something was put into the mailbox.

        The order is what makes it safe to leave out the wake-up: the sender (1) calls `begin_look`,
        (2) empties the mailbox, (3) calls `end_look`. A thread that reads an early time or
        a true here put its message in before (2), or before a look that is still to come.
        """
        if wanted_ms >= self._looks_at_ms:
            return
        me = get_ident()
        # What interrupts us between the mark and the wake-up may wait for the sender.
        if not self._is_woken or me in self._waking:
            try:
                self._waking.add(me)
                self._is_woken = True
                self._wakeup()
            except BaseException:  # an interrupt: no later call would wake the sender
                self._wakeup()
                raise
            finally:
                self._waking.discard(me)

    def begin_look(self) -> None:
        """Have every later message wake the sender. Sender thread."""
        self._is_woken = False
        self._looks_at_ms = NEVER_MS

    def end_look(self, next_look_ms: int) -> None:
        self._looks_at_ms = next_look_ms
