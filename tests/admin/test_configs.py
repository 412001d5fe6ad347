"""The handlers of settings: their requests, and what they make of responses."""

from __future__ import annotations

from typing import Any

import pytest

from pykclient.admin.configs import (
    AlterConfigOp,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    DescribeConfigs,
    IncrementalAlterConfigs,
)
from pykclient.errors import InvalidConfigError, UnknownTopicOrPartitionError, UsageError
from pykclient.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from pykclient.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

TOPIC = ConfigResource(ConfigResourceType.TOPIC, "t")
BROKER = ConfigResource(ConfigResourceType.BROKER, "7")
SECRET = "hunter2"
DELETE, APPEND = AlterConfigOpType.DELETE, AlterConfigOpType.APPEND


def described(*settings: DescribeConfigsResourceResult) -> dict[str, ConfigEntry]:
    handler = DescribeConfigs(has_synonyms=False, has_documentation=False)
    result = DescribeConfigsResult(resource_type=2, resource_name="t", configs=list(settings))
    found = dict(handler.results(DescribeConfigsResponse(results=[result]), [TOPIC]))[TOPIC]
    assert isinstance(found, dict)
    return found


# Describing.


def test_settings_are_requested_of_the_broker_that_has_them() -> None:
    handler = DescribeConfigs(has_synonyms=True, has_documentation=True)
    resources = [
        TOPIC,
        BROKER,
        BROKER._replace(name=""),
        ConfigResource(ConfigResourceType.GROUP, "7"),
    ]
    assert [handler.broker_id(each) for each in resources] == [None, 7, None, None]
    message = handler.request(resources[:2], 1)
    assert [(each.resource_type, each.resource_name) for each in message.resources] == [
        *((2, "t"), (4, "7")),
    ]
    assert [each.configuration_keys for each in message.resources] == [None, None], "all"
    assert (message.include_synonyms, message.include_documentation) == (True, True)


def test_a_setting_has_its_source_type_and_what_stands_behind_it() -> None:
    synonym = DescribeConfigsSynonym("log.retention.hours", "168", 5)
    found = described(
        DescribeConfigsResourceResult(
            "retention.ms", "5", config_source=1, synonyms=[synonym], config_type=5,
            documentation="How long.", read_only=True,
        )
    )  # fmt: skip
    behind = ConfigSynonym("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG)
    assert found == {
        "retention.ms": ConfigEntry(
            name="retention.ms",
            value="5",
            source=ConfigSource.TOPIC_CONFIG,
            is_sensitive=False,
            is_read_only=True,
            synonyms=(behind,),
            type=ConfigType.LONG,
            documentation="How long.",
        )
    }
    assert not found["retention.ms"].is_default


def test_what_only_newer_brokers_know_is_unknown_and_what_is_left_out_is_none() -> None:
    odd = DescribeConfigsResourceResult("a", None, config_source=99, config_type=99)
    found = described(odd)["a"]
    assert (found.source, found.type) == (ConfigSource.UNKNOWN, ConfigType.UNKNOWN)
    assert (found.value, found.documentation, found.synonyms) == (None, None, ())
    assert described(DescribeConfigsResourceResult("a", "1", config_source=5))["a"].is_default


def test_what_is_sensitive_is_not_kept_even_if_a_broker_sends_it() -> None:
    behind = [DescribeConfigsSynonym("ssl.key.password", SECRET, 4)]
    found = described(
        DescribeConfigsResourceResult(
            "ssl.key.password", SECRET, is_sensitive=True, synonyms=behind
        )
    )
    entry = found["ssl.key.password"]
    assert (entry.value, entry.is_sensitive, entry.synonyms[0].value) == (None, True, None)
    assert SECRET not in repr(found)
    change = AlterConfigOp("ssl.key.password", SECRET)
    assert SECRET not in repr(change)
    message = IncrementalAlterConfigs({BROKER: [change]}, is_validated_only=False)
    assert SECRET not in repr(message.request([BROKER], 1))


def test_an_error_is_that_of_its_resource_and_others_are_passed_over() -> None:
    handler = DescribeConfigs(has_synonyms=False, has_documentation=False)
    code = UnknownTopicOrPartitionError.code
    message = DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(code, "gone", 2, "t"),
            DescribeConfigsResult(0, None, 2, "u"),
        ]
    )
    results = dict(handler.results(message, [TOPIC]))
    assert results.keys() == {TOPIC}
    assert isinstance(results[TOPIC], DescribeConfigs.final_errors)
    assert "topic 't': gone" in str(results[TOPIC])


# Altering.


def test_changes_are_requested_as_they_are_given() -> None:
    changes = [
        *(AlterConfigOp("a", 5), AlterConfigOp("b", True), AlterConfigOp("c", "x,y", APPEND)),
        *(AlterConfigOp("d", op_type=DELETE), AlterConfigOp("e", "p", AlterConfigOpType.SUBTRACT)),
    ]
    handler = IncrementalAlterConfigs({TOPIC: changes, BROKER: []}, is_validated_only=True)
    message = handler.request([TOPIC], 1)
    (resource,) = message.resources
    assert (resource.resource_type, resource.resource_name, message.validate_only) == (2, "t", True)
    assert [(each.name, each.config_operation, each.value) for each in resource.configs] == [
        *(("a", 0, "5"), ("b", 0, "true"), ("c", 2, "x,y"), ("d", 1, None), ("e", 3, "p")),
    ]
    assert handler.broker_id(BROKER) == 7


def test_changes_and_refusals_are_distinguished() -> None:
    other = TOPIC._replace(name="u")
    message = IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(0, None, 2, "t"),
            AlterConfigsResourceResponse(InvalidConfigError.code, "Not a number", 2, "u"),
            AlterConfigsResourceResponse(0, None, 4, "t"),
        ]
    )
    results = dict(
        IncrementalAlterConfigs({}, is_validated_only=False).results(message, [TOPIC, other])
    )
    assert results.keys() == {TOPIC, other}
    assert results[TOPIC] == TOPIC
    assert isinstance(results[other], InvalidConfigError)
    assert "topic 'u': Not a number" in str(results[other])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("",), "give the name of a setting"),
        ((5,), "give the name of a setting"),
        (("a", None), "'a'.*the value is of type NoneType.*DELETE resets it to the default"),
        (("a", ["b"]), "'a'.*the value is of type list"),
        (("a", 1, DELETE), "'a'.*DELETE has none"),
        (("a", 1, 0), "'a'.*op_type is 0; give AlterConfigOpType.SET"),
        (("\ud800", 1), "cannot be sent"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(arguments: tuple[Any, ...], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        AlterConfigOp(*arguments)


def test_a_resource_is_shown_as_what_it_is() -> None:
    assert str(TOPIC) == "topic 't'"
    assert str(ConfigResource(ConfigResourceType.BROKER_LOGGER, "1")) == "broker logger '1'"
