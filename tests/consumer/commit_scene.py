"""What commits are tested with: a group's known coordinator, and its responses.

Owner: the test that made it.
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
    """What a consumer of these partitions has returned, without a buffer."""
    return Unprocessed(
        subscription, drop=lambda assigned: None, log=ClientLog("pykclient.consumer", "")
    )


def at(offset: int) -> OffsetAndMetadata:
    """An offset without metadata."""
    return OffsetAndMetadata(offset)


def committed_in(request: Request) -> dict[TopicPartition, int]:
    """The offsets that a request commits."""
    message = request.message
    assert isinstance(message, OffsetCommitRequest)
    return {
        TopicPartition(each.name, partition.partition_index): partition.committed_offset
        for each in message.topics
        for partition in each.partitions
    }


def response_of_broker(cluster: FakeCluster, message: RequestMessage, version: int) -> Message:
    """Return a broker's response in a version; both are encoded and decoded."""
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
    """A group as whose member a test commits."""

    def __init__(self) -> None:
        self.metadata = GroupMetadata(GROUP, 7, "m-1", "instance")
        self.commit_error: KafkaError | None = None
        """What keeps it from committing."""
        self.refusals: list[BrokerError] = []
        self.has_newer_epoch = False
        """Whether it is a member still, of KIP-848, whose epoch has grown."""

    def member(self) -> GroupMetadata:
        """As which member to commit."""
        if self.commit_error is not None:
            raise self.commit_error
        return self.metadata

    def on_commit_refused(self, member: GroupMetadata, error: BrokerError) -> KafkaError:
        """Note a refusal."""
        self.refusals.append(error)
        return error if error.fatal or self.has_newer_epoch else commit_refused(member, error)


class CommitScene:
    """Commits of a group that has topic ``t``, and what is needed around them."""

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
        """What interceptors would have received."""
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
        """Have the metadata list ``t`` with another id."""
        update_metadata(self.metadata, topic("t", [1, 1, 1], topic_id=NEW_TOPIC_ID))

    def find_coordinator(self, error_code: int = 0, now_ms: int = START_MS) -> None:
        """Have the coordinator looked up, and respond."""
        self.coordinator.node()
        (request,) = self.coordinators.poll(now_ms).requests
        place = (2, "broker-2", 9092) if error_code == 0 else (-1, "", -1)
        found = Coordinator(GROUP, *place, error_code)
        request.on_response(FindCoordinatorResponse(coordinators=[found]), now_ms)

    def lose_coordinator(self) -> None:
        """Have the coordinator's connection lost."""
        assert self.node_id is not None
        self.coordinator.mark_unknown(self.node_id, "the connection is lost")

    @property
    def node_id(self) -> int | None:
        """The coordinator, as far as it is known."""
        return self.coordinator.node_id()

    def read(self, *positions: int) -> None:
        """Have partitions 0, 1 ... assigned, at these positions."""
        self.subscription.assign(TopicPartition("t", number) for number in range(len(positions)))
        for assigned, offset in zip(self.subscription, positions, strict=True):
            self.subscription.seek(assigned, offset)

    def sent(self, now_ms: int = START_MS) -> list[Request]:
        """What the manager sends now."""
        return list(self.commits.poll(now_ms).requests)

    def respond(self, request: Request, *codes: int, now_ms: int = START_MS) -> None:
        """Respond to a commit: the partitions get these codes in order, the rest 0."""
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
        """Make the calls that came up, as a driver does."""
        while self.user_calls:
            call = self.user_calls.popleft()
            call.function(*call.args)
            call.on_done(None)
