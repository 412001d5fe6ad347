"""FetchCall: one Fetch request, from what it requests of each partition to what is reported.

What a response means the fetcher decides; that it names only what was requested, is checked here
before the fetcher looks at it.

Owner: the driver of the engine.
Source: Java class ``AbstractFetch``, method ``createFetchRequest``; KIP-227 (sessions), KIP-516
(topic ids).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.consumer.fetch.session import PartitionFetch
from pykclient.errors import error_for_code
from pykclient.network.cluster.cluster import NO_TOPIC_ID
from pykclient.network.manager import Request, check_answered
from pykclient.protocol.messages.fetch import FetchResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.fetch.session import FetchSession
    from pykclient.consumer.subscription import AssignedPartition
    from pykclient.errors import KafkaError
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.protocol.message import Message
    from pykclient.protocol.messages.fetch import PartitionData
    from pykclient.types import IsolationLevel

__all__ = ["FetchCall", "Target", "Targets"]

NO_EPOCH: Final = -1
NO_ERROR: Final = 0

TOPIC_NAMES_MAX_VERSION: Final = 12
"""Newer versions of Fetch name topics by id alone (KIP-516)."""


class Target(NamedTuple):
    """What was requested of one partition."""

    assigned: AssignedPartition
    fetch_epoch: int
    offset: int

    @property
    def is_current(self) -> bool:
        """Whether a response about it still counts."""
        return self.assigned.is_assigned and self.assigned.fetch_epoch == self.fetch_epoch

    def backlog(self, isolation_level: IsolationLevel) -> float:
        """Return how many offsets there are to fetch, infinitely many where that is not known."""
        end = self.assigned.end(isolation_level)
        return math.inf if end is None else max(0, end - self.offset)


Targets = dict[tuple[str, int], Target]


class FetchCall:
    """A request to `node_id` in its `session`; ids and leader epochs are those of `cluster`.

    `targets` is everything that the response may name; the request names what is new of it.
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
        """Whether the request names all that is wanted, and the response is due to do so too."""
        return self._fetch.is_full

    def request(
        self,
        config: ConsumerConfig,
        max_bytes: int,
        *,
        on_response: Callable[[Message | None, int], None],
        on_failure: Callable[[KafkaError, int], None],
    ) -> Request:
        """Make the request, in a version that names topics if one of them has no id."""
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
        """Note how the request went; return why it was refused, None if it was not."""
        if response.error_code == 0:
            self._session.on_response(response.session_id)
            return None
        error = error_for_code(response.error_code, f"Fetch from broker {self.node_id}")
        self._session.on_error(error)
        return error

    def fail(self, error: KafkaError) -> None:
        """Note that no response will come."""
        self._session.on_error(error)

    def check(self, response: Message) -> None:
        """Make sure that a response names no partition but those requested, each once.

        It may leave some out: one that throttles us names none.
        """
        assert isinstance(response, FetchResponse)
        reported = (partition for partition, _ in self._partitions(response))
        check_answered("Fetch", self.targets, reported, needs_all=False)

    def partitions(self, response: FetchResponse) -> Iterator[tuple[Target, PartitionData]]:
        """Return what is reported of each partition. Requires that the response was checked."""
        for partition, data in self._partitions(response):
            yield self.targets[partition], data

    def served(self, response: FetchResponse) -> list[AssignedPartition]:
        """Return what the broker serves: in a session, what it has no news of is among it."""
        codes = {name: data.error_code for name, data in self._partitions(response)}
        silent_code = NO_ERROR if not self.is_full else None
        return [
            target.assigned
            for name, target in self.targets.items()
            if codes.get(name, silent_code) == NO_ERROR
        ]

    def _partition_fetch(self, target: Target) -> PartitionFetch:
        partition = target.assigned.partition
        info = self._cluster.partition(partition)
        epoch = None if info is None else info.leader_epoch
        topic_id = self._cluster.topic_id(partition.topic)
        return PartitionFetch(topic_id, NO_EPOCH if epoch is None else epoch, target.offset)

    def _partitions(
        self, response: FetchResponse
    ) -> Iterator[tuple[tuple[str, int], PartitionData]]:
        for topic in response.responses:
            name = topic.topic or self._cluster.topic_name(topic.topic_id) or ""
            for data in topic.partitions:
                yield (name, data.partition_index), data
