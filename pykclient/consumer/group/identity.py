"""MemberIdentity: the member as which this consumer got its partitions.

A membership (`classic/membership.py`, `kip848/membership.py`) follows the coordinator, and may end
at any time, even while the application processes records. The identity stays that of the last
*completed* rebalance, so that a coordinator refuses commits in its name once other members may have
the partitions. It changes in `complete`, when the application polls and takes an assignment; in
`follow`, when a continuing KIP-848 membership gets a newer epoch; and in `reset`, when the
application assigns partitions itself. Nothing else changes it: no heartbeat, no failed join, no
leaving.

Owner: the core lock.
Source: KIP-447; ``groupMetadata`` of Java's ``ConsumerCoordinator`` and ``AsyncKafkaConsumer``.
"""

from __future__ import annotations

from pykclient.types import GroupMetadata


class MemberIdentity:
    """Identity of one consumer in its group, for transactions."""

    def __init__(self, group_id: str, group_instance_id: str | None) -> None:
        self._none = GroupMetadata(group_id, group_instance_id=group_instance_id)
        self.member = self._none

    def complete(self, member: GroupMetadata) -> None:
        """Set the member of a completed rebalance; its assignment is about to be taken."""
        self.member = member

    def follow(self, before: GroupMetadata, member: GroupMetadata) -> None:
        """Follow a newer epoch of the membership under which the partitions were assigned.

        The epoch of another membership, which has joined since, must be completed first.
        """
        if before.is_member and self.member == before:
            self.member = member

    def reset(self) -> None:
        """Reset to no member: the application assigns partitions itself."""
        self.member = self._none
