"""SubscriptionMode: who chooses a consumer's partitions.

Owner: none, it never changes.
Source: Java enum ``SubscriptionState.SubscriptionType``; KIP-848 (patterns that brokers match).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["GROUP_MODES", "PATTERN_MODES", "SubscriptionMode"]


class SubscriptionMode(Enum):
    """Who chooses the partitions: nobody yet, the group (by topics or a pattern), or the user."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    BROKER_PATTERN = "broker_pattern"
    """A pattern that brokers match (KIP-848)."""
    ASSIGNED = "assigned"


PATTERN_MODES: Final = frozenset({SubscriptionMode.PATTERN, SubscriptionMode.BROKER_PATTERN})
GROUP_MODES: Final = PATTERN_MODES | {SubscriptionMode.TOPICS}
