"""A group coordinator that hung and was replaced: it responds with what it knew.

Owner: none; it holds no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pykclient.errors.broker import UnstableOffsetCommitError
from pykclient.protocol.messages.find_coordinator import FindCoordinatorResponse
from pykclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from pykclient.testing.fake import faults
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pykclient.protocol.message import Request
    from pykclient.testing.fake.cluster import FakeCluster
    from pykclient.testing.fake.faults import Fault
    from pykclient.testing.fake.groups.offsets import CommittedOffset


class StaleCoordinator(NamedTuple):
    """The stale coordinator with its old state.

    It has offsets, and the partitions for which a transaction was about to commit one.
    """

    broker_id: int
    named: Fault
    """Responds to who looks for the coordinator."""
    committed: Mapping[TopicPartition, CommittedOffset]
    pending: Collection[TopicPartition]

    @classmethod
    def of_group(cls, cluster: FakeCluster, group: str) -> StaleCoordinator:
        """Return the coordinator of a group as it is now."""
        broker_id = cluster.groups.partition(group).leader_id
        host, port = cluster.brokers[broker_id].address(None)
        offsets = cluster.groups.offsets(group)
        return cls(
            broker_id,
            faults.respond_with(FindCoordinatorResponse(node_id=broker_id, host=host, port=port)),
            offsets.all(),
            {name for name in offsets.names() if offsets.is_unstable(name)},
        )

    def responds(self) -> Fault:
        """Respond to who reads offsets of the group, on that broker."""
        return faults.respond_with(self._response)

    def _response(self, request: Request) -> OffsetFetchResponse:
        assert isinstance(request, OffsetFetchRequest)
        requested = (
            self.committed
            if request.topics is None
            else [
                TopicPartition(topic.name, number)
                for topic in request.topics
                for number in topic.partition_indexes
            ]
        )
        return OffsetFetchResponse(
            topics=[
                OffsetFetchResponseTopic(
                    name=name.topic,
                    partitions=[self._partition(name, is_stable=request.require_stable)],
                )
                for name in requested
            ]
        )

    def _partition(self, name: TopicPartition, *, is_stable: bool) -> OffsetFetchResponsePartition:
        is_refused = is_stable and name in self.pending
        found = self.committed.get(name)
        return OffsetFetchResponsePartition(
            partition_index=name.partition,
            committed_offset=-1 if found is None or is_refused else found.offset,
            metadata=None if found is None or is_refused else found.metadata,
            error_code=UnstableOffsetCommitError.code if is_refused else 0,
        )
