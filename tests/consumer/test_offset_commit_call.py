"""OffsetCommitCall: understood by brokers of every version; answers that contradict it are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.consumer.group.metadata import GroupMetadata
from pykclient.consumer.offsets.commit import OffsetCommitCall
from pykclient.errors import DecodeError, UnknownMemberIdError, UnknownTopicOrPartitionError
from pykclient.network.cluster.cluster import NO_TOPIC_ID
from pykclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pykclient.testing.fake.cluster import FakeCluster
from pykclient.types import OffsetAndMetadata, TopicPartition
from tests.consumer.commit_scene import asked_in
from tests.consumer.known_cluster import TOPIC_ID, know, make_metadata, topic

if TYPE_CHECKING:
    from pykclient.network.manager import Request

P0, P1, ELSEWHERE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 1)
LEADER_EPOCH_FROM_VERSION = 6
OFFSETS = {
    P0: OffsetAndMetadata(5, "note", 3),
    P1: OffsetAndMetadata(6),
    ELSEWHERE: OffsetAndMetadata(7),
}


def made(topic_ids: dict[str, bytes], member: GroupMetadata) -> tuple[OffsetCommitCall, Request]:
    metadata = make_metadata()
    know(metadata, *(topic(name, [1, 1], topic_id=each) for name, each in topic_ids.items()))
    call = OffsetCommitCall(member, OFFSETS, metadata.cluster)
    request = call.request(
        4, on_response=lambda message, now_ms: None, on_failure=lambda error, now_ms: None
    )
    return call, request


@pytest.mark.promise(
    "offsets are committed with metadata and leader epochs, and read back, in every version"
)
@pytest.mark.parametrize("version", range(2, 11))
def test_a_broker_takes_the_offsets_in_every_version(version: int) -> None:
    """Method: a fake broker takes a commit of this version, and is looked into."""
    cluster = FakeCluster()
    for name in ("t", "u"):
        cluster.create_topic(name, 2)
    ids = {name: cluster.topics[name].topic_id for name in ("t", "u")}
    call, request = made(ids, GroupMetadata("g"))
    answer = asked_in(cluster, request.message, version)
    call.check(answer)
    assert call.refusals(answer) == {}
    kept = {name: (each.offset, each.metadata) for name, each in cluster.group("g").offsets.items()}
    assert kept == {P0: (5, "note"), P1: (6, ""), ELSEWHERE: (7, "")}
    epoch = cluster.group("g").offsets[P0].leader_epoch
    assert epoch == (3 if version >= LEADER_EPOCH_FROM_VERSION else -1)


def test_it_is_sent_as_the_member_says() -> None:
    _, request = made({"t": TOPIC_ID, "u": TOPIC_ID[::-1]}, GroupMetadata("g", 7, "m-1", "i"))
    message = request.message
    assert isinstance(message, OffsetCommitRequest)
    assert (message.group_id, message.generation_id_or_member_epoch) == ("g", 7)
    assert (message.member_id, message.group_instance_id) == ("m-1", "i")
    assert (request.node_id, request.max_version) == (4, None)


def test_topics_are_named_where_the_id_of_one_is_not_known() -> None:
    _, request = made({"t": TOPIC_ID, "u": NO_TOPIC_ID}, GroupMetadata("g"))
    assert request.max_version == 9


def answer_of(**codes: dict[int, int]) -> OffsetCommitResponse:
    """An answer that gives partitions by topic these codes."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name, partitions=[OffsetCommitResponsePartition(*each) for each in told.items()]
            )
            for name, told in codes.items()
        ]
    )


def test_what_was_refused_is_told_by_partition() -> None:
    call, _ = made({"t": TOPIC_ID, "u": TOPIC_ID[::-1]}, GroupMetadata("g"))
    unknown, gone = UnknownTopicOrPartitionError.code, UnknownMemberIdError.code
    answer = answer_of(t={0: unknown, 1: 0}, u={1: gone})
    call.check(answer)
    assert call.refusals(answer) == {P0: unknown, ELSEWHERE: gone}


@pytest.mark.parametrize(
    "answer",
    [
        answer_of(t={0: 0, 1: 0}),
        answer_of(t={0: 0, 1: 0, 2: 0}, u={1: 0}),
        answer_of(t={0: 0, 1: 0}, u={1: 0}, v={0: 0}),
        OffsetCommitResponse(),
    ],
)
def test_an_answer_about_other_partitions_is_refused(answer: OffsetCommitResponse) -> None:
    call, _ = made({"t": TOPIC_ID, "u": TOPIC_ID[::-1]}, GroupMetadata("g"))
    with pytest.raises(DecodeError):
        call.check(answer)
