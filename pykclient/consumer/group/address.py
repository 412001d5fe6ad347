"""GroupAddress: where the coordinator of one group is.

Owner: no state; `Coordinators` looks it up and remembers.
Source: ours; the `coordinator` fields of Java's ``AbstractCoordinator``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.network.cluster.coordinators import CoordinatorType

if TYPE_CHECKING:
    from pykclient.errors import KafkaError
    from pykclient.network.cluster.coordinators import Coordinators

__all__ = ["GroupAddress"]


class GroupAddress:
    """Asks for the coordinator of the group `group_id`."""

    def __init__(self, coordinators: Coordinators, group_id: str) -> None:
        self._coordinators = coordinators
        self._group_id = group_id

    def node_id(self) -> int | None:
        """Return whom to ask; None while it is looked up."""
        node = self._coordinators.coordinator(CoordinatorType.GROUP, self._group_id)
        return None if node is None else node.id

    def other_node_id(self) -> int | None:
        """Return the same broker by its connection for data, which no JoinGroup holds up."""
        node = self._coordinators.coordinator(CoordinatorType.GROUP, self._group_id)
        return None if node is None else node.broker_id

    def mark_unknown(self, node_id: int, reason: object) -> None:
        """Have it looked up again, if it is still this one."""
        self._coordinators.mark_unknown(
            CoordinatorType.GROUP, self._group_id, node_id=node_id, reason=reason
        )

    def failure(self) -> KafkaError | None:
        """Return why it cannot be found, if that does not cure itself."""
        return self._coordinators.failure(CoordinatorType.GROUP, self._group_id)
