"""CallUnderWay: the application's call that takes more than one step, and the threads that wait.

A call that is left before its end (its time ran out, or it was interrupted) goes on. When it ends
well and no thread waits for it, its end is *unseen* until the same call takes note of it.

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
    """The operation of a call; only `prepare_transaction` has a value."""


class CallUnderWay:
    """See the module. `name` is empty while no call is under way."""

    def __init__(self) -> None:
        self.name = ""
        self.unseen = ""
        """The call that has ended well without a thread to take note of it; empty if none has."""
        self._waiting: list[CallOperation] = []

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def begin(self, name: str, operation: CallOperation | None) -> None:
        self.unseen = ""
        self.name = name
        self._waiting = [] if operation is None else [operation]

    def join(self, name: str, operation: CallOperation) -> bool:
        """Add an operation to those that wait for this call; return whether it is under way."""
        if self.name != name:
            return False
        self._waiting.append(operation)
        return True

    def leave(self, operation: CallOperation) -> bool:
        """Remove an operation from those that wait; return whether it waited."""
        if operation not in self._waiting:
            return False
        self._waiting.remove(operation)
        return True

    def take_unseen(self, name: str, operation: CallOperation) -> bool:
        """Return whether the call has ended unseen; then the operation succeeds, as its end."""
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
