"""A group member in a process of its own, which scenarios kill, freeze and stop.

Owner: the scenario that created it; a second thread reads the process's output.
"""

from __future__ import annotations

import signal
import time
from typing import Any, ClassVar

from pykclient import TopicPartition
from tests.chaos.invariants import Journal
from tests.chaos.watched_consumer import GO_ON, STALL, WORK_VARIABLE
from tests.integration.verifiable_member import VerifiableMember


class ChaosMember(VerifiableMember):
    """A watched consumer; a context manager."""

    module: ClassVar[str] = "tests.chaos.watched_consumer"

    def __init__(self, name: str, servers: str, *options: str, work_ms: int = 0) -> None:
        self.name = name
        self.is_leaving = False
        self.was_killed = False
        super().__init__(servers, *options, environment={WORK_VARIABLE: str(work_ms)})

    @property
    def is_alive(self) -> bool:
        return not self.is_leaving and not self.was_killed

    def kill(self) -> None:
        self.was_killed = True
        super().kill()

    def terminate(self) -> None:
        self.is_leaving = True
        super().terminate()

    def freeze(self, duration_s: float) -> None:
        """Stop it with SIGSTOP for a while, so that it does not notice the time."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(duration_s)
        finally:
            self._process.send_signal(signal.SIGCONT)

    def stall(self) -> None:
        """Make its application work on the next batch until `go_on`; the member reports it."""
        self._process.send_signal(STALL)

    def go_on(self) -> None:
        """End its application's stall."""
        self._process.send_signal(GO_ON)

    def first_commit_after(self, name: str) -> dict[str, Any] | None:
        """Return its first commit after the last event with this name, None before there is one."""
        found: dict[str, Any] | None = None
        for event in reversed(list(self.events)):
            if event["name"] == name:
                return found
            if event["name"] == "offsets_committed":
                found = event
        return None

    def journal(self) -> Journal:
        """Return its events so far, and its exit status."""
        status = self._process.poll()
        return Journal(
            self.name,
            tuple(self.events),
            status=None if self.was_killed else status,
            errors=self.errors,
        )

    def processed_ends(self) -> dict[TopicPartition, int]:
        """Return the offset after the last processed record, by partition."""
        return {
            TopicPartition(part["topic"], part["partition"]): part["maxOffset"] + 1
            for event in self.named("records_consumed")
            for part in event["partitions"]
        }
