"""A broker for all tests of the command line, and commands that use it."""

from __future__ import annotations

import gc
import uuid
from typing import TYPE_CHECKING

import pytest

from pykclient.testing import FakeKafka
from tests.cli.commands import Commands

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", autouse=True)
def no_earlier_clients() -> None:
    """End what earlier tests left in cycles: it would log into what a command prints."""
    gc.collect()


@pytest.fixture(scope="module")
def broker() -> Iterator[FakeKafka]:
    """One broker without topics that makes none by itself."""
    with FakeKafka(auto_create_topics=False) as fake:
        yield fake


@pytest.fixture
def topic(broker: FakeKafka) -> str:
    """Provide a new topic of two partitions."""
    name = f"topic-{uuid.uuid4().hex}"
    with broker.control() as cluster:
        cluster.create_topic(name, 2)
    return name


@pytest.fixture
def run(
    broker: FakeKafka, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Commands:
    return Commands(broker.bootstrap_servers, capfdbinary, monkeypatch)
