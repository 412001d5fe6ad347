"""ModernState: how far a member of a group of KIP-848 is.

*Unsubscribed*, *joining* (its first heartbeat), *reconciling* (what is assigned and what it has
differ), *acknowledging* (the coordinator has to hear that they do not any more), *stable*. A member
that the coordinator does not know any more is *fenced*, one that left because the application did
not poll is *stale*: both give up what they have and join again. *Prepare leaving* gives everything
up, *leaving* tells the coordinator. *Fatal* is what no attempt cures.

Owner: the core lock.
Source: Java enum ``MemberState``; KIP-848.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["BEATING", "IN_GROUP", "NEXT", "ModernState"]


class ModernState(Enum):
    """How far a member is."""

    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    RECONCILING = "reconciling"
    ACKNOWLEDGING = "acknowledging"
    STABLE = "stable"
    FENCED = "fenced"
    PREPARE_LEAVING = "prepare_leaving"
    LEAVING = "leaving"
    STALE = "stale"
    FATAL = "fatal"


_S = ModernState
_TROUBLE: Final = frozenset({_S.FENCED, _S.FATAL, _S.LEAVING, _S.PREPARE_LEAVING})
NEXT: Final[dict[ModernState, frozenset[ModernState]]] = {
    _S.UNSUBSCRIBED: frozenset({_S.JOINING, _S.PREPARE_LEAVING}),
    _S.JOINING: frozenset({_S.RECONCILING, _S.STABLE}) | _TROUBLE,
    _S.RECONCILING: frozenset({_S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE}) | _TROUBLE,
    _S.ACKNOWLEDGING: frozenset({_S.RECONCILING, _S.STABLE}) | _TROUBLE,
    _S.STABLE: frozenset({_S.RECONCILING}) | _TROUBLE,
    _S.FENCED: frozenset({_S.JOINING, _S.PREPARE_LEAVING}),
    _S.PREPARE_LEAVING: frozenset({_S.LEAVING, _S.UNSUBSCRIBED}),
    _S.LEAVING: frozenset({_S.UNSUBSCRIBED, _S.STALE}),
    _S.STALE: frozenset({_S.JOINING, _S.PREPARE_LEAVING}),
    _S.FATAL: frozenset({_S.JOINING, _S.PREPARE_LEAVING}),
}
IN_GROUP: Final = frozenset({_S.JOINING, _S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE})
"""States of a member that goes on to be one."""

BEATING: Final = IN_GROUP | {_S.PREPARE_LEAVING}
"""States in which heartbeats are sent at their interval: giving up may take longer than a session.
"""
