"""Which assignors the setting names."""

from __future__ import annotations

import pytest

from pykclient.consumer.config import ConsumerConfig
from pykclient.consumer.group.assignors import RebalanceProtocol, RoundRobinAssignor
from pykclient.consumer.group.assignors.setting import common_protocol, make_assignors
from pykclient.errors import ConfigError


class OwnAssignor(RoundRobinAssignor):
    """One that a user wrote."""


class OnlyCooperative(RoundRobinAssignor):
    """One that leaves out a protocol."""

    protocols = (RebalanceProtocol.COOPERATIVE,)  # type: ignore[misc]


def chosen(value: object) -> list[str]:
    config = ConsumerConfig.from_settings(
        bootstrap_servers="h:1", partition_assignment_strategy=value
    )
    return [assignor.name for assignor in make_assignors(config.partition_assignment_strategy)]


@pytest.mark.parametrize(
    "value",
    [
        "sticky, range",
        ["sticky", "range"],
        "org.apache.kafka.clients.consumer.StickyAssignor,RangeAssignor",
    ],
)
def test_kafkas_own_have_short_names_and_javas(value: object) -> None:
    assert chosen(value) == ["sticky", "range"]


def test_an_own_one_is_an_object_a_class_or_a_name() -> None:
    assert chosen([OwnAssignor()]) == chosen([OwnAssignor]) == ["roundrobin"]
    assert chosen(f"{OwnAssignor.__module__}:OwnAssignor") == ["roundrobin"]


@pytest.mark.promise("assignors of users assign, and are refused when they break the rules")
@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([object()], "lacks name, protocols, user_data, assign, on_assignment"),
        ([], "Give at least one"),
        (["range", "range"], "two assignors of one name"),
        (["range", OnlyCooperative()], "no rebalance protocol"),
    ],
)
def test_what_is_none_is_refused(value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        chosen(value)


def test_the_most_advanced_protocol_that_all_work_with_is_used() -> None:
    assert common_protocol(make_assignors(["cooperative-sticky"])) is RebalanceProtocol.COOPERATIVE
    both = make_assignors(["range", "cooperative-sticky"])
    assert common_protocol(both) is RebalanceProtocol.EAGER
