"""The cluster used by most group tests."""

from __future__ import annotations

import pytest

from pykclient.testing import FakeCluster, GroupSettings


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(3, group_settings=GroupSettings(group_initial_rebalance_delay_ms=50))
    cluster.create_topic("t", 4)
    cluster.create_topic("u", 1)
    return cluster
