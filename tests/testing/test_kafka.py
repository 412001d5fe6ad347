"""Errors of a cluster before it starts or connects to anything."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

import pytest

from pykclient.errors.base import ConfigError, UsageError
from pykclient.testing import ClusterSecurity, KafkaCluster

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the folder for a cluster's files, in an environment without our settings."""
    for name in ("PYKCLIENT_BOOTSTRAP_SERVERS", "PYKCLIENT_KAFKA_PROVIDER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


SERVERS, PROVIDER = "PYKCLIENT_BOOTSTRAP_SERVERS", "PYKCLIENT_KAFKA_PROVIDER"
HERE = {SERVERS: "localhost:9092"}
A_NUMBER = "brokers is {brokers}; give a number from 1 to 99"


@pytest.mark.parametrize(
    ("arguments", "environment", "error", "message"),
    [
        *(({"brokers": count}, {}, ConfigError, A_NUMBER) for count in (0, -1, 100)),
        ({"version": "2.8.2"}, {}, ConfigError, "'2.8.2' is not a supported Kafka version"),
        ({}, {PROVIDER: "podman"}, ConfigError, "it can be jars or docker"),
        ({}, {PROVIDER: "Dokcer"}, ConfigError, "Did you mean 'docker'"),
        ({}, {SERVERS: "localhost"}, ConfigError, "PYKCLIENT_BOOTSTRAP_SERVERS cannot be used"),
        ({}, {SERVERS: "localhost"}, ConfigError, "has no port"),
        ({"config": {"num.partitions": 3}}, HERE, UsageError, "num.partitions"),
        ({"proxied": True}, HERE, UsageError, "advertises addresses without proxies; unset it"),
        (
            {"security": ClusterSecurity()},
            HERE,
            UsageError,
            "listeners cannot be changed; unset it",
        ),
    ],
)
def test_what_there_cannot_be_is_refused_before_anything_is_made(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    arguments: dict[str, Any],
    environment: dict[str, str],
    error: type[Exception],
    message: str,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(error) as caught:
        KafkaCluster(**arguments)
    assert message.format(**arguments) in str(caught.value)
    assert not list(folder.iterdir())
