"""A group with a known coordinator and its responses, for tests of commits.

Owner: the test that created it.
"""

from __future__ import annotations

from collections import deque
from types import MappingProxyType
from typing import TYPE_CHECKING

from pykclient.consumer.config import ConsumerConfig
from pykclient.consumer.group.group import ConsumerGroup
from pykclient.consumer.group.metadata import commit_refused
from pykclient.consumer.offsets.commit import Commits
from pykclient.consumer.offsets.committed import CommittedOffsets
from pykclient.consumer.offsets.former_topics import FormerTopics
from pykclient.consumer.offsets.unprocessed import Unprocessed
from pykclient.consumer.subscription import SubscriptionState
from pykclient.network.coordinators import Coordinators, CoordinatorType
from pykclient.network.log import ClientLog
from pykclient.protocol.message import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from pykclient.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from pykclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pykclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from pykclient.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from tests.consumer.known_cluster import (
    RETRY_BACKOFF,
    START_MS,
    TOPIC_ID,
    ReachableNetwork,
    make_metadata,
    topic,
    update_metadata,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient.errors import BrokerError, KafkaError
    from pykclient.network.manager import Request, UserCall
    from pykclient.protocol.message import Message
    from pykclient.protocol.message import Request as RequestMessage
    from pykclient.testing.fake.cluster import FakeCluster

GROUP = "g"
NEW_TOPIC_ID = TOPIC_ID[::-1]
FRAME_SIZE_BYTES = 4


def unprocessed_of(subscription: SubscriptionState) -> Unprocessed:
    """Return the offsets that a consumer of these partitions has returned, without a buffer."""
    return Unprocessed(
        subscription, drop=lambda assigned: None, log=ClientLog("pykclient.consumer", "")
    )


def at(offset: int) -> OffsetAndMetadata:
    """Return an offset without metadata."""
    return OffsetAndMetadata(offset)


def committed_in(request: Request) -> dict[TopicPartition, int]:
    """Return the offsets that a request commits."""
    message = request.message
    assert isinstance(message, OffsetCommitRequest)
    return {
        TopicPartition(each.name, partition.partition_index): partition.committed_offset
        for each in message.topics
        for partition in each.partitions
    }


def response_of_broker(cluster: FakeCluster, message: RequestMessage, version: int) -> Message:
    """Return a broker's response in a version; request and response are encoded and decoded."""
    frame = memoryview(encode_request(message, version, 0, None))
    _, received = decode_request(frame[FRAME_SIZE_BYTES:])
    response = cluster.handle_request(0, received, START_MS, version=version).response
    assert response is not None
    written = memoryview(encode_response(response, version, 0))
    return decode_response(message.response_type, version, written[FRAME_SIZE_BYTES:])


def offset_fetch_response(
    request: Request,
    committed: Mapping[TopicPartition, OffsetAndMetadata] = MappingProxyType({}),
    *,
    errors: Mapping[TopicPartition, int] = MappingProxyType({}),
    group_error: int = 0,
) -> OffsetFetchResponse:
    """Return the response of the newest brokers to an OffsetFetch request."""
    assert request.build is not None
    message = request.build(OffsetFetchRequest.max_version)
    assert isinstance(message, OffsetFetchRequest)
    (group,) = message.groups
    topics = []
    for each in group.topics or ():
        partitions = []
        for number in each.partition_indexes:
            partition = TopicPartition(each.name, number)
            offset, metadata, epoch = committed.get(partition, OffsetAndMetadata(-1))
            partitions.append(
                OffsetFetchResponsePartitions(
                    number,
                    offset,
                    -1 if epoch is None else epoch,
                    metadata,
                    errors.get(partition, 0),
                )
            )
        topics.append(OffsetFetchResponseTopics(topic_id=each.topic_id, partitions=partitions))
    if group_error:
        topics = []
    return OffsetFetchResponse(
        groups=[OffsetFetchResponseGroup(group.group_id, topics, group_error)]
    )


class Member(ConsumerGroup):
    """A group with one member, which commits."""

    def __init__(self) -> None:
        self.metadata = GroupMetadata(GROUP, 7, "m-1", "instance")
        self.commit_error: KafkaError | None = None
        """The error that prevents its commits."""
        self.refusals: list[BrokerError] = []
        self.has_newer_epoch = False
        """True if it is still a member (KIP-848) and has a newer epoch."""

    def member(self) -> GroupMetadata:
        """Return the member that commits."""
        if self.commit_error is not None:
            raise self.commit_error
        return self.metadata

    def on_commit_refused(self, member: GroupMetadata, error: BrokerError) -> KafkaError:
        """Record the error of a commit."""
        self.refusals.append(error)
        return error if error.fatal or self.has_newer_epoch else commit_refused(member, error)


class CommitScene:
    """Commits of a group that reads topic ``t``, and their surroundings."""

    def __init__(
        self,
        *,
        auto_commit_interval_ms: int | None = None,
        finds_coordinator: bool = True,
        topics: Mapping[str, bytes] = MappingProxyType({"t": TOPIC_ID}),
    ) -> None:
        self.metadata = make_metadata()
        update_metadata(
            self.metadata,
            *(topic(name, [1, 1, 1], topic_id=topic_id) for name, topic_id in topics.items()),
        )
        self.network = ReachableNetwork()
        self.coordinators = Coordinators(self.metadata, self.network, retry_backoff=RETRY_BACKOFF)
        self.coordinator = self.coordinators.find(CoordinatorType.GROUP, GROUP)
        self.subscription = SubscriptionState()
        self.membership = Member()
        self.user_calls: deque[UserCall] = deque()
        self.intercepted: list[Mapping[TopicPartition, OffsetAndMetadata]] = []
        """Offsets that interceptors would have received."""
        auto = {"auto_commit_interval_ms": auto_commit_interval_ms}
        self.former_topics = FormerTopics()
        self.commits = Commits(
            ConsumerConfig.from_settings(
                bootstrap_servers="boot:9092",
                group_id=GROUP,
                enable_auto_commit=auto_commit_interval_ms is not None,
                **({} if auto_commit_interval_ms is None else auto),
            ),
            subscription=self.subscription,
            unprocessed=unprocessed_of(self.subscription),
            coordinator=self.coordinator,
            metadata=self.metadata,
            group=self.membership,
            retry_backoff=RETRY_BACKOFF,
            user_calls=self.user_calls,
            former_topics=self.former_topics,
            on_commit=self.intercepted.append,
        )
        self.committed = CommittedOffsets(
            self.coordinator,
            metadata=self.metadata,
            retry_backoff=RETRY_BACKOFF,
        )
        if finds_coordinator:
            self.find_coordinator()

    def recreate_topic(self) -> None:
        """List ``t`` in the metadata with another id."""
        update_metadata(self.metadata, topic("t", [1, 1, 1], topic_id=NEW_TOPIC_ID))

    def find_coordinator(self, error_code: int = 0, now_ms: int = START_MS) -> None:
        """Look up the coordinator, and respond to the lookup."""
        self.coordinator.node()
        (request,) = self.coordinators.poll(now_ms).requests
        place = (2, "broker-2", 9092) if error_code == 0 else (-1, "", -1)
        found = Coordinator(GROUP, *place, error_code)
        request.on_response(FindCoordinatorResponse(coordinators=[found]), now_ms)

    def lose_coordinator(self) -> None:
        """Break the coordinator's connection."""
        assert self.node_id is not None
        self.coordinator.mark_unknown(self.node_id, "the connection is lost")

    @property
    def node_id(self) -> int | None:
        """The coordinator's id, or None if it is unknown."""
        return self.coordinator.node_id()

    def read(self, *positions: int) -> None:
        """Assign partitions 0, 1 ... at these positions."""
        self.subscription.assign(TopicPartition("t", number) for number in range(len(positions)))
        for assigned, offset in zip(self.subscription, positions, strict=True):
            self.subscription.seek(assigned, offset)

    def sent(self, now_ms: int = START_MS) -> list[Request]:
        """Return the requests that the manager sends now."""
        return list(self.commits.poll(now_ms).requests)

    def respond(self, request: Request, *codes: int, now_ms: int = START_MS) -> None:
        """Respond to a commit with these codes, by partition in order; 0 for the rest."""
        message = request.message
        assert isinstance(message, OffsetCommitRequest)
        rest = iter(codes)
        written = OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    each.name,
                    each.topic_id,
                    [
                        OffsetCommitResponsePartition(partition.partition_index, next(rest, 0))
                        for partition in each.partitions
                    ],
                )
                for each in message.topics
            ]
        )
        assert request.check is not None
        request.check(written)
        request.on_response(written, now_ms)

    def run_user_calls(self) -> None:
        """Run the pending calls of user code, as a driver does."""
        while self.user_calls:
            call = self.user_calls.popleft()
            call.function(*call.args)
            call.on_done(None)
