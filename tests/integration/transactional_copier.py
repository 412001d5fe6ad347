"""A transactional copier in a process of its own, ours or Java's.

Owner: the test that made it; a thread of its own reads what the process prints.
"""

from __future__ import annotations

import time
from typing import Any

from tests.integration.verifiable_member import VerifiableMember

TIMEOUT_S = 60.0
LOOK_S = 0.02


class Copier(VerifiableMember):
    """A context manager, as `VerifiableMember` is."""

    module = "pykclient.testing.transactional_copier"
    java_tool = "TransactionalMessageCopier"
    servers_option = "--broker-list"

    @property
    def last(self) -> dict[str, Any] | None:
        """The last event printed; None before the first one."""
        return self.events[-1] if self.events else None

    @property
    def is_done(self) -> bool:
        """True if it ended because no records remained."""
        last = self.last
        return bool(last and last["stage"] == "ShutdownComplete" and last["remaining"] == 0)

    def wait_for(self, stage: str) -> None:
        """Wait until it has printed such a line."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while not any(event["stage"] == stage for event in list(self.events)):
            assert time.monotonic() < deadline_s, (self.events, self.errors)
            time.sleep(LOOK_S)
