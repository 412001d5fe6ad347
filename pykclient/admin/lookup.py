"""Lookups: which broker can serve a key of an admin call.

Owner: no state.
Source: Java classes ``AdminApiLookupStrategy``, ``AllBrokersStrategy``, ``KafkaAdminClient``
(``LeastLoadedNodeProvider``, ``ControllerNodeProvider``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from pykclient.network.cluster import Cluster

__all__ = ["AnyBroker", "Controller", "Lookup", "NamedBroker", "Place"]

KeyT_contra = TypeVar("KeyT_contra", contravariant=True)


class Place(NamedTuple):
    """Where a key is served; `node_id` None means by any broker."""

    node_id: int | None


class Lookup(Protocol[KeyT_contra]):
    """Finds the place of a key."""

    def find(self, key: KeyT_contra, cluster: Cluster) -> Place | None:
        """Return the place, or None when newer metadata is needed to tell."""
        ...


class AnyBroker:
    """Every broker can serve it."""

    def find(self, key: object, cluster: Cluster) -> Place | None:
        """Return any place."""
        return Place(None)


class Controller:
    """The controller serves it; in a KRaft cluster a broker that passes it on to the controller."""

    def find(self, key: object, cluster: Cluster) -> Place | None:
        """Return the controller, None while it is not known."""
        return None if cluster.controller_id is None else Place(cluster.controller_id)


class NamedBroker:
    """The key is the id of the broker that serves it."""

    def find(self, key: int, cluster: Cluster) -> Place | None:
        """Return that broker."""
        return Place(key)
