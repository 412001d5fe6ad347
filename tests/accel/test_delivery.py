"""A delivery asks its batch, with its own index, and does nothing else."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING

import pytest

from pykclient.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


class Batch:
    """A batch whose records all have the result "their index"."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.calls: list[Callable[[], object]] = []

    def is_done(self, index: int) -> bool:
        self.asked.append(("is_done", index))
        return True

    def result(self, index: int, timeout: float | None) -> str:
        self.asked.append(("result", index, timeout))
        return f"record {index}"

    def exception(self, index: int, timeout: float | None) -> Exception | None:
        self.asked.append(("exception", index, timeout))
        return None

    def add_done_callback(self, index: int, function: Callable[[], object]) -> None:
        self.asked.append(("add_done_callback", index))
        self.calls.append(function)

    def describe(self, index: int) -> str:
        return f"record {index}"


def test_it_shows_what_its_batch_knows(core: ModuleType) -> None:
    assert repr(core.Delivery(Batch(), 7)) == "<Delivery: record 7>"
    assert repr(core.Delivery(None, 7)) == "<Delivery: without a batch>"


@pytest.mark.parametrize("send", [pickle.dumps, copy.copy, copy.deepcopy])
def test_it_refuses_to_be_pickled_or_copied(
    core: ModuleType, send: Callable[[object], object]
) -> None:
    with pytest.raises(UsageError, match=r"a Delivery cannot be pickled.*result\(\)"):
        send(core.Delivery(Batch(), 7))


def test_each_method_asks_the_batch_about_its_record(core: ModuleType) -> None:
    batch = Batch()
    delivery = core.Delivery(batch, 7)
    assert delivery.done() is True
    assert delivery.result() == "record 7"
    assert delivery.result(timeout=1.5) == "record 7"
    assert delivery.get(2) == "record 7"
    assert delivery.exception(0) is None
    assert batch.asked == [
        ("is_done", 7),
        ("result", 7, None),
        ("result", 7, 1.5),
        ("result", 7, 2),
        ("exception", 7, 0),
    ]


def test_a_done_callback_is_called_with_the_delivery(core: ModuleType) -> None:
    batch = Batch()
    delivery = core.Delivery(batch, 2)
    seen: list[object] = []
    delivery.add_done_callback(seen.append)
    assert seen == []
    for call in batch.calls:
        call()
    assert seen == [delivery]
