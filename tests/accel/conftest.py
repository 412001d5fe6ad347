"""Every test here runs on every implementation of the per-record core that is built."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType


@pytest.fixture(scope="session", params=["pure", "compiled"])
def core(request: pytest.FixtureRequest) -> ModuleType:
    """The implementation under test."""
    try:
        return import_module(f"pykclient.accel.{request.param}")
    except ModuleNotFoundError as error:
        pytest.skip(f"not built: {error}")
