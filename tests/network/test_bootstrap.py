"""Bootstrap addresses are nodes whose ids no broker has."""

from __future__ import annotations

from pykclient.network.cluster.cluster import bootstrap_nodes
from pykclient.types import Node


def test_addresses_get_negative_ids_in_the_order_given() -> None:
    assert bootstrap_nodes([("a", 1), ("b", 2)]) == (Node(-1, "a", 1), Node(-2, "b", 2))


def test_no_address_gives_no_node() -> None:
    assert bootstrap_nodes([]) == ()
