"""Lookups: which broker serves a key."""

from __future__ import annotations

from pykclient.admin.lookup import AnyBroker, Controller, NamedBroker, Place
from pykclient.network.cluster.cluster import Cluster


def test_any_broker_needs_to_know_nothing() -> None:
    assert AnyBroker().find("key", Cluster()) == Place(None)


def test_the_controller_is_waited_for() -> None:
    assert Controller().find("key", Cluster()) is None
    assert Controller().find("key", Cluster(controller_id=3)) == Place(3)


def test_a_broker_named_by_its_id_is_that_broker() -> None:
    assert NamedBroker().find(7, Cluster()) == Place(7)
