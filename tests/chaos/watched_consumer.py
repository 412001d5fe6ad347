"""The verifiable consumer, telling with each batch who it is in its group: a program to be killed.

`CHAOS_WORK_MS` in its environment is how long the work on each batch takes, between reading it and
committing it; without it there is none.

Owner: the main thread.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from pykclient import ConsumerRecords
from pykclient.errors import DecodeError
from pykclient.testing.verifiable_consumer import VerifiableConsumer, main, tell

if TYPE_CHECKING:
    from pykclient.testing.verifiable_consumer import Offsets

__all__ = ["WORK_VARIABLE", "WatchedConsumer"]

WORK_VARIABLE = "CHAOS_WORK_MS"


class WatchedConsumer(VerifiableConsumer):
    """It tells its generation (classic) or member epoch (KIP-848), and works."""

    def poll(self) -> ConsumerRecords:
        """Read on when what came was damaged, as an application does that is to keep running."""
        try:
            return super().poll()
        except DecodeError as error:
            tell("read_failed", error=f"{type(error).__name__}: {error}")
            return ConsumerRecords([])

    def on_records(self, records: ConsumerRecords) -> Offsets:
        """Tell who has read, what was read, and work on it."""
        tell("membership", generation=self.consumer.group_metadata().generation)
        offsets = super().on_records(records)
        time.sleep(int(os.environ.get(WORK_VARIABLE, "0")) / 1000)
        return offsets


if __name__ == "__main__":
    sys.exit(main(consumer_class=WatchedConsumer))
