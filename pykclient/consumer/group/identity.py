"""MemberIdentity: the member as which this consumer got the partitions that it reads.

A membership (`classic/membership.py`, `kip848/membership.py`) is what the coordinator says now, and
it ends at any time, also while the application works on records. The identity stays that of the
last *completed* rebalance, so that a coordinator refuses what is committed in its name once other
members may have the partitions. It changes in `complete`, when the application polls and takes an
assignment; in `follow`, when a KIP-848 membership that goes on gets a newer epoch; and in `reset`,
when the application chooses partitions by `assign`. Nothing else changes it: no heartbeat, no join
that fails, no leaving.

Owner: the core lock.
Source: KIP-447; ``groupMetadata`` of Java's ``ConsumerCoordinator`` and ``AsyncKafkaConsumer``.
"""

from __future__ import annotations

from pykclient.types import GroupMetadata


class MemberIdentity:
    """The identity of one consumer in its group, as transactions need it."""

    def __init__(self, group_id: str, group_instance_id: str | None) -> None:
        self._none = GroupMetadata(group_id, group_instance_id=group_instance_id)
        self.member = self._none

    def complete(self, member: GroupMetadata) -> None:
        """Take over the member that a rebalance has made; its assignment is about to be taken."""
        self.member = member

    def follow(self, before: GroupMetadata, member: GroupMetadata) -> None:
        """Take over a newer epoch of the membership under which the partitions were assigned.

        An epoch of another membership, which has joined since, has to be completed first.
        """
        if before.is_member and self.member == before:
            self.member = member

    def reset(self) -> None:
        """Be no member: the application chooses partitions itself."""
        self.member = self._none
