"""Settings of each server: roles, listeners, and limits of a small cluster.

This package's own reader of the format must return what was written.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pykclient.config.properties import read_properties
from pykclient.errors.base import ConfigError
from pykclient.testing.cluster.properties import (
    CONTROLLER_ID,
    ClusterLayout,
    ListenerPorts,
    dump_properties,
)

if TYPE_CHECKING:
    from pykclient.testing.cluster.properties import PropertyValue

# A lone surrogate is not text, and names are never empty.
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("value", "written"),
    [(True, "true"), (False, "false"), (5, "5"), (-1, "-1"), (0.5, "0.5"), ("", "")],
)
def test_values_are_written_as_java_reads_them(value: PropertyValue, written: str) -> None:
    assert dump_properties({"log.dirs": value}) == f"log.dirs={written}\n"


@given(st.dictionaries(TEXT.filter(bool), TEXT, max_size=5))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_comes_back_as_it_was(tmp_path: Path, properties: dict[str, str]) -> None:
    text = dump_properties(properties)
    assert text.isascii()
    file = tmp_path / "some.properties"
    file.write_text(text)
    assert read_properties(file) == properties


FOLDER = Path("data")


def layout(broker_count: int, **config: str) -> ClusterLayout:
    ports = {
        node_id: {"PLAINTEXT": ListenerPorts(9000 + node_id, 9000 + node_id)}
        for node_id in range(1, broker_count + 1)
    }
    return ClusterLayout(ports, 9100, {name.replace("_", "."): v for name, v in config.items()})


def test_a_single_broker_is_its_own_controller() -> None:
    assert not layout(1).has_own_controller
    settings = layout(1).broker(1, FOLDER)
    assert settings["process.roles"] == "broker,controller"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:9100"
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:9001,CONTROLLER://127.0.0.1:9100"


def test_several_brokers_have_one_controller_beside_them() -> None:
    three = layout(3)
    assert three.has_own_controller
    for node_id in (1, 2, 3):
        settings = three.broker(node_id, FOLDER)
        assert settings["process.roles"] == "broker"
        assert settings["node.id"] == node_id
        assert settings["controller.quorum.voters"] == f"{CONTROLLER_ID}@127.0.0.1:9100"
        assert settings["listeners"] == settings["advertised.listeners"]
        assert settings["listeners"] == f"PLAINTEXT://127.0.0.1:{9000 + node_id}"
    controller = three.controller(FOLDER)
    assert controller["process.roles"] == "controller"
    assert controller["node.id"] == CONTROLLER_ID


@pytest.mark.parametrize("broker_count", [1, 2])
def test_clients_are_sent_to_the_proxies_and_brokers_are_not(broker_count: int) -> None:
    ports = {
        node_id: {
            "PLAINTEXT": ListenerPorts(9000 + node_id, 9200 + node_id),
            "REPLICATION": ListenerPorts(9300 + node_id, 9300 + node_id),
        }
        for node_id in range(1, broker_count + 1)
    }
    settings = ClusterLayout(ports, 9100, {}).broker(1, FOLDER)
    for_brokers = "REPLICATION://127.0.0.1:9301"
    listeners = str(settings["listeners"]).split(",")
    assert listeners[:2] == ["PLAINTEXT://127.0.0.1:9001", for_brokers]
    assert ("CONTROLLER://127.0.0.1:9100" in listeners) is (broker_count == 1)
    assert settings["advertised.listeners"] == f"PLAINTEXT://127.0.0.1:9201,{for_brokers}"
    assert settings["inter.broker.listener.name"] == "REPLICATION"
    names = {listener.partition("://")[0] for listener in listeners} | {"CONTROLLER"}
    mapped = str(settings["listener.security.protocol.map"]).split(",")
    assert {f"{name}:PLAINTEXT" for name in names} <= set(mapped)


def test_the_listeners_protocols_are_the_clusters_to_choose_behind_proxies() -> None:
    config = {"listener.security.protocol.map": "PLAINTEXT:SSL"}
    with pytest.raises(ConfigError, match=r"listener\.security\.protocol\.map"):
        ClusterLayout({1: {"REPLICATION": ListenerPorts(9301, 9301)}}, 9100, config)


@pytest.mark.parametrize("broker_count", [1, 2])
def test_secured_listeners_are_for_clients_and_brokers_have_one_of_their_own(
    broker_count: int,
) -> None:
    ports = {
        node_id: {
            name: ListenerPorts(port + node_id, port + node_id)
            for name, port in (("MTLS", 9000), ("SASL_SSL", 9200), ("REPLICATION", 9300))
        }
        for node_id in range(1, broker_count + 1)
    }
    secured = ClusterLayout(
        ports,
        9100,
        {"listener.name.mtls.ssl.client.auth": "none"},
        {"MTLS": "SSL", "SASL_SSL": "SASL_SSL"},
        {"listener.name.mtls.ssl.client.auth": "required", "sasl.enabled.mechanisms": "PLAIN"},
    )
    settings = secured.broker(1, FOLDER)
    names = ["MTLS", "SASL_SSL", "REPLICATION"]
    advertised = str(settings["advertised.listeners"]).split(",")
    assert [listener.partition("://")[0] for listener in advertised] == names
    assert settings["inter.broker.listener.name"] == "REPLICATION"
    protocols = "MTLS:SSL,SASL_SSL:SASL_SSL,REPLICATION:PLAINTEXT,CONTROLLER:PLAINTEXT"
    for server in (settings, secured.controller(FOLDER)):
        assert server["listener.security.protocol.map"] == protocols
    assert settings["sasl.enabled.mechanisms"] == "PLAIN"
    assert settings["listener.name.mtls.ssl.client.auth"] == "none", "the user's own wins"


@pytest.mark.parametrize(
    ("broker_count", "factor", "in_sync_min"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (5, 3, 2)]
)
def test_kafkas_own_topics_survive_one_broker_where_they_can(
    broker_count: int, factor: int, in_sync_min: int
) -> None:
    settings = layout(broker_count).broker(1, FOLDER)
    assert settings["offsets.topic.replication.factor"] == factor
    for topic in ("transaction.state.log", "share.coordinator.state.topic"):
        assert settings[f"{topic}.replication.factor"] == factor
        assert settings[f"{topic}.min.isr"] == in_sync_min


def test_the_users_settings_win_over_those_for_quick_tests() -> None:
    assert layout(1).broker(1, FOLDER)["group.initial.rebalance.delay.ms"] == 0
    own = layout(1, group_initial_rebalance_delay_ms="500", num_partitions="7")
    for server in (own.broker(1, FOLDER), own.controller(FOLDER)):
        assert server["group.initial.rebalance.delay.ms"] == "500"
        assert server["num.partitions"] == "7"


def test_a_setting_that_the_cluster_chooses_itself_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"listeners, node\.id"):
        layout(1, node_id="7", listeners="PLAINTEXT://:9092")


@pytest.mark.parametrize("unit", ["ms", "minutes", "hours"])
def test_records_stay_for_ever_unless_the_user_gives_a_time_in_whatever_unit(unit: str) -> None:
    assert layout(1).broker(1, FOLDER)["log.retention.ms"] == -1
    settings = layout(1, **{f"log_retention_{unit}": "5"}).broker(1, FOLDER)
    given = {name: value for name, value in settings.items() if name.startswith("log.retention.")}
    assert given == {f"log.retention.{unit}": "5"}


def test_a_setting_may_have_the_number_of_its_broker() -> None:
    two = layout(2, broker_rack="rack-${node.id}")
    racks = [two.broker(number, FOLDER)["broker.rack"] for number in (1, 2)]
    assert racks == ["rack-1", "rack-2"]
