"""ReadyQueues: the queues that are ready to drain, by leader node, and timers for the others.

A queue is ready when its first batch is full, has lingered, or is due for a retry, and while there
is a reason not to wait: a flush, closing, a thread that needs memory. A stale timer is harmless:
the queue is looked at, and is not ready. `linger_ms` counts from the batch's first record
(`OpenBatches`, in append.py).

Owner: the sender thread.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from pykclient.network.manager import NEVER_MS
from pykclient.producer.accumulator.batch import BatchState

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.producer.accumulator.batch import ProducerBatch
    from pykclient.producer.accumulator.queues import PartitionQueue


class ReadyQueues:
    """Ready queues and timers. `may_linger` returns whether a batch may wait for more records."""

    def __init__(self, may_linger: Callable[[], bool]) -> None:
        self._may_linger = may_linger
        self._by_node: dict[int | None, dict[PartitionQueue, None]] = {}
        self._timers: list[tuple[int, int, PartitionQueue]] = []
        self._timer_numbers = count()

    def look_at(self, queue: PartitionQueue, now_ms: int) -> None:
        """List a queue as ready, or remove it and set a timer for when it will be."""
        if not queue.waiting:
            return
        due_ms = self._due_ms(queue, queue.waiting[0])
        if due_ms <= now_ms:
            self._by_node.setdefault(queue.leader.node_id, {})[queue] = None
        else:
            # It may be listed for a later batch than this one, which waits for its retry.
            self.remove(queue)
            self.look_later(queue, due_ms)

    def _due_ms(self, queue: PartitionQueue, first: ProducerBatch) -> int:
        if first.attempt_count:
            return first.retry_due_ms(queue.leader)
        lingers = (
            first.state is BatchState.OPEN
            and len(queue.waiting) == 1
            and first.serial > queue.forced_serial
            and self._may_linger()
        )
        return first.due_ms if lingers else 0

    def look_later(self, queue: PartitionQueue, at_ms: int) -> None:
        if at_ms < queue.timer_ms:
            queue.timer_ms = at_ms
            heappush(self._timers, (at_ms, next(self._timer_numbers), queue))

    def remove(self, queue: PartitionQueue) -> None:
        """Remove a queue from its list. Call it before the leader changes."""
        ready = self._by_node.get(queue.leader.node_id)
        if ready is not None:
            ready.pop(queue, None)
            if not ready:
                del self._by_node[queue.leader.node_id]

    def look_at_due(self, now_ms: int) -> None:
        while self._timers and self._timers[0][0] <= now_ms:
            _, _, queue = heappop(self._timers)
            queue.timer_ms = NEVER_MS
            self.look_at(queue, now_ms)

    def next_timer_ms(self) -> int:
        return self._timers[0][0] if self._timers else NEVER_MS

    def node_ids(self) -> list[int]:
        return [node_id for node_id in self._by_node if node_id is not None]

    def led_by(self, node_id: int | None) -> list[PartitionQueue]:
        """Return the ready queues that a node leads, in order; without a leader for None."""
        return list(self._by_node.get(node_id, ()))
