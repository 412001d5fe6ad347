"""DescribeConfigs, IncrementalAlterConfigs and CreatePartitions of a fake broker.

`tests/integration/test_admin_configs.py` compares refused values and reasons with Kafka.
"""

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
from pykclient.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
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


def test_a_topics_settings_are_its_own_and_the_defaults(cluster: FakeCluster) -> None:
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


def altered(
    cluster: FakeCluster, *changes: AlterableConfig, kind: int = TOPIC, name: str = "t"
) -> tuple[int, str | None]:
    """Change a setting and return the error code and reason."""
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, list(changes))])
    (result,) = response_to(cluster, request, IncrementalAlterConfigsResponse).responses
    return result.error_code, result.error_message


def test_lists_grow_and_shrink(cluster: FakeCluster) -> None:
    policies = []
    for operation, text in (
        (2, "compact"),
        (3, "delete"),
        (2, "compact,delete"),
        (3, "x"),
        (1, ""),
    ):
        assert altered(cluster, AlterableConfig("cleanup.policy", operation, text)) == (0, None)
        (policy,) = described(cluster, TOPIC, "t", ["cleanup.policy"]).configs
        policies.append(policy.value)
    assert policies == ["delete,compact", "compact", *2 * ["compact,delete"], "delete"]


def test_the_clusters_own_setting_stands_behind_a_topics() -> None:
    cluster = FakeCluster(2, min_insync_replicas=2)
    cluster.create_topic("t", config={"min.insync.replicas": "1"})
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(TOPIC, "t", ["min.insync.replicas"])],
        include_synonyms=True,
    )
    (result,) = response_to(cluster, request, DescribeConfigsResponse).results
    (setting,) = result.configs
    assert [(each.value, each.source) for each in setting.synonyms] == [("1", 1), ("2", 4)]
    altered(cluster, AlterableConfig("min.insync.replicas", 1, None))
    (setting,) = described(cluster, TOPIC, "t", ["min.insync.replicas"]).configs
    assert (setting.value, setting.config_source) == ("2", 4)


@pytest.mark.parametrize(
    ("changes", "place", "reason"),
    [
        ([("flush.ms", 0, None)], (TOPIC, "t"), "Null value not supported for : flush.ms"),
        ([("flush.ms", 1, None)] * 2, (TOPIC, "t"), "Error due to duplicate config keys"),
        ([("flush.ms", 9, "5")], (TOPIC, "t"), "Unknown operation type"),
        ([("flush.ms", 0, "5")], (BROKER, "0"), "only the settings of topics can be changed"),
        ([("flush.ms", 0, "5")], (TOPIC, "no topic!"), "the name is invalid"),
        ([("flush.ms", 0, "5")], (TOPIC, "absent"), "The topic 'absent' does not exist."),
    ],
)
def test_what_no_client_should_request_is_refused(
    cluster: FakeCluster,
    changes: list[tuple[str, int, str | None]],
    place: tuple[int, str],
    reason: str,
) -> None:
    kind, name = place
    code, message = altered(
        cluster, *(AlterableConfig(*each) for each in changes), kind=kind, name=name
    )
    assert code != 0
    assert reason in (message or "")
    assert cluster.topics["t"].config == {"retention.ms": "5"}


def test_a_resource_that_is_named_twice_is_not_changed(cluster: FakeCluster) -> None:
    resource = AlterConfigsResource(TOPIC, "t", [AlterableConfig("flush.ms", 0, "5")])
    request = IncrementalAlterConfigsRequest([resource, resource])
    results = response_to(cluster, request, IncrementalAlterConfigsResponse).responses
    assert {each.error_code for each in results} == {InvalidRequestError.code}


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
