"""The addresses that a client starts from, as nodes.

They get the ids -1, -2 ... so that they never meet a broker's own id, which is not known yet.

Source: Java class ``org.apache.kafka.common.Cluster.bootstrap``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.types import Node

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["bootstrap_nodes"]


def bootstrap_nodes(addresses: Sequence[tuple[str, int]]) -> tuple[Node, ...]:
    """Make nodes of (host, port) pairs, in the order given."""
    return tuple(Node(-1 - index, host, port) for index, (host, port) in enumerate(addresses))
