"""A member of a group in a process of its own, to be killed, frozen and sent away.

Owner: the scenario that made it; a thread of its own reads what the process tells.
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
        self.is_told_to_leave = False
        self.was_killed = False
        super().__init__(servers, *options, environment={WORK_VARIABLE: str(work_ms)})

    @property
    def is_alive(self) -> bool:
        return not self.is_told_to_leave and not self.was_killed

    def kill(self) -> None:
        self.was_killed = True
        super().kill()

    def terminate(self) -> None:
        self.is_told_to_leave = True
        super().terminate()

    def freeze(self, duration_s: float) -> None:
        """Stop it with SIGSTOP for so long, so that it notices nothing of the time between."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(duration_s)
        finally:
            self._process.send_signal(signal.SIGCONT)

    def stall(self) -> None:
        """Make its application work on the next batch until `go_on`; it then reports it."""
        self._process.send_signal(STALL)

    def go_on(self) -> None:
        """End its application's stall."""
        self._process.send_signal(GO_ON)

    def first_commit_after(self, name: str) -> dict[str, Any] | None:
        """Return its first commit after the last event of a name; None before there is one."""
        found: dict[str, Any] | None = None
        for event in reversed(list(self.events)):
            if event["name"] == name:
                return found
            if event["name"] == "offsets_committed":
                found = event
        return None

    def journal(self) -> Journal:
        """What it told so far, and how it ended."""
        status = self._process.poll()
        return Journal(
            self.name,
            tuple(self.events),
            status=None if self.was_killed else status,
            errors=self.errors,
        )

    def processed_ends(self) -> dict[TopicPartition, int]:
        """The offset after the last one that it has processed, by partition."""
        return {
            TopicPartition(part["topic"], part["partition"]): part["maxOffset"] + 1
            for event in self.named("records_consumed")
            for part in event["partitions"]
        }
