"""PendingRequests: requests that no connection has taken yet, by node, and those for any node.

A request leaves it once: taken to be written, or taken because its node or its time is lost. It
makes no callbacks.

Owner: the driver of the engine.
Source: Java class ``NetworkClientDelegate``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pykclient.network.manager import ANY_NODE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pykclient.network.manager import Request

__all__ = ["PendingRequests"]


class PendingRequests:
    """Queues by node id; None is for any node. A queue exists only while it holds something."""

    def __init__(self) -> None:
        self._queues: dict[int | None, deque[Request]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def add(self, request: Request) -> None:
        self._queues.setdefault(request.node_id, deque()).append(request)

    def has(self, node_id: int | None) -> bool:
        return node_id in self._queues

    def count(self, node_id: int | None) -> int:
        return len(self._queues.get(node_id, ()))

    def node_ids(self) -> list[int]:
        return [node_id for node_id in self._queues if node_id is not ANY_NODE]

    def take_first(self, node_id: int | None) -> Request:
        queue = self._queues[node_id]
        request = queue.popleft()
        if not queue:
            del self._queues[node_id]
        return request

    def take_all(self, node_id: int | None) -> Iterable[Request]:
        return self._queues.pop(node_id, ())

    def take_overdue(self, now_ms: int) -> list[Request]:
        if self.next_deadline_ms(now_ms + 1) > now_ms:
            return []
        overdue = [r for r in self._all() if r.deadline_ms <= now_ms]
        waiting = [r for r in self._all() if r.deadline_ms > now_ms]
        self._queues.clear()
        for request in waiting:
            self.add(request)
        return overdue

    def extend_deadlines(self, extra_ms: int) -> None:
        for request in self._all():
            request.deadline_ms += extra_ms

    def next_deadline_ms(self, default_ms: int) -> int:
        """Return when the first request runs out of time; `default_ms` if there is none."""
        return min((request.deadline_ms for request in self._all()), default=default_ms)

    def _all(self) -> Iterator[Request]:
        for queue in self._queues.values():
            yield from queue
