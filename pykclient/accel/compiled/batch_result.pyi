"""The types of batch_result.pyx, which are those of the pure twin."""

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar, final

from pykclient.accel.abc import Appender, OnDelivery

__all__ = ["BatchResult", "Callbacks"]

T = TypeVar("T")

@final
class Callbacks(Generic[T]):
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[tuple[int, OnDelivery[T]]]: ...
    def __contains__(self, item: object) -> bool: ...

class BatchResult(Generic[T]):
    is_well: bool
    base_offset: int | None
    log_append_time_ms: int | None
    def __init__(self, kind: type[T], topic: str, partition: int) -> None: ...
    def follow(self, appender: Appender[T]) -> None: ...
    def where(self, index: int) -> T: ...
    def report(
        self,
        callbacks: Iterable[tuple[int, OnDelivery[T]]],
        on_error: Callable[[OnDelivery[T]], object],
    ) -> None: ...
