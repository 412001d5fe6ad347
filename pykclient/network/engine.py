"""The engine: managers in a fixed order over one network client.

Owner: the driver. Other threads come in by `post` alone, which is the mailbox and a wake-up.
Source: ``ConsumerNetworkThread`` of Kafka's newer consumer; the mailbox is trio's entry queue.
"""

from __future__ import annotations

import operator
from collections import deque
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

from pykclient.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pykclient.network.broker.client import NetworkClient
    from pykclient.network.manager import Manager, PollResult, UserCall

P = ParamSpec("P")
T = TypeVar("T")


class Caller(Protocol):
    """Calls a function in some special way, and returns what it does."""

    def __call__(self, function: Callable[P, T], /, *args: P.args, **keywords: P.kwargs) -> T: ...


class Engine:
    """Runs a client's managers.

    `user_calls` holds what the driver is to call, in order; managers that have user code to call
    were given the same deque. `background` are the polls that go on while the application is
    elsewhere.
    """

    def __init__(
        self,
        client: NetworkClient,
        managers: Sequence[Manager],
        user_calls: deque[UserCall] | None = None,
        *,
        background: Sequence[Callable[[int], PollResult]] = (),
        call_unlocked: Caller = operator.call,
    ) -> None:
        self.client = client
        self.call_unlocked = call_unlocked
        """Calls user code, without the locks that the driver holds."""
        self.taken_call: UserCall | None = None
        """The one taken out of `user_calls` last."""
        self._background = tuple(background)
        self.user_calls: deque[UserCall] = deque() if user_calls is None else user_calls
        self._polls = tuple(manager.poll for manager in managers)
        self._mailbox: deque[Callable[[int], None]] = deque()

    def post(self, entry: Callable[[int], None]) -> None:
        """Have `entry(now_ms)` called in the next step. Safe from any thread."""
        self._mailbox.append(entry)
        self.client.wakeup()

    def step(self, now_ms: int) -> int:
        return self._step(self._polls, now_ms)

    def step_in_background(self, now_ms: int) -> int:
        """As `step`, for what has to go on while the application is elsewhere."""
        return self._step(self._background, now_ms)

    def _step(self, polls: Sequence[Callable[[int], PollResult]], now_ms: int) -> int:
        if self.client.is_closed:
            # By user code that the driver has called: it must not go on.
            raise ClosedError("the client was closed by a function that it called")
        # Only what is there now: a sender that never stops posting must not hold up the step.
        for _ in range(len(self._mailbox)):
            self._mailbox.popleft()(now_ms)
        deadlines_ms = []
        for poll in polls:
            result = poll(now_ms)
            for request in result.requests:
                self.client.send(request, now_ms)
            deadlines_ms.append(result.next_poll_ms)
        deadlines_ms.append(self.client.prepare(now_ms))
        # A later manager or a lost connection may want metadata after its manager was polled.
        deadlines_ms.append(self.client.metadata_due_ms())
        # Whatever was posted or completed meanwhile wants another step before any wait.
        if self._mailbox or self.client.has_completed:
            return now_ms
        return min(deadlines_ms)

    def complete(self, now_ms: int) -> None:
        self.client.complete(now_ms)

    def restart(self) -> None:
        """Go on as if all connections had been lost. What is in flight is not reported.

        It restarts no manager.
        """
        self.client.restart()
        taken = self.taken_call
        if taken is not None and not taken.is_begun and taken not in self.user_calls:
            self.user_calls.appendleft(taken)
