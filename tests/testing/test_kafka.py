"""What a cluster refuses before it starts or connects to anything."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import pytest

from pykclient.errors.base import ConfigError, UsageError
from pykclient.testing import KafkaCluster

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where a cluster would put its files; in an environment without settings of ours."""
    for name in ("PYKCLIENT_BOOTSTRAP_SERVERS", "PYKCLIENT_KAFKA_PROVIDER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("brokers", [0, -1, 100])
def test_a_number_of_brokers_that_cannot_be_is_refused(folder: Path, brokers: int) -> None:
    with pytest.raises(ConfigError, match=f"brokers is {brokers}; give a number from 1 to 99"):
        KafkaCluster(brokers)
    assert not list(folder.iterdir())


def test_a_version_that_cannot_be_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"'2\.8\.2' is not a Kafka version"):
        KafkaCluster(version="2.8.2")
    assert not list(folder.iterdir())


@pytest.mark.promise(
    "without an engine or a known provider the cure is named, and the test is skipped"
)
@pytest.mark.parametrize(
    ("provider", "said"),
    [("podman", "it can be jars or docker"), ("Dokcer", "Did you mean 'docker'")],
)
def test_a_provider_that_there_is_not_is_refused_with_what_was_meant(
    monkeypatch: pytest.MonkeyPatch, provider: str, said: str
) -> None:
    monkeypatch.setenv("PYKCLIENT_KAFKA_PROVIDER", provider)
    with pytest.raises(ConfigError, match=said):
        KafkaCluster()


def test_malformed_addresses_of_an_existing_cluster_are_refused_by_the_variables_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYKCLIENT_BOOTSTRAP_SERVERS", "localhost")
    with pytest.raises(ConfigError, match="PYKCLIENT_BOOTSTRAP_SERVERS cannot be used") as caught:
        KafkaCluster()
    assert "has no port" in str(caught.value)


def test_an_existing_cluster_takes_no_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYKCLIENT_BOOTSTRAP_SERVERS", "localhost:9092")
    with pytest.raises(UsageError, match=r"num\.partitions"):
        KafkaCluster(config={"num.partitions": 3})


def test_an_existing_cluster_takes_no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYKCLIENT_BOOTSTRAP_SERVERS", "localhost:9092")
    with pytest.raises(UsageError, match="advertises addresses without proxies; unset it"):
        KafkaCluster(proxied=True)
