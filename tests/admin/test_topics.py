"""The topic handlers: their requests, and what they make of responses."""

from __future__ import annotations

from typing import Any

import pytest

from pykclient.admin.topics import (
    ALL_TOPICS,
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    DescribeTopics,
    ListTopics,
    NewPartitions,
    NewTopic,
    PartitionsPresent,
    TopicDescription,
    TopicListing,
    TopicsAbsent,
    TopicsPresent,
)
from pykclient.errors import (
    DecodeError,
    DisconnectedError,
    InvalidPartitionsError,
    KafkaError,
    LeaderNotAvailableError,
    RebootstrapRequiredError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    UsageError,
)
from pykclient.network.cluster.cluster import PartitionInfo
from pykclient.protocol.messages.create_partitions import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from pykclient.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from pykclient.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from pykclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPIC_ID = bytes(range(16))
EXISTS = TopicAlreadyExistsError.code
UNKNOWN = UnknownTopicOrPartitionError.code


def test_a_metadata_response_that_is_refused_as_a_whole_lists_nothing() -> None:
    """Goal: a program that compares lists takes no topic for deleted."""
    refused = MetadataResponse(error_code=RebootstrapRequiredError.code)
    ((_, listed),) = ListTopics().results(refused, [ALL_TOPICS])
    ((_, described),) = DescribeTopics().results(refused, ["t"])
    ((_, absent),) = TopicsAbsent(["t"]).results(refused, [1])
    for error in (listed, described, absent):
        assert isinstance(error, RebootstrapRequiredError)


def found(
    name: str | None = "t", *leaders: int, error_code: int = 0, is_internal: bool = False
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=name,
        topic_id=TOPIC_ID,
        error_code=error_code,
        is_internal=is_internal,
        partitions=[
            MetadataResponsePartition(
                partition_index=index,
                leader_id=leader,
                leader_epoch=3,
                replica_nodes=[leader, 2],
                isr_nodes=[leader],
                offline_replicas=[2],
            )
            for index, leader in enumerate(leaders)
        ],
    )


# Creating.


def test_a_new_topic_is_requested_with_all_that_it_has() -> None:
    topic = NewTopic(
        "t",
        num_partitions=6,
        replication_factor=3,
        config={"cleanup.policy": "compact", "preallocate": True, "retention.ms": 5, "x": None},
    )
    assigned = NewTopic("u", replica_assignments={0: [1, 2], 1: [2, 3]})
    message = CreateTopics({"t": topic, "u": assigned}).request(["t", "u"], 1_234)
    sent, by_hand = message.topics
    assert (message.timeout_ms, message.validate_only) == (1_234, False)
    assert (sent.name, sent.num_partitions, sent.replication_factor) == ("t", 6, 3)
    assert (by_hand.num_partitions, by_hand.replication_factor) == (-1, -1)
    assert {each.partition_index: each.broker_ids for each in by_hand.assignments} == {
        0: [1, 2],
        1: [2, 3],
    }
    assert {config.name: config.value for config in sent.configs} == {
        "cleanup.policy": "compact",
        "preallocate": "true",
        "retention.ms": "5",
        "x": None,
    }


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"num_partitions": 0}, "num_partitions=0"),
        ({"replication_factor": -1}, "replication_factor=-1"),
        ({"num_partitions": 2**31}, "num_partitions=2147483648; give a number from 1 to"),
        ({"replication_factor": 2**15}, "replication_factor=32768; give a number from 1 to"),
        ({"num_partitions": 1, "replica_assignments": {0: [1]}}, "num_partitions and replica_"),
        ({"replication_factor": 1, "replica_assignments": {0: [1]}}, "replication_factor and"),
    ],
)
def test_a_topic_that_contradicts_itself_is_refused(
    arguments: dict[str, object], text: str
) -> None:
    with pytest.raises(UsageError, match=rf"'t'.*{text}"):
        NewTopic("t", **arguments)  # type: ignore[arg-type]


def test_only_the_keys_of_a_request_are_requested() -> None:
    handler = CreateTopics({"a": NewTopic("a"), "b": NewTopic("b")})
    assert [topic.name for topic in handler.request(["b"], 1).topics] == ["b"]


def test_created_topics_and_refusals_are_distinguished() -> None:
    message = CreateTopicsResponse(
        topics=[
            CreatableTopicResult("a", TOPIC_ID, num_partitions=6, replication_factor=3),
            CreatableTopicResult("b"),
            CreatableTopicResult("c", error_code=EXISTS, error_message="there it is"),
        ]
    )
    results = dict(CreateTopics({}).results(message, ["a", "b", "c"]))
    assert results["a"] == CreatedTopic("a", TOPIC_ID, 6, 3)
    assert results["b"] == CreatedTopic("b", None, None, None)
    error = results["c"]
    assert isinstance(error, TopicAlreadyExistsError)
    assert "topic 'c': there it is" in str(error)


# Growing.


def test_partitions_are_requested_of_the_broker_or_on_those_that_are_named() -> None:
    new = {"a": NewPartitions(6), "b": NewPartitions(3, [[1, 2], [2, 3]])}
    message = CreatePartitions(new, is_validated_only=True).request(["a", "b"], 1_234)
    free, by_hand = message.topics
    assert (message.timeout_ms, message.validate_only) == (1_234, True)
    assert (free.name, free.count, free.assignments) == ("a", 6, None)
    assert (by_hand.name, by_hand.count) == ("b", 3)
    assert [each.broker_ids for each in by_hand.assignments or ()] == [[1, 2], [2, 3]]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((0,), "total_count=0; give a number from 1 to"),
        ((2**31,), "total_count=2147483648; give a number from 1 to"),
        ((True,), "total_count=True"),
        ((2, [1, 2]), r"as in \[\[1, 2\], \[2, 3\]\]"),
        ((2, [[]]), "new_assignments"),
        ((2, [b"ab"]), "new_assignments"),
    ],
)
def test_partitions_that_cannot_be_made_are_refused(arguments: tuple[Any, ...], text: str) -> None:
    with pytest.raises(UsageError, match=f"NewPartitions: .*{text}"):
        NewPartitions(*arguments)


def test_grown_topics_and_refusals_are_distinguished() -> None:
    reason = "there are 6 already"
    message = CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult("a"),
            CreatePartitionsTopicResult("b", InvalidPartitionsError.code, reason),
        ]
    )
    results = dict(CreatePartitions({}, is_validated_only=False).results(message, ["a", "b"]))
    assert results["a"] == "a"
    assert isinstance(results["b"], InvalidPartitionsError)
    assert f"topic 'b': {reason}" in str(results["b"])


@pytest.mark.parametrize(
    ("leaders", "has_reached"), [((1,), False), ((1, -1), False), ((1, 2), True), ((1, 2, 3), True)]
)
def test_new_partitions_have_reached_a_broker_when_all_have_leaders(
    leaders: tuple[int, ...], has_reached: bool
) -> None:
    response = MetadataResponse(topics=[found("t", *leaders)])
    results = dict(PartitionsPresent({"t": 2}).results(response, [7]))
    assert (results[7] == 7) == has_reached
    assert has_reached or "broker 7 has not caught up on ['t']" in str(results[7])


# Deleting.


def test_topics_are_deleted_by_name() -> None:
    message = DeleteTopics().request(["a", "b"], 99)
    assert (message.topic_names, message.topics, message.timeout_ms) == (["a", "b"], [], 99)
    for version in range(message.min_version, (DeleteTopics.max_version or 0) + 1):
        message.write(bytearray(), version)


def test_deletions_and_refusals_are_distinguished() -> None:
    message = DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name="a"),
            DeletableTopicResult(name="b", error_code=UNKNOWN, error_message="not here"),
            DeletableTopicResult(name=None),
        ]
    )
    results = dict(DeleteTopics().results(message, ["a", "b"]))
    assert results["a"] == "a"
    assert isinstance(results["b"], UnknownTopicOrPartitionError)
    assert "topic 'b': not here" in str(results["b"])
    assert set(results) == {"a", "b"}


# Listing and describing.


@pytest.mark.parametrize(
    ("message", "names"),
    [
        (ListTopics().request([ALL_TOPICS], 1), None),
        (DescribeTopics().request(["a", "b"], 1), ["a", "b"]),
    ],
)
def test_topics_are_requested_and_none_is_created(
    message: MetadataRequest, names: list[str] | None
) -> None:
    topics = message.topics
    assert (None if topics is None else [topic.name for topic in topics]) == names
    assert not message.allow_auto_topic_creation


def test_a_list_has_the_topics_that_exist() -> None:
    message = MetadataResponse(
        topics=[
            found("a", 1),
            found("__i", 1, is_internal=True),
            found("b", error_code=5),
            found(None),
        ]
    )
    assert dict(ListTopics().results(message, [ALL_TOPICS])) == {
        ALL_TOPICS: {
            "a": TopicListing("a", TOPIC_ID, False),
            "__i": TopicListing("__i", TOPIC_ID, True),
        }
    }


def test_a_description_has_the_partitions_in_order() -> None:
    topic = found("a", 1, -1)
    topic.partitions.reverse()
    results = dict(DescribeTopics().results(MetadataResponse(topics=[topic]), ["a"]))
    assert results == {
        "a": TopicDescription(
            "a",
            TOPIC_ID,
            False,
            (
                PartitionInfo("a", 0, 1, 3, (1, 2), (1,), (2,)),
                PartitionInfo("a", 1, None, 3, (-1, 2), (-1,), (2,)),
            ),
        )
    }


def test_an_unknown_topic_is_reported_and_not_waited_for() -> None:
    message = MetadataResponse(topics=[found("a", error_code=UNKNOWN), found(None)])
    results = dict(DescribeTopics().results(message, ["a"]))
    assert isinstance(results["a"], DescribeTopics.final_errors)


def test_a_description_that_makes_no_sense_is_an_error() -> None:
    topic = found("a", 1)
    topic.partitions[0].partition_index = 5
    with pytest.raises(DecodeError):
        dict(DescribeTopics().results(MetadataResponse(topics=[topic]), ["a"]))


# Waiting until every broker has the change.


@pytest.mark.parametrize(
    "topics",
    [
        [found("a", 1)],
        [found("a", 1), found("b", error_code=UNKNOWN)],
        [found("a", 1), found("b", 1, -1)],
        [],
    ],
)
def test_a_creation_has_not_reached_a_broker_while_a_topic_is_unknown_or_has_no_leader(
    topics: list[MetadataResponseTopic],
) -> None:
    results = dict(TopicsPresent(["a", "b"]).results(MetadataResponse(topics=topics), [4]))
    error = results[4]
    assert isinstance(error, LeaderNotAvailableError)
    assert error.retriable
    assert "broker 4" in str(error)


def test_a_creation_has_reached_a_broker_when_all_partitions_have_leaders() -> None:
    message = MetadataResponse(topics=[found("a", 1), found("b", 1, 2)])
    assert dict(TopicsPresent(["a", "b"]).results(message, [4])) == {4: 4}


def test_a_deletion_has_reached_a_broker_when_its_metadata_has_none_of_the_topics() -> None:
    handler = TopicsAbsent(["a", "b"])
    left = MetadataResponse(topics=[found("a", 1), found("b", error_code=UNKNOWN)])
    gone = MetadataResponse(topics=[found("a", error_code=UNKNOWN), found("b", error_code=UNKNOWN)])
    assert isinstance(dict(handler.results(left, [4]))[4], KafkaError)
    assert dict(handler.results(gone, [4])) == {4: 4}


def test_a_broker_that_is_down_is_not_waited_for() -> None:
    for handler in (TopicsPresent(["a"]), TopicsAbsent(["a"])):
        assert handler.on_unreachable(4, DisconnectedError("gone")) == 4
