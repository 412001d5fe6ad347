"""ConsumerCore: what it consists of, and which metadata it uses."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from pykclient.consumer.config import ConsumerConfig
from pykclient.consumer.core import ConsumerCore
from pykclient.errors import (
    ConfigError,
    InvalidTopicError,
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from pykclient.types import TopicPartition
from tests.consumer.known_cluster import START_MS
from tests.network.scripted_port import ScriptedPort

if TYPE_CHECKING:
    from pykclient.network.manager import Request

A, OTHER = TopicPartition("t", 0), TopicPartition("u", 0)


def make(**settings: object) -> ConsumerCore:
    config = ConsumerConfig.from_settings(bootstrap_servers="boot:9092", **settings)
    return ConsumerCore(config, port=ScriptedPort())


def metadata_request(core: ConsumerCore, now_ms: int = START_MS) -> Request:
    (request,) = core._wiring.metadata.poll(now_ms).requests
    return request


def named(request: Request) -> list[str | None]:
    assert isinstance(request.message, MetadataRequest)
    assert request.message.topics is not None
    return [topic.name for topic in request.message.topics]


def refuse(core: ConsumerCore, topic: str, code: int, now_ms: int = START_MS) -> None:
    metadata_request(core, now_ms).on_response(
        MetadataResponse(topics=[MetadataResponseTopic(name=topic, error_code=code)]), now_ms
    )


def test_it_follows_the_topics_that_are_assigned_and_no_others() -> None:
    core = make()
    assert named(metadata_request(make())) == []
    core.assign([A, OTHER, TopicPartition("t", 1)])
    assert named(metadata_request(core)) == ["t", "u"]


@pytest.mark.parametrize("allows", [True, False])
def test_brokers_may_create_topics_where_the_setting_allows_it(allows: bool) -> None:
    core = make(allow_auto_create_topics=allows)
    core.assign([A])
    message = metadata_request(core).message
    assert isinstance(message, MetadataRequest)
    assert message.allow_auto_topic_creation is allows


def test_a_topic_that_cannot_exist_is_reported_at_once() -> None:
    core = make()
    core.assign([A])
    refuse(core, "t", InvalidTopicError.code)
    assert isinstance(core._wiring.subscription.take_error(), InvalidTopicError)


def test_a_topic_that_may_come_is_logged_once_and_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    core = make()
    core.assign([A])
    with caplog.at_level(logging.WARNING, "pykclient.consumer"):
        for turn, code in enumerate(
            [UnknownTopicOrPartitionError.code, LeaderNotAvailableError.code]
        ):
            refuse(core, "t", code, START_MS + turn * 10_000)
    assert core._wiring.subscription.take_error() is None
    assert len([r for r in caplog.records if r.name == "pykclient.consumer"]) == 1


def test_a_setting_that_is_refused_is_refused_before_anything_is_opened() -> None:
    port = ScriptedPort()
    config = ConsumerConfig.from_settings(
        bootstrap_servers="boot:9092", interceptors=["no_such_module:Name"]
    )
    with pytest.raises(ConfigError, match="no_such_module"):
        ConsumerCore(config, port=port)
    assert port.peers == []
