"""Whose turn it is, where serving one connection lets others be served.

An answer may let a connection's next request in, which may end what another connection waits for,
and so on, as deep as there are connections. Here each of them waits until the one before has done.

Owner: the cluster.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Turns"]


class Turns:
    """Those who are to be served, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[int], None]] = deque()
        self._is_serving = False

    def take(self, serve: Callable[[int], None], now_ms: int) -> None:
        """Call `serve(now_ms)`: now, or when those who came before have had their turns."""
        self._waiting.append(serve)
        if self._is_serving:
            return
        self._is_serving = True
        try:
            while self._waiting:
                self._waiting.popleft()(now_ms)
        finally:
            self._is_serving = False
