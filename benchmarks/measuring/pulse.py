"""The pulse of a group's member: when its heartbeats passed on their way to the broker.

They are counted by a fault proxy that breaks nothing, so neither client reports about itself. The
count is looked at each 10 ms, which is how exact the times are.

Owner: the thread that listens; the list grows on a thread of its own.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.proxy.faults import Delay, Direction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pykclient.testing.proxy.proxy import FaultProxy

LOOK_S = 0.01


def heartbeat_count(proxy: FaultProxy) -> Callable[[], int]:
    """Count the heartbeats that pass a proxy; the function returned tells how many so far."""
    mark = Delay(api=ApiKey.HEARTBEAT, direction=Direction.REQUEST, delay_ms=0)
    proxy.inject(mark)
    return lambda: proxy.counts[mark.name]


@contextmanager
def listening(count: Callable[[], int]) -> Iterator[Sequence[float]]:
    """Record when `count` rises, in monotonic seconds, once for each heartbeat."""
    beats_s: list[float] = []
    is_over = threading.Event()
    before_count = count()

    def listen() -> None:
        while not is_over.wait(LOOK_S):
            new_count = count() - before_count - len(beats_s)
            beats_s.extend([time.monotonic()] * new_count)

    thread = threading.Thread(target=listen, name="pulse")
    thread.start()
    try:
        yield beats_s
    finally:
        is_over.set()
        thread.join()


def gaps_s(beats_s: Sequence[float], from_s: float, until_s: float) -> list[float]:
    """Return the times between heartbeats from one moment to another.

    The first begins with the last heartbeat before, or at `from_s`; the last ends at `until_s`.
    """
    start_s = max((beat_s for beat_s in beats_s if beat_s <= from_s), default=from_s)
    inside_s = [beat_s for beat_s in beats_s if from_s < beat_s < until_s]
    return [later - earlier for earlier, later in pairwise([start_s, *inside_s, until_s])]
