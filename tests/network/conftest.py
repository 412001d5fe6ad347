"""Fixtures of the network tests: a client of three brokers, and metadata alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.network.metadata_exchange import make_metadata
from tests.network.scripted_network import BROKERS, ScriptedNetwork

if TYPE_CHECKING:
    from pykclient.network.cluster.metadata import Metadata


@pytest.fixture
def network() -> ScriptedNetwork:
    """One bootstrap address, three brokers."""
    return ScriptedNetwork(*BROKERS)


@pytest.fixture
def metadata() -> Metadata:
    return make_metadata()
