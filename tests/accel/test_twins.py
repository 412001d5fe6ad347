"""`help` and editors show the same of the compiled core as of the pure one."""

from __future__ import annotations

import inspect
from operator import attrgetter
from types import FunctionType
from typing import TYPE_CHECKING, get_args

import pytest

from pykclient import Producer
from pykclient.accel import pure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

CLASSES = ("ConsumerRecord", "Delivery")


def public_names() -> Iterator[str]:
    """Yield the names of the core that applications see: `send`, deliveries, records, methods."""
    yield "SendCore.send"
    for name in CLASSES:
        yield name
        for member, value in vars(getattr(pure, name)).items():
            if not member.startswith("_") and isinstance(value, (FunctionType, property)):
                yield f"{name}.{member}"


def parameters_of(found: object) -> list[tuple[str, object]]:
    """Names and defaults; `self`, which C takes by its place alone, is left out."""
    assert callable(found)
    parameters = inspect.signature(found).parameters.values()
    return [(each.name, each.default) for each in parameters if each.name != "self"]


@pytest.mark.parametrize("name", list(public_names()))
def test_signatures_and_docstrings_are_the_same(core: ModuleType, name: str) -> None:
    found, twin = attrgetter(name)(core), attrgetter(name)(pure)
    assert inspect.getdoc(twin)
    assert inspect.getdoc(found) == inspect.getdoc(twin)
    if callable(twin):
        assert parameters_of(found) == parameters_of(twin)


def test_the_producers_send_shows_what_it_takes_and_raises() -> None:
    assert [name for name, _ in parameters_of(Producer.send)] == [
        *("topic", "value", "key", "partition", "timestamp_ms", "headers", "on_delivery"),
    ]
    doc = inspect.getdoc(Producer.send) or ""
    assert all(part in doc for part in ("on_delivery(metadata, error)", "Raises:", "max_block_ms"))


def test_deliveries_and_records_take_type_arguments(core: ModuleType) -> None:
    assert get_args(core.Delivery[int]) == (int,)
    assert get_args(core.ConsumerRecord[str, bytes]) == (str, bytes)
