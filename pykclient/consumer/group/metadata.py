"""GroupMetadata: a member of a group.

Owner: none, it is immutable.
Source: Java class ``ConsumerGroupMetadata``, KIP-447.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["NO_GENERATION", "NO_MEMBER_ID", "GroupMetadata"]

NO_GENERATION: Final = -1
"""The generation in a request that does not come from a member."""

NO_MEMBER_ID: Final = ""


class GroupMetadata(NamedTuple):
    """A member as its coordinator knows it.

    `generation` is that of the last rebalance, -1 while this is no member; `member_id` is empty
    before the member has one. `group_instance_id` is set for static members (KIP-345).
    """

    group_id: str
    generation: int = NO_GENERATION
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None

    @property
    def is_member(self) -> bool:
        """Whether it has joined, as far as this consumer knows."""
        return self.generation != NO_GENERATION and self.member_id != NO_MEMBER_ID

    def without_generation(self) -> GroupMetadata:
        """The same member, which has to join again under its id."""
        return self._replace(generation=NO_GENERATION)

    def without_member_id(self) -> GroupMetadata:
        """One that the coordinator does not know."""
        return self._replace(generation=NO_GENERATION, member_id=NO_MEMBER_ID)
