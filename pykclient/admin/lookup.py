"""Lookups: which broker can serve a key of an admin call.

Metadata has most of them; the coordinator of a group is requested from a broker.

Owner: the call that a lookup was made for; those that hold nothing are shared.
Source: Java classes ``AdminApiLookupStrategy``, ``CoordinatorStrategy``, ``KafkaAdminClient``
(``NodeProvider``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final, Generic, NamedTuple, TypeVar

from pykclient.errors import KafkaError, error_for_code
from pykclient.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pykclient.types import Node

if TYPE_CHECKING:
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.protocol.message import Message, Request

__all__ = [
    "ONE_KEY_MAX_VERSION",
    "AnyBroker",
    "Controller",
    "CoordinatorOf",
    "GroupCoordinator",
    "Lookup",
    "NamedBroker",
    "Place",
    "coordinator_request",
    "found_coordinator",
]

KeyT_contra = TypeVar("KeyT_contra", contravariant=True)

GROUP_KEY_TYPE: Final = 0
ONE_KEY_MAX_VERSION: Final = 3
"""Newer versions of FindCoordinator take many keys (KIP-699), which brokers before 3.0 do not."""


class Place(NamedTuple):
    """Where a key is served; `node_id` None means by any broker."""

    node_id: int | None


class Lookup(ABC, Generic[KeyT_contra]):
    """Finds the place of a key."""

    max_version: ClassVar[int | None] = None

    @abstractmethod
    def find(self, key: KeyT_contra, cluster: Cluster) -> Place | None:
        """Return the place, or None while it is not known."""

    def group_to_find(self, key: KeyT_contra) -> str | None:
        return None

    def request(self, group_to_find: str) -> Request:
        raise NotImplementedError

    def learn(self, group_to_find: str, message: Message) -> KafkaError | None:
        raise NotImplementedError

    def forget(self, key: KeyT_contra) -> None:
        """Drop what was learned about a key: it is not served there."""


class AnyBroker(Lookup[object]):
    """Every broker can serve it."""

    def find(self, key: object, cluster: Cluster) -> Place | None:
        return Place(None)


class Controller(Lookup[object]):
    """The controller serves it; in a KRaft cluster a broker that passes it on to the controller."""

    def find(self, key: object, cluster: Cluster) -> Place | None:
        return None if cluster.controller_id is None else Place(cluster.controller_id)


class NamedBroker(Lookup[int]):
    """The key is the id of the broker that serves it."""

    def find(self, key: int, cluster: Cluster) -> Place | None:
        return Place(key)


class _Coordinators(Lookup[KeyT_contra]):
    """The coordinator of a key's group serves it. Each group is asked for once."""

    max_version = ONE_KEY_MAX_VERSION

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}

    def find(self, key: KeyT_contra, cluster: Cluster) -> Place | None:
        node = self._nodes.get(self.group_to_find(key))
        return None if node is None else Place(node.id)

    def coordinator(self, key: KeyT_contra) -> Node:
        return self._nodes[self.group_to_find(key)]

    @abstractmethod
    def group_to_find(self, key: KeyT_contra) -> str:
        """Return the group."""

    def request(self, group_to_find: str) -> FindCoordinatorRequest:
        return coordinator_request(group_to_find)

    def learn(self, group_to_find: str, message: Message) -> KafkaError | None:
        found = found_coordinator(group_to_find, message)
        if isinstance(found, KafkaError):
            return found
        self._nodes[group_to_find] = found
        return None

    def forget(self, key: KeyT_contra) -> None:
        self._nodes.pop(self.group_to_find(key), None)


class GroupCoordinator(_Coordinators[str]):
    """The key is a group, which its coordinator serves."""

    def group_to_find(self, key: str) -> str:
        return key


class CoordinatorOf(_Coordinators[object]):
    """Every key belongs to one group, whose coordinator serves it."""

    def __init__(self, group: str) -> None:
        super().__init__()
        self._group = group

    def group_to_find(self, key: object) -> str:
        return self._group


def coordinator_request(group: str) -> FindCoordinatorRequest:
    """Return the request for the coordinator of a group; see `ONE_KEY_MAX_VERSION`."""
    return FindCoordinatorRequest(key=group, key_type=GROUP_KEY_TYPE)


def found_coordinator(group: str, message: Message) -> Node | KafkaError:
    assert isinstance(message, FindCoordinatorResponse)
    if message.error_code != 0:
        said = f": {message.error_message}" if message.error_message else ""
        return error_for_code(message.error_code, f"coordinator of group {group!r}{said}")
    return Node(message.node_id, message.host, message.port)
