"""DescribeConfigs and CreatePartitions of a fake broker."""

from __future__ import annotations

import pytest

from pykclient.errors.broker import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidRequestError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from pykclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from pykclient.testing import FakeCluster
from pykclient.testing.fake.handlers.describe_configs import BROKER, TOPIC
from tests.testing.fake.requests import response_to


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(1)
    cluster.create_topic("t", 2, config={"retention.ms": "5"})
    return cluster


def described(
    cluster: FakeCluster, kind: int, name: str, keys: list[str] | None = None
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(kind, name, keys)
    request = DescribeConfigsRequest(resources=[resource])
    (result,) = response_to(cluster, request, DescribeConfigsResponse).results
    return result


def test_a_topics_settings_are_its_own_and_the_defaults_of_the_log(cluster: FakeCluster) -> None:
    configs = {each.name: each for each in described(cluster, TOPIC, "t").configs}
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5", 1)
    assert (configs["segment.bytes"].value, configs["segment.bytes"].config_source) == (
        str(2**30),
        5,
    )
    (one,) = described(cluster, TOPIC, "t", ["retention.ms"]).configs
    assert one.name == "retention.ms"


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "absent", UnknownTopicOrPartitionError.code),
        (BROKER, "0", 0),
        (99, "x", InvalidRequestError.code),
    ],
)
def test_of_others_there_is_nothing(cluster: FakeCluster, kind: int, name: str, code: int) -> None:
    result = described(cluster, kind, name)
    assert (result.error_code, result.configs) == (code, [])


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("t", 3, None, 0),
        ("t", 2, None, InvalidPartitionsError.code),
        ("t", 20_000, None, InvalidPartitionsError.code),
        ("absent", 3, None, UnknownTopicOrPartitionError.code),
        ("t", 3, [CreatePartitionsAssignment([0])], InvalidReplicaAssignmentError.code),
    ],
)
@pytest.mark.parametrize("is_checked_only", [False, True])
def test_a_topic_grows_if_it_can(
    cluster: FakeCluster,
    name: str,
    count: int,
    assignments: list[CreatePartitionsAssignment] | None,
    code: int,
    is_checked_only: bool,
) -> None:
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name, count, assignments)], validate_only=is_checked_only
    )
    (result,) = response_to(cluster, request, CreatePartitionsResponse).results
    assert (result.error_code, result.name) == (code, name)
    grows = code == 0 and not is_checked_only
    assert len(cluster.topics["t"].partitions) == (3 if grows else 2)
