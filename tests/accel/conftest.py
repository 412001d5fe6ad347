"""Every test here runs on every implementation of the per-record core that is built."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.accel import pure

if TYPE_CHECKING:
    from types import ModuleType


@pytest.fixture(params=[pure], ids=["pure"])
def core(request: pytest.FixtureRequest) -> ModuleType:
    """The implementation under test."""
    implementation: ModuleType = request.param
    return implementation
