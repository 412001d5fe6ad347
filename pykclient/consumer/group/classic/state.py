"""ClassicMember: how far a member of a classic group is, and what it knows of the round under way.

States and their transitions; what answers and time make of them is `ClassicMembership`'s.

Owner: the core lock.
Source: the member states of Java's ``AbstractCoordinator``.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, Final

from pykclient.errors import (
    CoordinatorNotAvailableError,
    IllegalGenerationError,
    NotCoordinatorError,
    UnknownMemberIdError,
    error_for_code,
)
from pykclient.network.log import ClientLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient.consumer.group.classic.heartbeat import Heartbeat
    from pykclient.consumer.group.history import GroupHistory
    from pykclient.consumer.group.metadata import GroupMetadata
    from pykclient.errors import KafkaError
    from pykclient.protocol.messages.join_group import JoinGroupResponse

__all__ = ["GIVEN_UP", "MOVED", "NEXT", "REFUSAL_MAX_MS", "ClassicMember", "ClassicState"]


class ClassicState(Enum):
    """How far a member is."""

    UNJOINED = "unjoined"
    REVOKING = "revoking"
    JOINING = "joining"
    SYNCING = "syncing"
    ASSIGNING = "assigning"
    STABLE = "stable"
    LEAVING = "leaving"


_S = ClassicState
NEXT: Final[dict[ClassicState, frozenset[ClassicState]]] = {
    _S.UNJOINED: frozenset({_S.REVOKING, _S.LEAVING}),
    _S.REVOKING: frozenset({_S.JOINING, _S.UNJOINED, _S.LEAVING}),
    _S.JOINING: frozenset({_S.SYNCING, _S.UNJOINED, _S.LEAVING}),
    _S.SYNCING: frozenset({_S.ASSIGNING, _S.JOINING, _S.UNJOINED, _S.LEAVING}),
    _S.ASSIGNING: frozenset({_S.STABLE, _S.UNJOINED, _S.LEAVING}),
    _S.STABLE: frozenset({_S.REVOKING, _S.UNJOINED, _S.LEAVING}),
    _S.LEAVING: frozenset({_S.UNJOINED}),
}
HAVE_GENERATION: Final = frozenset({_S.REVOKING, _S.ASSIGNING, _S.STABLE, _S.LEAVING})
"""States in which the member may commit, if it is one at all."""

GIVEN_UP: Final = (UnknownMemberIdError.code, IllegalGenerationError.code)
"""Errors by which a coordinator says that this is no member, or not in this generation."""

MOVED: Final = (CoordinatorNotAvailableError.code, NotCoordinatorError.code)
"""Errors that say that the coordinator is another one."""

REFUSAL_MAX_MS: Final = 5_000
"""A JoinGroup that is not refused in that time has been taken: the group is waited for."""


class ClassicMember:
    """A member. `ask_to_join` has it join, or join again."""

    def __init__(
        self,
        member: GroupMetadata,
        *,
        heartbeat: Heartbeat,
        history: GroupHistory,
        client_id: str,
    ) -> None:
        self.member = member
        self.trouble: KafkaError | None = None
        """Why the coordinator does not take this member in, as it said last; None if it does."""
        self.state = ClassicState.UNJOINED
        self.heartbeat = heartbeat
        self._log = ClientLog("pykclient.consumer", client_id)
        self._history = history
        self._rejoin_reason: str | None = None
        """Why to join; None when there is no need to."""
        self._call: object | None = None
        """The JoinGroup or SyncGroup in flight; answers to others come too late."""
        self._joined: JoinGroupResponse | None = None
        """The answer with which the leader has yet to share out."""
        self._shares: Sequence[tuple[str, bytes]] | None = None
        self._assignment: bytes | None = None
        self._error: KafkaError | None = None

    @property
    def can_commit(self) -> bool:
        """Whether a commit in the name of `member` has a chance."""
        return self.member.is_member and self.state in HAVE_GENERATION

    @property
    def is_rebalancing(self) -> bool:
        """Whether it waits for the group."""
        return self.state in (ClassicState.JOINING, ClassicState.SYNCING)

    @property
    def needs_join(self) -> bool:
        """Whether it is to join, or to join again."""
        return self._rejoin_reason is not None

    def ask_to_join(self, reason: str) -> None:
        """Have it join, or join again, at the application's next poll."""
        # An attempt that failed once more for the same reason is no news.
        level = logging.DEBUG if reason == self._rejoin_reason else logging.INFO
        self._log.log(level, "group %r: to be joined: %s", self.member.group_id, reason)
        self._rejoin_reason = reason

    def take_error(self) -> KafkaError | None:
        """Return what the application must know, and forget it; what is fatal stays."""
        error = self._error
        if error is not None and not error.fatal:
            self._error = None
        return error

    @property
    def has_error(self) -> bool:
        """Whether `take_error` would return one."""
        return self._error is not None

    def _ask_once(self, reason: str) -> None:
        if self._rejoin_reason is None:
            self.ask_to_join(reason)

    def _lose_generation(self, api: str, code: int) -> None:
        """The coordinator does not know this member any more, or not in this generation."""
        error = error_for_code(code)
        keeps_name = code == IllegalGenerationError.code
        self._log.info("group %r: membership is lost: %s", self.member.group_id, error)
        self.member = self.member.without_generation() if keeps_name else self.member.without_name()
        self._forget_round()
        if self.state is ClassicState.LEAVING:
            return
        self.ask_to_join(f"encountered {error.name} from {api} response")
        if self.state in (ClassicState.REVOKING, ClassicState.ASSIGNING):
            # The participant is in the middle of something; what it has then is lost afterwards.
            return
        if self.state is not ClassicState.UNJOINED:
            self._to(ClassicState.UNJOINED)

    def _fail(self, error: KafkaError) -> None:
        if self._error is None or not self._error.fatal:
            self._error = error
        if error.fatal:
            # Who took our place must not be disturbed, and nothing more be done in its name.
            self._forget_round()
            self.member = self.member.without_name()

    def _forget_round(self) -> None:
        """Let go of the round under way; answers that belong to it come too late."""
        self._call = self._joined = self._shares = self._assignment = None
        self.heartbeat.stop()

    def _about(self, api: str) -> str:
        return f"{api} of group {self.member.group_id!r}"

    def _to(self, state: ClassicState) -> None:
        assert state in NEXT[self.state], f"{self.state} -> {state}"
        self.state = state
