"""Interface of groups of any kind, their settings, and snapshots for tests.

Owner: the group's registry.
Source: Java interface ``Group``; KIP-848 (kinds of groups); Kafka's broker configuration
(``group.*``, ``offset*``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from pykclient.arguments import check_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pykclient.errors.base import BrokerError
    from pykclient.testing.fake.groups.offsets import CommittedOffset
    from pykclient.types import TopicPartition

GROUP_VERSION_MAX = 1
"""Level of Kafka's feature ``group.version`` with groups of KIP-848."""

Refusal = type["BrokerError"]
"""Reason of a refusal: the error whose code is sent."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Broker settings with Kafka's defaults, except for the initial rebalance delay."""

    group_initial_rebalance_delay_ms: int = 0
    """Time an empty group waits for more members; every new member extends the wait, up to
    the rebalance timeout. Kafka's default is 3000."""
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2**31 - 1
    offsets_retention_minutes: int = 10_080
    """Retention of offsets that no member uses."""
    offset_metadata_max_bytes: int = 4_096
    """Maximum length of offset metadata, in UTF-16 units as in Java."""
    offsets_topic_num_partitions: int = 50
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_assignment_interval_ms: int = 0
    """Minimum time between two target assignments (KIP-1263); 1000 in Kafka since 4.3."""
    group_consumer_max_size: int = 2**31 - 1
    group_version: int = GROUP_VERSION_MAX
    """Initial level of Kafka's feature ``group.version``: 1 with groups of KIP-848, 0 without."""

    def __post_init__(self) -> None:
        check_number(self.group_version, "group_version", 0, GROUP_VERSION_MAX)


class GroupKind(Enum):
    """Kind of a group; the values are those of ListGroups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class MemberSnapshot:
    """A member at one moment.

    `partitions` is its assignment; it is empty in a classic group that is not of consumers, where
    only members can read the `assignment`.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    partitions: tuple[TopicPartition, ...]
    assignment: bytes = b""
    metadata: bytes = b""
    """Metadata for the group's chosen protocol."""


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A group at one moment; `state` is Kafka's name, `generation` the group epoch in KIP-848."""

    name: str
    kind: GroupKind
    state: str
    generation: int
    protocol_type: str
    protocol_name: str | None
    leader_id: str | None
    members: tuple[MemberSnapshot, ...]
    offsets: Mapping[TopicPartition, CommittedOffset]
    coordinator_id: int


class Group(Protocol):
    """A group.

    A `check_*` method returns the error of a refusal, or None. Times are `now_ms`.
    """

    name: str
    kind: GroupKind

    @property
    def state_name(self) -> str:
        """Kafka's name of the state."""
        ...

    @property
    def generation(self) -> int:
        """Generation, or group epoch."""
        ...

    @property
    def protocol_type(self) -> str:
        """Common protocol type of the members; empty in a group that never had any."""
        ...

    @property
    def protocol_name(self) -> str | None:
        """Name of the assignor; None before one is chosen."""
        ...

    @property
    def leader_id(self) -> str | None:
        """Member that assigns; None if the broker does."""
        ...

    @property
    def is_empty(self) -> bool:
        """True if it has no members."""
        ...

    def members(self) -> tuple[MemberSnapshot, ...]:
        """Return the members, oldest first."""
        ...

    def check_commit(
        self,
        member_id: str,
        generation_or_member_epoch: int,
        *,
        instance_id: str | None = None,
        is_transactional: bool = False,
        version: int = 0,
        partitions: Iterable[TopicPartition] = (),
    ) -> Refusal | None:
        """Check that a member may commit these partitions; `version` is the request's."""
        ...

    def on_commit(self, member_id: str, now_ms: int) -> None:
        """Handle a commit; in a classic group it counts as a sign of life."""
        ...

    def check_fetch(self, member_id: str | None, member_epoch: int) -> Refusal | None:
        """Check that a member may read offsets."""
        ...

    def check_offset_delete(self) -> Refusal | None:
        """Check that offsets may be deleted at all."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member may read this topic, so that its offsets are in use."""
        ...

    def retention_start_ms(self, topic: str, committed_ms: int) -> int | None:
        """Return when the retention of a topic's offset starts; None while it is in use."""
        ...

    def check_delete(self) -> Refusal | None:
        """Check that the group may be deleted."""
        ...

    def expire_member(self, member_id: str, now_ms: int) -> bool:
        """Expire a member's session; return False if the member does not exist."""
        ...

    def on_coordinator_lost(self, now_ms: int) -> None:
        """Refuse waiting requests and stop timers: the broker is no longer the coordinator."""
        ...

    def on_coordinator_gained(self, now_ms: int) -> None:
        """Continue as the new coordinator, with only what the log contains."""
        ...

    def on_deleted(self, now_ms: int) -> None:
        """End the group after its deletion."""
        ...
