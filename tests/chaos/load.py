"""A producer that writes to every partition of a topic at a steady rate, and records each result.

Owner: its own thread; others may read `acknowledged` once it is closed, and counts at any time.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from pykclient import Producer, TopicPartition

if TYPE_CHECKING:
    from pykclient import RecordMetadata
    from tests.chaos.invariants import Acknowledged

TICK_S = 0.05
TIMEOUT_S = 90.0
METADATA_MS = 500
"""Time within which it notices that its topic has grown."""
NS_PER_MS = 1_000_000


class Load:
    """A producer that runs from `start` to `stop`."""

    def __init__(self, servers: str, topic: str) -> None:
        self.acknowledged: Acknowledged = defaultdict(dict)
        self.errors: list[Exception] = []
        self._topic = topic
        self._producer = Producer(bootstrap_servers=servers, metadata_max_age_ms=METADATA_MS)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ends(self) -> dict[TopicPartition, int]:
        """Return the offset after the last acknowledged record, by partition."""
        return {
            partition: max(list(offsets)) + 1
            for partition, offsets in list(self.acknowledged.items())
        }

    def stop(self) -> None:
        """Stop writing, and wait until all is acknowledged. Idempotent; may be called unstarted."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join(TIMEOUT_S)
            assert not self._thread.is_alive(), "the load does not end"
        self._producer.close(TIMEOUT_S)

    def _run(self) -> None:
        number = 0
        while not self._is_over.wait(TICK_S):
            for info in self._producer.partitions_for(self._topic):
                self._producer.send(
                    self._topic,
                    b"%d" % number,
                    partition=info.partition,
                    on_delivery=self._on_delivery,
                )
            number += 1

    def _on_delivery(self, metadata: RecordMetadata, error: Exception | None) -> None:
        if error is not None:
            self.errors.append(error)
            return
        assert metadata.offset is not None
        partition = TopicPartition(metadata.topic, metadata.partition)
        self.acknowledged[partition][metadata.offset] = time.time_ns() // NS_PER_MS
