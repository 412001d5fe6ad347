"""Every test here runs on every implementation of the per-record core that is built."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from tests.accel.records import ROWS, decoded, encoded

if TYPE_CHECKING:
    from types import ModuleType

    from pykclient.accel.abc import RecordColumns


@pytest.fixture(scope="session", params=["pure", "compiled"])
def core(request: pytest.FixtureRequest) -> ModuleType:
    """Provide the implementation under test."""
    try:
        return import_module(f"pykclient.accel.{request.param}")
    except ModuleNotFoundError as error:
        pytest.skip(f"not built: {error}")


@pytest.fixture
def columns(core: ModuleType) -> RecordColumns:
    """Provide the sample's records, at offsets from 50 on."""
    data = core.record_bytes(memoryview(encoded(core, ROWS)))
    return decoded(core, data, len(ROWS), base_offset=50, base_ms=1000)
