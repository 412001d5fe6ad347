"""What a broker's configuration says of groups, by Kafka's names.

Owner: none; it never changes.
Source: Kafka's broker configuration (``group.*``, ``offset*``).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GroupSettings"]


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings with Kafka's defaults; but a new group does not wait for more members at first."""

    group_initial_rebalance_delay_ms: int = 0
    """Kafka's own is 3000: how long a group that was empty waits for more members, each time that
    one has come, up to the rebalance time-out."""
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    """It counts UTF-16 units, as Java's strings do."""
    offsets_topic_num_partitions: int = 50
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_assignment_interval_ms: int = 1_000
    """How long a target assignment stands at least (KIP-1263); before Kafka 4.3 it was 0."""
    group_consumer_max_size: int = 2**31 - 1
