"""What the system refuses, or the application's own logging raises, ends no client."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from pykclient import Consumer, Producer, TopicPartition
from pykclient.network.log import ClientLog

if TYPE_CHECKING:
    import pytest

    from pykclient.testing import FakeKafka

TIMEOUT_S = 20.0


def exchange(servers: str) -> None:
    """Send a record and read it."""
    with (
        Producer(bootstrap_servers=servers) as producer,
        Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer,
    ):
        producer.send("t", b"v").result(TIMEOUT_S)
        consumer.assign([TopicPartition("t", 0)])
        assert consumer.poll(TIMEOUT_S)


def test_a_thread_that_cannot_be_started_for_a_look_up_costs_one_attempt(
    fake_kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start
    refused: list[str] = []

    def limited(thread: threading.Thread) -> None:
        if thread.name.startswith("pykclient-resolve") and len(refused) < 3:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    exchange(fake_kafka.bootstrap_servers.replace("127.0.0.1", "localhost"))
    assert len(refused) == 3


def test_a_log_filter_that_raises_ends_no_client(
    fake_kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: logging.LogRecord) -> bool:
        raise ZeroDivisionError

    monkeypatch.setattr(ClientLog, "failure_count", 0)
    for name in ("network", "producer", "consumer"):
        log = logging.getLogger(f"pykclient.{name}")
        monkeypatch.setattr(log, "filters", [broken])
        monkeypatch.setattr(log, "level", logging.DEBUG)
        log.manager._clear_cache()  # type: ignore[attr-defined]
    exchange(fake_kafka.bootstrap_servers)
    assert ClientLog.failure_count > 1
    assert "A filter or handler of logger 'pykclient." in capsys.readouterr().err
