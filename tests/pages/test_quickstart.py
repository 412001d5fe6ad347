"""The programs of the quickstart, one after the other, as its reader runs them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.pages.programs import programs
from tests.pages.test_bad_input import SERVICES

if TYPE_CHECKING:
    from pykclient.testing import FakeKafka

pytestmark = pytest.mark.promise("the programs on the pages run unchanged")


@pytest.mark.parametrize("page", ["quickstart.md", "consumer.md", "producer.md", "operation.md"])
def test_the_first_client_of_a_page_is_a_service(page: str) -> None:
    clients = (
        name
        for name, program in programs().items()
        if program.page == page and re.search(r"\b(Consumer|Producer)\(", program.text)
    )
    assert next(clients) in SERVICES


def test_from_a_topic_to_its_table(fake_kafka: FakeKafka) -> None:
    servers = fake_kafka.bootstrap_servers
    create, place, ship, table = (
        programs()[name].at(servers)
        for name in ("create_orders.py", "place_orders.py", "ship_orders.py", "orders_table.py")
    )
    assert create.run().printed == ""
    assert create.run().printed == "orders is there already\n"
    assert place.run().printed == "1000 orders placed\n"
    shipped = ship.run(stop_when=lambda text: text.count("shipped") == 1_000)
    assert shipped.status == 0
    assert sorted(shipped.printed.splitlines()) == sorted(
        f"shipped {{'item': 'lamp', 'count': {number}}}" for number in range(1_000)
    )
    # What was shipped is committed.
    assert place.run().status == 0
    again = ship.run(stop_when=lambda text: text.count("shipped") == 1_000)
    assert again.printed.count("shipped") == 1_000
    printed = table.run().printed
    assert "offset_count" in printed
    with fake_kafka.control() as cluster:
        assert len(cluster.topics["orders"].partitions) == 4
