"""The two directions of one proxied connection, and which answer belongs to which request.

A broker answers the requests of a connection in their order; a produce request with acks=0 has no
answer. So the request that an answer names by its correlation id is the oldest with that id, and
those before it never get one.

Owner: the connection that it belongs to.
Source: the Kafka protocol guide, section "Request and Response Headers".
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Final

from pykclient.testing.proxy.faults import Direction
from pykclient.testing.proxy.frames import SIZE, FrameStream
from pykclient.testing.proxy.plan import FrameHead

if TYPE_CHECKING:
    from pykclient.testing.proxy.plan import FaultPlan, Strike

__all__ = ["UNANSWERED_COUNT_MAX", "ProxiedExchange"]

UNANSWERED_COUNT_MAX: Final = 10_000
"""Of more requests without an answer the oldest are forgotten."""

REQUEST_HEAD: Final = struct.Struct(">ihhi")
ANSWER_HEAD: Final = struct.Struct(">ii")


class ProxiedExchange:
    """`requests` takes what the client sends, `answers` what the broker sends."""

    def __init__(self, plan: FaultPlan) -> None:
        self._plan = plan
        self._unanswered: deque[tuple[int, int]] = deque(maxlen=UNANSWERED_COUNT_MAX)
        """Correlation id and API of each."""
        self.requests: Final = FrameStream(Direction.REQUEST, self._on_request)
        self.answers: Final = FrameStream(Direction.ANSWER, self._on_answer)

    def _on_request(self, head: bytes) -> Strike | None:
        size_bytes, api, _, correlation_id = REQUEST_HEAD.unpack(head)
        self._unanswered.append((correlation_id, api))
        return self._plan.strike_frame(FrameHead(Direction.REQUEST, api, SIZE.size + size_bytes))

    def _on_answer(self, head: bytes) -> Strike | None:
        size_bytes, correlation_id = ANSWER_HEAD.unpack(head)
        api = self._take_api(correlation_id)
        return self._plan.strike_frame(FrameHead(Direction.ANSWER, api, SIZE.size + size_bytes))

    def _take_api(self, correlation_id: int) -> int | None:
        """The API of the request with this id; None, and nothing is forgotten, without one."""
        for index, (known_id, api) in enumerate(self._unanswered):
            if known_id == correlation_id:
                for _ in range(index + 1):
                    self._unanswered.popleft()
                return api
        return None
