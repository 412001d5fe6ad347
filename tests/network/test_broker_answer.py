"""An answer's broker becomes a node, unless nobody can be there."""

from __future__ import annotations

import pytest

from pykclient.errors import DecodeError
from pykclient.network.cluster.node import broker_node
from pykclient.protocol.messages.metadata import MetadataResponseBroker
from pykclient.types import Node


def test_an_address_becomes_a_node() -> None:
    answer = MetadataResponseBroker(node_id=3, host="h", port=65_535, rack="r")
    assert broker_node(answer) == Node(3, "h", 65_535, "r")


@pytest.mark.parametrize(
    ("node_id", "host", "port"),
    [
        (-1, "h", 1),
        (1, "", 1),
        (1, "h" * 254, 1),
        (1, "a\nb", 1),
        (1, "a b", 1),
        (1, "h", 0),
        (1, "h", 65_536),
    ],
)
def test_an_address_where_nobody_can_be_is_refused(node_id: int, host: str, port: int) -> None:
    with pytest.raises(DecodeError, match=r"check the broker's advertised\.listeners"):
        broker_node(MetadataResponseBroker(node_id=node_id, host=host, port=port))
