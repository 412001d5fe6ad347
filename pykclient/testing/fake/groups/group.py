"""What brokers need of a group of any kind, its settings, and what tests are shown of it.

Owner: the group's registry.
Source: Java interface ``Group``; KIP-848 (kinds of groups); Kafka's broker configuration
(``group.*``, ``offset*``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pykclient.errors.base import BrokerError
    from pykclient.testing.fake.groups.offsets import CommittedOffset
    from pykclient.types import TopicPartition

Refusal = type["BrokerError"]
"""Why something is refused: the error whose code goes into the response."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings with Kafka's defaults, but no rebalance waits for more members."""

    group_initial_rebalance_delay_ms: int = 0
    """Kafka's own is 3000: how long a group that was empty waits for more members, each time that
    one has come, up to the rebalance time-out."""
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2**31 - 1
    offsets_retention_minutes: int = 10_080
    """How long offsets are kept that no member of the group uses."""
    offset_metadata_max_bytes: int = 4_096
    """It counts UTF-16 units, as Java's strings do."""
    offsets_topic_num_partitions: int = 50
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_assignment_interval_ms: int = 0
    """Minimum time between two target assignments (KIP-1263); Kafka's own is 1000 since 4.3."""
    group_consumer_max_size: int = 2**31 - 1


class GroupKind(Enum):
    """The kinds; the values are those of ListGroups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class MemberSnapshot:
    """A member at one moment.

    `partitions` is what it was assigned; empty in a classic group of another protocol than that of
    consumers, whose `assignment` only its members can read.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    partitions: tuple[TopicPartition, ...]
    assignment: bytes = b""
    metadata: bytes = b""
    """Its metadata for the protocol that was chosen."""


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A group at one moment; `state` is Kafka's name of it, `generation` the epoch of KIP-848."""

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
    """One group.

    A `check_*` returns why something is refused, or None. Time comes in as `now_ms`.
    """

    name: str
    kind: GroupKind

    @property
    def state_name(self) -> str:
        """The state as Kafka calls it."""
        ...

    @property
    def generation(self) -> int:
        """The generation, or the group's epoch."""
        ...

    @property
    def protocol_type(self) -> str:
        """What its members have in common; empty in a group that never had one."""
        ...

    @property
    def protocol_name(self) -> str | None:
        """How its partitions are assigned; None before that was chosen."""
        ...

    @property
    def leader_id(self) -> str | None:
        """The member that assigns; None when the broker does."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no member."""
        ...

    def members(self) -> tuple[MemberSnapshot, ...]:
        """Its members, the oldest first."""
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
        """Whether this member may commit these partitions; `version` is that of the request."""
        ...

    def on_commit(self, member_id: str, now_ms: int) -> None:
        """A member, or a client without a member id, has committed: a sign of life."""
        ...

    def check_fetch(self, member_id: str | None, member_epoch: int) -> Refusal | None:
        """Whether this member may read offsets."""
        ...

    def check_offset_delete(self) -> Refusal | None:
        """Whether offsets may be deleted at all."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member may read this topic, so that its offsets are in use."""
        ...

    def retention_start_ms(self, topic: str, committed_ms: int) -> int | None:
        """From when on the retention of a topic's offset counts; None while it is in use."""
        ...

    def check_delete(self) -> Refusal | None:
        """Whether the group may be deleted."""
        ...

    def expire_member(self, member_id: str, now_ms: int) -> bool:
        """Act as if the member's session had timed out; whether there is such a member."""
        ...

    def on_coordinator_lost(self, now_ms: int) -> None:
        """The broker coordinates it no longer: requests that wait are refused, timers stopped."""
        ...

    def on_coordinator_gained(self, now_ms: int) -> None:
        """A broker has read the group from the log: what was never written there is gone."""
        ...

    def on_deleted(self, now_ms: int) -> None:
        """It is a group no more."""
        ...
