"""Fetch sessions of a broker: what a client requested and received, and need not repeat.

A fetch with epoch 0 creates a session, epochs 1, 2, ... continue it, and epoch -1 ends it. A broker
with too many sessions evicts one.

Owner: the broker.
Source: KIP-227; Java classes ``FetchSession``, ``FullFetchContext``, ``IncrementalFetchContext``.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import count
from typing import TYPE_CHECKING, Final

from pykclient.errors.broker import FetchSessionIdNotFoundError, InvalidFetchSessionEpochError

if TYPE_CHECKING:
    from pykclient.errors.base import BrokerError
    from pykclient.protocol.messages.fetch import FetchPartition, PartitionData
    from pykclient.types import TopicPartition

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
SESSION_COUNT_MAX: Final = 1000
EPOCH_MAX: Final = 2**31 - 1


class FetchSession:
    """The partitions a client fetches from a broker; `wanted` is in read order."""

    def __init__(self, session_id: int) -> None:
        self.session_id = session_id
        self.next_epoch = 1
        self.wanted: dict[TopicPartition, FetchPartition] = {}
        self.topic_ids: dict[TopicPartition, bytes] = {}
        """Topic ids that the client used (KIP-516), even if the topic was deleted since."""
        self._sent: dict[TopicPartition, tuple[int, int, int]] = {}

    def forget(self, name: TopicPartition) -> None:
        """Remove a partition from the session."""
        self.wanted.pop(name, None)
        self.topic_ids.pop(name, None)
        self._sent.pop(name, None)

    def is_news(self, name: TopicPartition, data: PartitionData) -> bool:
        """Return whether the response must include this, and record it as sent."""
        if name not in self.wanted:
            return True  # a later fetch removed it while this one waited
        sent = (data.high_watermark, data.last_stable_offset, data.log_start_offset)
        has_changed = self._sent.get(name) != sent
        self._sent[name] = sent
        if data.records or data.error_code or data.preferred_read_replica >= 0:
            # Move it to the end, so that the other partitions get their turn (KIP-74).
            self.wanted[name] = self.wanted.pop(name)
            return True
        return has_changed or data.diverging_epoch.epoch >= 0


class FetchSessions:
    """Fetch sessions of a broker; above the limit, the least recently used one is evicted."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._ids = count(1)

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self) -> FetchSession:
        """Create a session."""
        session = FetchSession(next(self._ids))
        self._sessions[session.session_id] = session
        if len(self._sessions) > SESSION_COUNT_MAX:
            self._sessions.popitem(last=False)
        return session

    def end(self, session_id: int) -> None:
        """End a session if it exists."""
        self._sessions.pop(session_id, None)

    def resume(self, session_id: int, epoch: int) -> FetchSession | type[BrokerError]:
        """Return the session for its next fetch, or the error."""
        session = self._sessions.get(session_id)
        if session is None:
            return FetchSessionIdNotFoundError
        if epoch != session.next_epoch:
            return InvalidFetchSessionEpochError
        session.next_epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        self._sessions.move_to_end(session_id)
        return session

    def clear(self) -> None:
        """End all sessions, because the broker stops."""
        self._sessions.clear()
