"""The delivery that `send` returns: one record's place in its batch.

Owner: none, it never changes; the batch it points to has its own.
Source: the methods of `concurrent.futures.Future`; Java class ``FutureRecordMetadata``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

from pykclient.accel.pure.batch_result import BatchResult
from pykclient.arguments import check_callable
from pykclient.errors.base import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.accel.abc import DeliveryBatch

__all__ = ["Delivery", "refuse_to_leave"]

T = TypeVar("T")


class Delivery(Generic[T]):
    """The place of one record in its batch, which has the result.

    Has the methods of a `concurrent.futures.Future` that only look. `batch` is None where nobody
    waits for records (a batch built outside a producer).
    """

    __slots__ = ("batch", "index")

    def __init__(self, batch: DeliveryBatch[T] | None, index: int) -> None:
        self.batch = batch
        self.index = index

    def __repr__(self) -> str:
        state = "without a batch" if self.batch is None else self.batch.describe(self.index)
        return f"<Delivery: {state}>"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied.

        Raises:
            UsageError: always.
        """
        refuse_to_leave()

    def done(self) -> bool:
        """Whether the record's result is known."""
        batch = self.batch
        assert batch is not None
        if isinstance(batch, BatchResult) and batch.is_well:
            return True
        return batch.is_done(self.index)

    def result(self, timeout: float | None = None) -> T:
        """Wait and return the record's metadata.

        `timeout` is in seconds, None waits until the record is delivered or has failed.

        Raises:
            KafkaTimeoutError: the time ran out; the record may still be delivered.
            KafkaError: the record failed.
        """
        batch = self.batch
        assert batch is not None
        if isinstance(batch, BatchResult) and batch.is_well:
            result: BatchResult[T] = batch
            return result.where(self.index)
        return batch.result(self.index, timeout)

    def get(self, timeout: float | None = None) -> T:
        """Do as `result` does."""
        return self.result(timeout)

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait as `result` does and return why the record failed, or None when it did not.

        Raises:
            KafkaTimeoutError: the time ran out.
        """
        batch = self.batch
        assert batch is not None
        if isinstance(batch, BatchResult) and batch.is_well:
            return None
        return batch.exception(self.index, timeout)

    def add_done_callback(self, function: Callable[[Delivery[T]], object]) -> None:
        """Call `function` with this delivery once there is a result, at once if there is."""
        assert self.batch is not None
        check_callable(function, "add_done_callback: function", "the delivery")
        self.batch.add_done_callback(self.index, lambda: function(self))


def refuse_to_leave() -> NoReturn:
    """Refuse to pickle or copy a delivery.

    Raises:
        UsageError: always.
    """
    raise UsageError(
        "a Delivery cannot be pickled or copied: it waits for a producer of this process; send "
        "what its result() returns"
    )
