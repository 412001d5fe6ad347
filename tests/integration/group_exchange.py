"""Asks the coordinator of a group, real or fake, the same requests, and tells the answers alike.

Owner: the calling thread, for the length of one test.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from pykclient.errors import error_for_code
from pykclient.protocol.message import Message, decode_response, encode_request
from pykclient.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from pykclient.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from pykclient.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pykclient.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pykclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pykclient.protocol.message import Request
    from pykclient.testing import FakeCluster

__all__ = ["Answer", "Exchange", "FakeExchange", "GroupUser", "RealExchange"]

M = TypeVar("M", bound=Message)
TIMEOUT_S = 30.0
_SIZE_BYTES = 4

Assigned = tuple[tuple[str, tuple[int, ...]], ...]
"""Topics by name with their partitions, in order."""


class Exchange(Protocol):
    """A broker that coordinates every group."""

    def ask(self, request: Request, answer: type[M], version: int | None = None) -> M:
        """Its answer; `version` None means the newest."""
        ...


class RealExchange:
    """A broker behind a socket; a connection of its own for each request, for they are few."""

    def __init__(self, servers: str) -> None:
        host, _, port = servers.partition(":")
        self._address = host, int(port)

    def ask(self, request: Request, answer: type[M], version: int | None = None) -> M:
        """Its answer."""
        asked = request.max_version if version is None else version
        with socket.create_connection(self._address, TIMEOUT_S) as stream:
            stream.sendall(encode_request(request, asked, 0, "test"))
            with stream.makefile("rb") as file:
                size_bytes = int.from_bytes(file.read(_SIZE_BYTES), "big")
                return decode_response(answer, asked, file.read(size_bytes))


class FakeExchange:
    """A fake broker, asked without a socket; each request comes a millisecond after the last."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def ask(self, request: Request, answer: type[M], version: int | None = None) -> M:
        """Its answer."""
        now_ms = self._cluster.now_ms + 1
        response = self._cluster.ask(0, request, now_ms, version=version).answered()
        assert isinstance(response, answer)
        return response


class Answer(NamedTuple):
    """What a heartbeat came to; `assigned` is None when the answer did not say."""

    error: str
    epoch: int = 0
    assigned: Assigned | None = None


class GroupUser:
    """All members of one group, seen from the clients' side."""

    def __init__(self, exchange: Exchange, group: str) -> None:
        self._exchange = exchange
        self.group = group
        self._ids: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}

    def create_topics(self, partition_counts: Mapping[str, int]) -> None:
        """Create those topics that are not there yet, and wait until the broker knows them."""
        self._exchange.ask(
            CreateTopicsRequest(
                topics=[CreatableTopic(*each, 1) for each in partition_counts.items()],
                timeout_ms=int(TIMEOUT_S * 1000),
            ),
            CreateTopicsResponse,
        )
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in partition_counts]
        )

        def are_known() -> bool:
            topics = self._exchange.ask(request, MetadataResponse).topics
            self._ids = {topic.name or "": topic.topic_id for topic in topics}
            self._names = {topic.topic_id: topic.name or "" for topic in topics}
            return all(topic.error_code == 0 for topic in topics)

        wait_until(are_known)

    def wait_for_coordinator(self) -> None:
        """Wait until the broker coordinates the group; a new one makes its topic for that first."""
        request = FindCoordinatorRequest(coordinator_keys=[self.group])

        def is_there() -> bool:
            found = self._exchange.ask(request, FindCoordinatorResponse).coordinators
            return all(coordinator.error_code == 0 for coordinator in found)

        wait_until(is_there)

    def beat(
        self,
        member_id: str,
        epoch: int,
        *,
        topics: Iterable[str] | None = None,
        owned: Mapping[str, Iterable[int]] | None = None,
        regex: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int = -1,
        version: int | None = None,
    ) -> Answer:
        """One heartbeat."""
        response = self._exchange.ask(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group,
                member_id=member_id,
                member_epoch=epoch,
                instance_id=instance_id,
                rebalance_timeout_ms=rebalance_timeout_ms,
                subscribed_topic_names=None if topics is None else list(topics),
                subscribed_topic_regex=regex,
                server_assignor=assignor,
                topic_partitions=(
                    None
                    if owned is None
                    else [
                        RequestTopicPartitions(self._ids[name], list(partitions))
                        for name, partitions in owned.items()
                    ]
                ),
            ),
            ConsumerGroupHeartbeatResponse,
            version,
        )
        if response.error_code:
            return Answer(error_for_code(response.error_code).name)
        assignment = response.assignment
        return Answer(
            "NONE",
            response.member_epoch,
            None
            if assignment is None
            else tuple(
                sorted(
                    (self._names[each.topic_id], tuple(sorted(each.partitions)))
                    for each in assignment.topic_partitions
                )
            ),
        )

    def join(self, member_id: str, topics: Iterable[str] | None = None, **more: object) -> Answer:
        """A first heartbeat."""
        settings: dict[str, object] = {"rebalance_timeout_ms": 60_000, "owned": {}, **more}
        return self.beat(member_id, 0, topics=topics, **settings)  # type: ignore[arg-type]

    def state(self) -> tuple[str, int, int, str, tuple[tuple[object, ...], ...]]:
        """State, group epoch, epoch of the target, assignor, and the members as described."""
        described = self._exchange.ask(
            ConsumerGroupDescribeRequest(group_ids=[self.group]), ConsumerGroupDescribeResponse
        ).groups[0]
        members = sorted(described.members, key=lambda member: member.member_id)
        return (
            described.group_state,
            described.group_epoch,
            described.assignment_epoch,
            described.assignor_name,
            tuple(
                (
                    member.member_id,
                    member.instance_id,
                    member.member_epoch,
                    tuple(sorted(member.subscribed_topic_names)),
                    member.subscribed_topic_regex,
                    member.member_type,
                    *(
                        tuple(
                            (topic.topic_name, tuple(sorted(topic.partitions)))
                            for topic in sorted(each.topic_partitions, key=lambda t: t.topic_name)
                        )
                        for each in (member.assignment, member.target_assignment)
                    ),
                )
                for member in members
            ),
        )


def wait_until(is_true: Callable[[], bool]) -> None:
    """Ask again and again, up to `TIMEOUT_S`."""
    end_s = time.monotonic() + TIMEOUT_S
    while not is_true():
        assert time.monotonic() < end_s, "it did not come to be in time"
        time.sleep(0.02)
