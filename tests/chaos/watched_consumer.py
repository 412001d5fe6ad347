"""The verifiable consumer, telling with each batch who it is in its group: a program to be killed.

`CHAOS_WORK_MS` in its environment is how long it works on some of the batches, between reading one
and committing it; without it there is no work.

Owner: the main thread.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from pykclient import ConsumerRecords
from pykclient.errors import DecodeError
from pykclient.testing.verifiable_consumer import VerifiableConsumer, main
from pykclient.testing.verifiable_events import report

if TYPE_CHECKING:
    from pykclient.testing.verifiable_consumer import Offsets

WORK_VARIABLE = "CHAOS_WORK_MS"
WORK_EVERY = 50
"""It works on the first batch of so many; the others take no time."""


class WatchedConsumer(VerifiableConsumer):
    """It tells its generation (classic) or member epoch (KIP-848), and works."""

    _batch_count = 0

    def poll(self) -> ConsumerRecords:
        """Read on when what came was damaged, as an application does that is to keep running."""
        try:
            return super().poll()
        except DecodeError as error:
            report("read_failed", error=f"{type(error).__name__}: {error}")
            return ConsumerRecords([])

    def on_records(self, records: ConsumerRecords) -> Offsets:
        """Tell who has read, what was read, and work on it."""
        report("membership", generation=self.consumer.group_metadata().generation)
        offsets = super().on_records(records)
        if self._batch_count % WORK_EVERY == 0:
            time.sleep(int(os.environ.get(WORK_VARIABLE, "0")) / 1000)
        self._batch_count += 1
        return offsets


if __name__ == "__main__":
    sys.exit(main(consumer_class=WatchedConsumer))
