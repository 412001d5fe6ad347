"""FakeBroker: the fake cluster as the broker behind a `SenderBench`.

It handles the bench's requests, whichever node they are for, so that a simulation decides by itself
which of them arrive, when, how often, and whose responses are lost. Its clock stands still.

Owner: the simulation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake.cluster import FakeCluster
from pykclient.testing.fake.groups.group import GroupSettings
from pykclient.testing.fake.handlers import HANDLERS
from pykclient.testing.fake.transactions.settings import TransactionSettings
from tests.producer.sender_bench import TOPIC, TOPIC_ID

if TYPE_CHECKING:
    from pykclient.network.manager import Request
    from pykclient.protocol.message import Message
    from pykclient.protocol.message import Request as RequestMessage
    from pykclient.testing.fake.topics import Topic

BROKER_ID = 0


class FakeBroker:
    """See the module. The cluster has the bench's topic."""

    def __init__(self, partition_count: int, *, transaction_version: int = 2) -> None:
        self.cluster = FakeCluster(
            1,
            group_settings=GroupSettings(offsets_topic_num_partitions=1),
            transaction_settings=TransactionSettings(
                transaction_version=transaction_version, transaction_state_log_num_partitions=1
            ),
        )
        self.cluster.create_topic(TOPIC, partition_count, topic_id=UUID(bytes=TOPIC_ID))

    @property
    def topic(self) -> Topic:
        """The present topic."""
        return self.cluster.topics[TOPIC]

    def values(self) -> list[list[bytes | None]]:
        """Return the values of the present topic by partition, markers left out."""
        return [
            [
                value
                for batch in partition.log.batches()
                if not batch.is_control
                for value in batch.records().values
            ]
            for partition in self.topic.partitions
        ]

    def recreate_topic(self) -> None:
        """Delete and recreate the topic."""
        partition_count = len(self.topic.partitions)
        self.cluster.delete_topic(TOPIC)
        self.cluster.create_topic(TOPIC, partition_count)

    def handle(self, request: Request, *, version_max: int | None = None) -> Message:
        """Handle a request in the highest version that it allows, and return the response."""
        message, version = self._built(request, version_max)
        call = self.cluster.handle_request(BROKER_ID, message, 0, version=version)
        return call.require_response()

    def refuse(self, request: Request, error_code: int) -> Message:
        """Return the response that refuses everything in a request."""
        message, _ = self._built(request)
        return HANDLERS[message.api_key].refuse(self.cluster, message, error_code)

    def _built(
        self, request: Request, version_max: int | None = None
    ) -> tuple[RequestMessage, int]:
        version = self.cluster.versions(BROKER_ID)[ApiKey(request.message.api_key)][1]
        for limit in (request.max_version, version_max):
            version = version if limit is None else min(version, limit)
        return request.message if request.build is None else request.build(version), version
