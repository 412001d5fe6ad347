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
    """A way to call a function that returns the function's result."""

    def __call__(self, function: Callable[P, T], /, *args: P.args, **keywords: P.kwargs) -> T: ...


class Engine:
    """The managers of one client, run in turn.

    `user_calls` holds the calls of user code that the driver makes, in order; managers share this
    deque. `background` are the polls that continue while the application is busy elsewhere.
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
        """Calls user code without the locks that the driver holds."""
        self.taken_call: UserCall | None = None
        """The call taken out of `user_calls` last."""
        self._background = tuple(background)
        self.user_calls: deque[UserCall] = deque() if user_calls is None else user_calls
        self._polls = tuple(manager.poll for manager in managers)
        self._mailbox: deque[Callable[[int], None]] = deque()

    def post(self, entry: Callable[[int], None]) -> None:
        """Call `entry(now_ms)` in the next step. Safe from any thread."""
        self._mailbox.append(entry)
        self.client.wakeup()

    def step(self, now_ms: int) -> int:
        return self._step(self._polls, now_ms)

    def step_in_background(self, now_ms: int) -> int:
        """Run only the polls that continue while the application is busy elsewhere."""
        return self._step(self._background, now_ms)

    def _step(self, polls: Sequence[Callable[[int], PollResult]], now_ms: int) -> int:
        if self.client.is_closed:
            # User code that the driver called has closed the client.
            raise ClosedError("the client was closed by a function that it called")
        # Take only the entries present now: a thread that never stops posting must not block the
        # step.
        for _ in range(len(self._mailbox)):
            self._mailbox.popleft()(now_ms)
        deadlines_ms = []
        for poll in polls:
            result = poll(now_ms)
            for request in result.requests:
                self.client.send(request, now_ms)
            deadlines_ms.append(result.next_poll_ms)
        deadlines_ms.append(self.client.prepare(now_ms))
        # A later manager or a lost connection may need metadata after its manager was polled.
        deadlines_ms.append(self.client.metadata_due_ms())
        # Entries posted or completed meanwhile need another step before any wait.
        if self._mailbox or self.client.has_completed:
            return now_ms
        return min(deadlines_ms)

    def complete(self, now_ms: int) -> None:
        self.client.complete(now_ms)

    def restart(self) -> None:
        """Continue as if all connections had been lost. Requests in flight get no callback.

        This does not restart the managers.
        """
        self.client.restart()
        taken = self.taken_call
        if taken is not None and not taken.is_begun and taken not in self.user_calls:
            self.user_calls.appendleft(taken)
