"""The verifiable consumer, reporting its membership with each batch: a program to be killed.

`CHAOS_WORK_MS` in the environment is how long it works on some batches, between reading and
committing; the default is no work. After the signal `STALL` it works on the next batch until
`GO_ON`, while heartbeats continue.

Owner: the main thread.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Final

from pykclient import ConsumerRecords
from pykclient.errors import DecodeError
from pykclient.testing.verifiable_consumer import VerifiableConsumer, main
from pykclient.testing.verifiable_events import report

if TYPE_CHECKING:
    from pykclient.testing.verifiable_consumer import Offsets

WORK_VARIABLE = "CHAOS_WORK_MS"
WORK_EVERY = 50
"""It works on one batch in this many; the others take no time."""
STALL: Final = signal.SIGUSR1
GO_ON: Final = signal.SIGHUP
LOOK_S: Final = 0.02


class WatchedConsumer(VerifiableConsumer):
    """A consumer that reports its generation (classic) or member epoch (KIP-848), and works."""

    _batch_count = 0
    _is_stalling = False

    def run(self) -> int:
        """Read, report and commit; stall between two signals."""
        signal.signal(STALL, self._stall)
        signal.signal(GO_ON, self._go_on)
        return super().run()

    def poll(self) -> ConsumerRecords:
        """Poll, and ignore damaged records, as an application that must keep running does."""
        try:
            return super().poll()
        except DecodeError as error:
            report("read_failed", error=f"{type(error).__name__}: {error}")
            return ConsumerRecords([])

    def on_records(self, records: ConsumerRecords) -> Offsets:
        """Report the membership and the records, and work on them."""
        report("membership", generation=self.consumer.group_metadata().generation)
        offsets = super().on_records(records)
        if self._batch_count % WORK_EVERY == 0:
            time.sleep(int(os.environ.get(WORK_VARIABLE, "0")) / 1000)
        self._batch_count += 1
        if self._is_stalling:
            self._work_on()
        return offsets

    def _work_on(self) -> None:
        report("stalled")
        while self._is_stalling:
            time.sleep(LOOK_S)
        report("went_on")

    def _stall(self, *_: object) -> None:
        self._is_stalling = True

    def _go_on(self, *_: object) -> None:
        self._is_stalling = False


if __name__ == "__main__":
    sys.exit(main(consumer_class=WatchedConsumer))
