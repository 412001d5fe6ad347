"""FetchSession: what one broker remembers of the fetches, so that each names only what is new.

*New*: the next fetch names everything, and requests a session. *Incremental*: the broker knows what
is read from where; a fetch names what has changed, and what is read no more. *Closing*: something
went wrong, so the next fetch ends the session and requests another. A broker without room for one
responds with no session, and the next fetch is a full one again. What `is_always_full` never has a
session: in it the broker chooses the order of partitions. It sends nothing itself.

Owner: `Fetcher`, which has one for each node.
Source: KIP-227; Java class ``FetchSessionHandler``.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.errors import FetchSessionIdNotFoundError
from pykclient.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.errors import KafkaError

__all__ = ["NEXT", "FetchSession", "PartitionFetch", "SessionFetch", "SessionState"]

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_MAX: Final = 2**31 - 1


class SessionState(Enum):
    """What the next fetch is to be."""

    NEW = "new"
    INCREMENTAL = "incremental"
    CLOSING = "closing"


NEXT: Final[dict[SessionState, frozenset[SessionState]]] = {
    SessionState.NEW: frozenset({SessionState.NEW, SessionState.INCREMENTAL}),
    SessionState.INCREMENTAL: frozenset(SessionState),
    SessionState.CLOSING: frozenset(SessionState),
}


class PartitionFetch(NamedTuple):
    """What is requested of one partition, as far as it differs from fetch to fetch."""

    topic_id: bytes
    leader_epoch: int
    offset: int


class SessionFetch(NamedTuple):
    """One request of a session, and which partitions it names."""

    session_id: int
    epoch: int
    named: Mapping[tuple[str, int], PartitionFetch]
    forgotten: Sequence[tuple[tuple[str, int], bytes]] = ()
    """Partitions that are read no more, each with its topic's id."""

    @property
    def is_full(self) -> bool:
        """Whether it names all partitions, so that the response is due to name them too."""
        return self.epoch <= INITIAL_EPOCH

    def message(self, config: ConsumerConfig, max_bytes: int) -> FetchRequest:
        """Return the request, for at most `max_bytes` of records."""
        topics: dict[str, FetchTopic] = {}
        for (name, index), partition in self.named.items():
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = FetchTopic(topic=name, topic_id=partition.topic_id)
            topic.partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=partition.leader_epoch,
                    fetch_offset=partition.offset,
                    partition_max_bytes=config.max_partition_fetch_bytes,
                )
            )
        forgotten: dict[str, ForgottenTopic] = {}
        for (name, index), topic_id in self.forgotten:
            left = forgotten.setdefault(name, ForgottenTopic(topic=name, topic_id=topic_id))
            left.partitions.append(index)
        return FetchRequest(
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=max_bytes,
            isolation_level=config.isolation_level,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
            rack_id=config.client_rack,
        )


class FetchSession:
    """The session with one node."""

    def __init__(self, *, is_always_full: bool = False) -> None:
        self.state = SessionState.NEW
        self._is_always_full = is_always_full
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._named: dict[tuple[str, int], PartitionFetch] = {}
        """What the broker has on record, once it has read the last request."""
        self._uses_ids = True

    def next_fetch(
        self, wanted: dict[tuple[str, int], PartitionFetch], *, uses_ids: bool
    ) -> SessionFetch:
        """Return what to say so that the broker reads what is wanted, and nothing else.

        `uses_ids` is whether the request names topics by id. A session does it one way, and does
        not outlive a change of an id.
        """
        if self._is_always_full:
            return SessionFetch(NO_SESSION, FINAL_EPOCH, wanted)
        before, self._named = self._named, wanted
        is_incremental = self.state is SessionState.INCREMENTAL and uses_ids == self._uses_ids
        self._uses_ids = uses_ids
        if is_incremental:
            named = _changes(before, wanted)
            if named is not None:
                forgotten = [(name, b.topic_id) for name, b in before.items() if name not in wanted]
                return SessionFetch(self._id, self._epoch, named, forgotten)
        # With the id of one that there was, the broker ends it and has room for the new one.
        return SessionFetch(self._id, INITIAL_EPOCH, wanted)

    def on_response(self, session_id: int) -> None:
        """Take the session's id from a response without an error."""
        if session_id <= NO_SESSION:
            self._begin_anew()
            return
        is_same = self.state is SessionState.INCREMENTAL and session_id == self._id
        self._epoch = self._epoch + 1 if is_same and self._epoch < EPOCH_MAX else 1
        self._id = session_id
        self._to(SessionState.INCREMENTAL)

    def on_error(self, error: KafkaError) -> None:
        """Start over: the whole request was refused, or what became of it is not known."""
        if self._id == NO_SESSION or isinstance(error, FetchSessionIdNotFoundError):
            self._begin_anew()
        else:
            self._to(SessionState.CLOSING)

    def end(self) -> SessionFetch | None:
        """End the session; return the request that has the broker forget it, None if none was."""
        if self._id == NO_SESSION:
            return None
        session_id = self._id
        self._begin_anew()
        return SessionFetch(session_id, FINAL_EPOCH, {})

    def restart(self) -> None:
        """Start over: what became of the last fetch is not known, nor whether it was noted."""
        self.state = SessionState.NEW if self._id == NO_SESSION else SessionState.CLOSING

    def _begin_anew(self) -> None:
        self._id = NO_SESSION
        self._to(SessionState.NEW)

    def _to(self, state: SessionState) -> None:
        assert state in NEXT[self.state], f"{self.state} -> {state}"
        self.state = state


def _changes(
    before: Mapping[tuple[str, int], PartitionFetch],
    wanted: Mapping[tuple[str, int], PartitionFetch],
) -> dict[tuple[str, int], PartitionFetch] | None:
    """Return what a request has to name; None if a topic has another id by now."""
    changed: dict[tuple[str, int], PartitionFetch] = {}
    for name, fetch in wanted.items():
        known = before.get(name)
        if known == fetch:
            continue
        if known is not None and known.topic_id != fetch.topic_id:
            return None
        changed[name] = fetch
    return changed
