"""Acceptance: tells a transaction about records that were not accepted.

A transaction must not commit if `send` refused one of its records, or if a bulk call stopped in the
middle. It therefore takes each *failure*, and does not end while a bulk call is under way. The rows
which that call has not appended yet are refused, which makes the call *torn*.

The order makes it safe without a lock: a call that fails (1) puts its failure here and (2) ends, or
raises. The sender thread (3) sees that no bulk call is under way, or takes the call that ends the
transaction, and (4) takes the failures. Step (4) finds every failure that came before (3).

A bulk call ends by one store, `has_ended`, which an interrupt cannot split. A call that is
interrupted while it ends therefore does not block the transaction.

Owner: any thread (and a handler that interrupts it) adds; the sender thread removes.
"""

from __future__ import annotations

from collections import deque
from threading import get_ident

from pykclient.errors import KafkaError, TransactionStateError


class BulkCall:
    """One call of `send_batch` or `send_arrow` inside a transaction.

    It `is_torn` until it has appended all of its rows, or none. `error` is the reason it stopped.
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
        """Bulk calls under way, and those that ended since the sender thread last looked."""
        self._failures: deque[BaseException] = deque()

    def fail(self, error: BaseException) -> None:
        """Store the error of a record that was not accepted. Any thread."""
        self._failures.append(error)

    def is_in_bulk_call(self) -> bool:
        """Return True if the caller interrupts a bulk call of its own thread. Any thread."""
        me = get_ident()
        return any(call.thread_id == me for call in list(self.bulk_calls) if not call.has_ended)

    @property
    def has_bulk_call(self) -> bool:
        """True if a bulk call is under way. Any thread."""
        return not all(call.has_ended for call in list(self.bulk_calls))

    def take_failure(self) -> KafkaError | None:
        """Return the first reason why a record was not accepted since the previous call, or None.

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
        f"a send_batch() or send_arrow() did not append all of its records: it was ended by {why}"
    )
    error.__cause__ = cause
    return error
