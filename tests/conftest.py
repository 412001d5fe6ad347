"""What every test may use: the fixtures that this package gives to all its users."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hypothesis import settings

from pykclient.testing import fixtures

if TYPE_CHECKING:
    import pytest

pytest_plugins = ["tests.promises"]

# The same made-up cases each time, so that a failure is one of the change that is tested; `make
# fuzz` looks for new ones. How long a case takes is the machine's matter.
settings.register_profile(
    "pykclient", deadline=None, derandomize="PYKCLIENT_FUZZ_CASES" not in os.environ
)
settings.load_profile("pykclient")


def pytest_configure(config: pytest.Config) -> None:
    """Load our plugin where it is not installed; where it is, pytest did so already."""
    if not config.pluginmanager.is_registered(fixtures):
        config.pluginmanager.register(fixtures, "pykclient")
