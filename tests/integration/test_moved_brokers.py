"""A broker that gets another address while it owes a response is sent to all the same."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pykclient import Producer
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing import FakeKafka
from pykclient.testing.fake.faults import Fault, delay_response, drop

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_S = 10.0
DELIVERY_TIMEOUT_MS = 15_000
HELD_MS = 800


class MoveLog(logging.Handler):
    """Notes what is logged of moves."""

    def __init__(self) -> None:
        super().__init__()
        self.has_come = threading.Event()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        if "has moved to" in record.getMessage():
            self.count += 1
            self.has_come.set()


@contextmanager
def moves_logged() -> Iterator[MoveLog]:
    """Collect what is logged of moves."""
    handler, log = MoveLog(), logging.getLogger("pykclient.network")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield handler
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def send_around_a_move(fault: Fault) -> list[int | None]:
    """Send a record, move its broker while the response is due, send another; return offsets."""
    with (
        moves_logged() as log,
        FakeKafka(brokers=2) as fake,
        Producer(
            bootstrap_servers=fake.bootstrap_servers,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            request_timeout_ms=DELIVERY_TIMEOUT_MS - 1_000,
        ) as producer,
    ):
        producer.send("t", b"first").result(TIMEOUT_S)
        leader_id = producer.partitions_for("t")[0].leader_id
        assert leader_id is not None
        with fake.control() as cluster:
            handle = cluster.faults.add(fault, ApiKey.PRODUCE)
        deliveries = [producer.send("t", b"in flight")]
        while not handle.used_count:
            with fake.control():
                pass
        with fake.control() as cluster:
            cluster.brokers[leader_id].host = "localhost"  # the same listener, by another address
        producer.partitions_for("other")  # has the metadata asked for
        assert log.has_come.wait(TIMEOUT_S)
        deliveries.append(producer.send("t", b"after the move"))
        offsets = [delivery.result(TIMEOUT_S).offset for delivery in deliveries]
        producer.partitions_for("more")
        assert log.count == 1, "each move is logged once"
    return offsets


def test_what_is_sent_after_the_move_goes_out_as_soon_as_the_old_connection_is_drained() -> None:
    assert send_around_a_move(delay_response(HELD_MS)) == [1, 2]


def test_an_old_address_that_falls_silent_holds_nothing_back() -> None:
    assert send_around_a_move(drop()) == [1, 2]
