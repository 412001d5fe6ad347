"""What every test may use: the fixtures that this package gives to all its users."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.testing import fixtures

if TYPE_CHECKING:
    import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Load our plugin where it is not installed; where it is, pytest did so already."""
    if not config.pluginmanager.is_registered(fixtures):
        config.pluginmanager.register(fixtures, "pykclient")
