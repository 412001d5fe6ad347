"""FetchSession: state that a broker keeps between fetches, so that each names only changes.

States: *new*, the next fetch names all partitions and requests a session; *incremental*, the broker
knows the partitions and offsets, and a fetch names changes and removed partitions; *closing*, after
an error the next fetch ends the session and requests another. A broker without room for a session
returns none, and the next fetch is full again. With `is_always_full` there is never a session,
since in one the broker chooses the order of partitions. This class sends nothing: `Fetcher` does,
and ends the sessions at close (`Fetcher.end_sessions`).

Owner: `Fetcher`, which has one session for each node.
Source: KIP-227; Java classes ``FetchSessionHandler`` and ``AbstractFetch``; KIP-516 (topic ids).
"""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.errors import FetchSessionIdNotFoundError, error_for_code
from pykclient.network.cluster.cluster import NO_TOPIC_ID
from pykclient.network.manager import Request, check_partitions
from pykclient.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.subscription import AssignedPartition
    from pykclient.errors import KafkaError
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.protocol.message import Message
    from pykclient.protocol.messages.fetch import PartitionData
    from pykclient.types import IsolationLevel

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_MAX: Final = 2**31 - 1

NO_LEADER_EPOCH: Final = -1

TOPIC_NAMES_MAX_VERSION: Final = 12
"""Later versions of Fetch identify topics by id only (KIP-516)."""


class SessionState(Enum):
    """Kind of the next fetch."""

    NEW = "new"
    INCREMENTAL = "incremental"
    CLOSING = "closing"


NEXT: Final[dict[SessionState, frozenset[SessionState]]] = {
    SessionState.NEW: frozenset({SessionState.NEW, SessionState.INCREMENTAL}),
    SessionState.INCREMENTAL: frozenset(SessionState),
    SessionState.CLOSING: frozenset(SessionState),
}


class PartitionFetch(NamedTuple):
    """The parts of a partition's request that differ from fetch to fetch."""

    topic_id: bytes
    leader_epoch: int
    offset: int


class SessionFetch(NamedTuple):
    """One request of a session, with the partitions that it names."""

    session_id: int
    epoch: int
    named: Mapping[tuple[str, int], PartitionFetch]
    forgotten: Sequence[tuple[tuple[str, int], bytes]] = ()
    """Partitions to remove from the session, each with its topic's id."""

    @property
    def is_full(self) -> bool:
        """True if it names all partitions, so that the response must name them too."""
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
    """See the module."""

    def __init__(self, *, is_always_full: bool = False) -> None:
        self.state = SessionState.NEW
        self._is_always_full = is_always_full
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._named: dict[tuple[str, int], PartitionFetch] = {}
        """State of the session at the broker, once it has read the last request."""
        self._uses_ids = True

    def next_fetch(
        self, wanted: dict[tuple[str, int], PartitionFetch], *, uses_ids: bool
    ) -> SessionFetch:
        """Return the request by which the broker reads exactly the wanted partitions.

        `uses_ids` tells whether the request names topics by id. A session uses either ids or names,
        and ends when an id changes.
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
        # With the id of a former session the broker ends that, and has room for the new one.
        return SessionFetch(self._id, INITIAL_EPOCH, wanted)

    def on_response(self, session_id: int) -> None:
        """Update the session from a response without an error."""
        if session_id <= NO_SESSION:
            self._begin_anew()
            return
        is_same = self.state is SessionState.INCREMENTAL and session_id == self._id
        self._epoch = self._epoch + 1 if is_same and self._epoch < EPOCH_MAX else 1
        self._id = session_id
        self._to(SessionState.INCREMENTAL)

    def on_error(self, error: KafkaError) -> None:
        """Start over: the whole request was refused, or its result is unknown."""
        if self._id == NO_SESSION or isinstance(error, FetchSessionIdNotFoundError):
            self._begin_anew()
        else:
            self._to(SessionState.CLOSING)

    def end(self) -> SessionFetch | None:
        """End the session; return the request that ends it at the broker, or None."""
        if self._id == NO_SESSION:
            return None
        session_id = self._id
        self._begin_anew()
        return SessionFetch(session_id, FINAL_EPOCH, {})

    def restart(self) -> None:
        """Start over after an interrupt: the state of the last fetch is unknown."""
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
    """Return the partitions that a request must name; None if a topic's id has changed."""
    changed: dict[tuple[str, int], PartitionFetch] = {}
    for name, fetch in wanted.items():
        known = before.get(name)
        if known == fetch:
            continue
        if known is not None and known.topic_id != fetch.topic_id:
            return None
        changed[name] = fetch
    return changed


class Target(NamedTuple):
    """A partition's part of a fetch."""

    assigned: AssignedPartition
    fetch_epoch: int
    offset: int

    @property
    def is_current(self) -> bool:
        """True if a response for it is still valid."""
        return self.assigned.is_assigned and self.assigned.fetch_epoch == self.fetch_epoch

    def backlog(self, isolation_level: IsolationLevel) -> float:
        """Return the number of offsets to fetch, infinity if it is unknown."""
        end = self.assigned.end(isolation_level)
        return math.inf if end is None else max(0, end - self.offset)


Targets = dict[tuple[str, int], Target]


class FetchCall:
    """One request to `node_id` in its `session`; ids and leader epochs come from `cluster`.

    `targets` are all partitions that the response may name; the request names the changes.
    """

    def __init__(
        self, node_id: int, targets: Targets, cluster: Cluster, session: FetchSession
    ) -> None:
        self.node_id = node_id
        self.targets = targets
        self._cluster = cluster
        self._session = session
        wanted = {name: self._partition_fetch(target) for name, target in targets.items()}
        self._has_ids = all(partition.topic_id != NO_TOPIC_ID for partition in wanted.values())
        self._fetch = session.next_fetch(wanted, uses_ids=self._has_ids)

    @property
    def is_full(self) -> bool:
        """True if the request names all partitions, so that the response must name them too."""
        return self._fetch.is_full

    def request(
        self,
        config: ConsumerConfig,
        max_bytes: int,
        *,
        on_response: Callable[[Message | None, int], None],
        on_failure: Callable[[KafkaError, int], None],
    ) -> Request:
        """Return the request, in a version that names topics if one of them has no id."""
        return Request(
            self._fetch.message(config, max_bytes),
            self.node_id,
            on_response=on_response,
            on_failure=on_failure,
            max_version=None if self._has_ids else TOPIC_NAMES_MAX_VERSION,
            check=self.check,
            held_ms=config.fetch_max_wait_ms,
        )

    def settle(self, response: FetchResponse) -> KafkaError | None:
        """Update the session; return the error of the whole request, or None."""
        if response.error_code == 0:
            self._session.on_response(response.session_id)
            return None
        error = error_for_code(response.error_code, f"Fetch from broker {self.node_id}")
        self._session.on_error(error)
        return error

    def fail(self, error: KafkaError) -> None:
        self._session.on_error(error)

    def check(self, response: Message) -> None:
        """Check that a response names only requested partitions, each once.

        It may leave out some: a throttled one names none.
        """
        assert isinstance(response, FetchResponse)
        reported = (partition for partition, _ in self._partitions(response))
        check_partitions("Fetch", self.targets, reported, needs_all=False)

    def partitions(self, response: FetchResponse) -> Iterator[tuple[Target, PartitionData]]:
        """Yield the result of each partition. Check the response first."""
        for partition, data in self._partitions(response):
            yield self.targets[partition], data

    def served(self, response: FetchResponse) -> list[Target]:
        """Return the targets that the broker serves; in a session, unnamed ones included."""
        codes = {name: data.error_code for name, data in self._partitions(response)}
        unnamed_code = None if self.is_full else 0
        return [
            target for name, target in self.targets.items() if codes.get(name, unnamed_code) == 0
        ]

    def served_topic(self, target: Target, response: FetchResponse, sought_in: int) -> bytes | None:
        """Return the id of the topic for which a broker has served a target; zeros without ids.

        None if that is uncertain. A broker refuses the id of a deleted topic, but accepts a name
        for the present topic; only metadata has its id. That must be newer than `sought_in`,
        a version of the cluster.
        """
        topic_id = self._cluster.topic_id(target.assigned.partition.topic)
        is_by_id = any(topic.topic_id != NO_TOPIC_ID for topic in response.responses)
        is_certain = is_by_id or topic_id == NO_TOPIC_ID or self._cluster.version > sought_in
        return topic_id if is_certain else None

    def _partition_fetch(self, target: Target) -> PartitionFetch:
        partition = target.assigned.partition
        info = self._cluster.partition(partition)
        epoch = None if info is None else info.leader_epoch
        topic_id = self._cluster.topic_id(partition.topic)
        return PartitionFetch(topic_id, NO_LEADER_EPOCH if epoch is None else epoch, target.offset)

    def _partitions(
        self, response: FetchResponse
    ) -> Iterator[tuple[tuple[str, int], PartitionData]]:
        for topic in response.responses:
            name = topic.topic or self._cluster.topic_name(topic.topic_id) or ""
            for data in topic.partitions:
                yield (name, data.partition_index), data
