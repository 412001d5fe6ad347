"""Acceptance: what a transaction has to know of calls that hand records over.

A record that `send` could not accept must not be committed around, and neither must the rest of a
bulk call. A transaction therefore takes each *failure*, and does not end while a bulk call is under
way: what that has yet to append is refused by then, which makes the call *torn*.

The order makes it safe without a lock: a call that fails (1) puts its failure here and (2) ends, or
raises. The sender thread (3) sees that no bulk call is under way, or takes the call that ends the
transaction, and (4) takes the failures. Step (4) finds every failure that came before (3).

A bulk call ends by one store, `has_ended`, which no interrupt divides. A call that is interrupted
while it ends therefore leaves nothing that holds up the transaction.

Owner: filled by any thread, and by what interrupts it; emptied by the sender thread.
"""

from __future__ import annotations

from collections import deque
from threading import get_ident

from pykclient.errors import KafkaError, TransactionStateError


class BulkCall:
    """One call of `send_batch` or `send_arrow` inside a transaction.

    It `is_torn` until it has appended all of its rows, or none; `error` is why it did not.
    """

    __slots__ = ("error", "has_ended", "is_torn", "thread_id")

    def __init__(self) -> None:
        self.thread_id = get_ident()
        self.has_ended = False
        self.is_torn = True
        self.error: BaseException | None = None


class Acceptance:
    """See the module."""

    def __init__(self) -> None:
        self.bulk_calls: dict[BulkCall, None] = {}
        """The bulk calls under way, and those that have ended since the sender thread looked."""
        self._failures: deque[BaseException] = deque()

    def fail(self, error: BaseException) -> None:
        """Record that a record was not accepted. Any thread."""
        self._failures.append(error)

    def is_in_bulk_call(self) -> bool:
        """Return whether the caller has interrupted a bulk call of its own thread. Any thread."""
        me = get_ident()
        return any(call.thread_id == me for call in list(self.bulk_calls) if not call.has_ended)

    @property
    def has_bulk_call(self) -> bool:
        """True if a bulk call is under way. Any thread."""
        return not all(call.has_ended for call in list(self.bulk_calls))

    def take_failure(self) -> KafkaError | None:
        """Return why a record was not accepted since the last time, by the first such error.

        Sender thread.
        """
        for call in list(self.bulk_calls):
            if call.has_ended:
                self.bulk_calls.pop(call, None)
                if call.is_torn:
                    self._failures.append(_of_torn_call(call))
        if not self._failures:
            return None
        first = self._failures[0]
        self._failures.clear()
        if isinstance(first, KafkaError):
            return first
        error = KafkaError(f"a send was interrupted by {first!r}, before its record was accepted")
        error.__cause__ = first
        return error


def _of_torn_call(call: BulkCall) -> KafkaError:
    cause = call.error
    if isinstance(cause, KafkaError) and not isinstance(cause, TransactionStateError):
        return cause
    why = str(cause) if isinstance(cause, KafkaError) else repr(cause)
    error = KafkaError(
        f"a send_batch() or send_arrow() has not appended all of its records: it was ended by {why}"
    )
    error.__cause__ = cause
    return error
