"""CallUnderWay: an application's call that takes several steps, and the threads that wait for it.

A call that a thread has left early (time-out, interrupt) continues. If it then succeeds and no
thread waits for it, its end is *unseen* until the same call is made again.

Owner: the sender thread.
Source: Java classes ``TransactionalRequestResult``, ``TransactionManager`` (`pendingTransition`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykclient.errors import KafkaError
    from pykclient.network.manager import Operation
    from pykclient.types import PreparedTransaction

    CallOperation = Operation[PreparedTransaction | None]
    """Operation of a call; only `prepare_transaction` has a value."""


class CallUnderWay:
    """See the module. `name` is empty while no call is under way."""

    def __init__(self) -> None:
        self.name = ""
        self.unseen = ""
        """Name of a call that succeeded while no thread waited for it; empty if there is none."""
        self._waiting: list[CallOperation] = []

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def begin(self, name: str, operation: CallOperation | None) -> None:
        self.unseen = ""
        self.name = name
        self._waiting = [] if operation is None else [operation]

    def join(self, name: str, operation: CallOperation) -> bool:
        """Add an operation if `name` is the call under way; return whether it is."""
        if self.name != name:
            return False
        self._waiting.append(operation)
        return True

    def leave(self, operation: CallOperation) -> bool:
        """Remove a waiting operation; return whether it was waiting."""
        if operation not in self._waiting:
            return False
        self._waiting.remove(operation)
        return True

    def take_unseen(self, name: str, operation: CallOperation) -> bool:
        """Return whether the call ended unseen; if so, the operation succeeds."""
        if self.unseen != name:
            return False
        self.unseen = ""
        operation.succeed(None)
        return True

    def end(self, error: KafkaError | None, value: PreparedTransaction | None = None) -> None:
        waiting, self._waiting = self._waiting, []
        name, self.name = self.name, ""
        for operation in waiting:
            if error is None:
                operation.succeed(value)
            else:
                operation.fail(error)
        if error is None and not waiting:
            self.unseen = name
