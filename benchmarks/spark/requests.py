"""RequestCounts: what passes a fault proxy, counted by request.

The proxy counts by name what its faults strike; a delay of nothing strikes every request and
changes none.

Owner: the thread that measures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.protocol.api_keys import ApiKey
from pykclient.testing import Delay, Direction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient.testing import FaultProxy


class _ListOffsets(Delay):
    """A ListOffsets request."""


class _Other(Delay):
    """Any other request."""


class RequestCounts:
    """Counts the requests and connections of one broker from now on."""

    def __init__(self, proxy: FaultProxy) -> None:
        self._proxy = proxy
        # A second set strikes nothing: a frame is struck once, by the first fault that fits.
        proxy.inject(
            _ListOffsets(api=ApiKey.LIST_OFFSETS, direction=Direction.REQUEST, delay_ms=0),
            _Other(direction=Direction.REQUEST, delay_ms=0),
        )

    def now(self) -> Mapping[str, int]:
        """ListOffsets requests, requests of any kind, and connections so far."""
        counts = self._proxy.counts
        list_offsets = counts[_ListOffsets.__name__]
        return {
            "LIST_OFFSETS": list_offsets,
            "all": list_offsets + counts[_Other.__name__],
            "connections": self._proxy.connection_count,
        }
