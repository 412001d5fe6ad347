"""Standstill: detects partitions that never reach their ends although their brokers respond.

A broker may report an end after the last record that it sends (Redpanda's high watermark can do
so). A reader up to that end would wait forever. An outage is no standstill: while no broker
responds, polls report it.

Owner: the main thread.
Source: ours.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

from pykclient.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient import Consumer
    from pykclient.types import TopicPartition

NOTICE_S: Final = 5.0
"""Time without progress after which a line reports it."""
END_S: Final = 35.0
"""Time without progress after which the wait ends, longer than a response may take
(``request.timeout.ms``)."""
LOOK_UP_S: Final = 5.0
"""Maximum time for brokers to report the ends again."""
STANDSTILL_STATUS: Final = 3
SHOWN_MAX: Final = 5


class Standstill:
    """Watches the positions of a consumer that reads up to known ends."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._behind: dict[TopicPartition, int] = {}
        self._since_s = time.monotonic()
        self._is_noticed = False

    def has_come(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether no more records will come before `ends`, and report it on standard error.

        Call it after each poll.
        """
        if not ends:
            return False
        now_s = time.monotonic()
        positions = self._consumer.position()
        behind = {p: at for p, at in positions.items() if p in ends and at < ends[p]}
        if behind != self._behind or not behind:
            self._behind, self._since_s, self._is_noticed = behind, now_s, False
            return False
        waited_s = now_s - self._since_s
        if waited_s >= NOTICE_S and not self._is_noticed:
            self._is_noticed = True
            _say(f"{self._described(ends)}; waiting for it")
        if waited_s < END_S or not self._do_brokers_respond():
            return False
        _say(f"{self._described(ends)} for {waited_s:.0f} s, though brokers respond; giving up")
        return True

    def _do_brokers_respond(self) -> bool:
        try:
            self._consumer.end_offsets(self._behind, LOOK_UP_S)
        except KafkaError:  # polls report it, in their time
            return False
        return True

    def _described(self, ends: Mapping[TopicPartition, int]) -> str:
        shown = [
            f"{partition} at offset {offset} of {ends[partition]}"
            for partition, offset in sorted(self._behind.items())
        ]
        more = f" and {len(shown) - SHOWN_MAX} more" if len(shown) > SHOWN_MAX else ""
        return f"no record has come from {', '.join(shown[:SHOWN_MAX])}{more}"


def _say(text: str) -> None:
    sys.stderr.write(f"pykclient: {text}\n")
