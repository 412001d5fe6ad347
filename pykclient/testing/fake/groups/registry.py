"""All groups of a cluster by name, and their coordinators.

A group belongs to a partition of ``__consumer_offsets``, and that partition's leader is its
coordinator. When the leader moves, the old coordinator refuses waiting requests, and the new one
starts from the log.

Owner: the cluster.
Source: Java classes ``GroupCoordinatorService`` (``partitionFor``), ``GroupMetadataManager``;
Java's ``String.hashCode``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from pykclient.errors.broker import InvalidGroupIdError, NotCoordinatorError
from pykclient.testing.fake.coordinator_log import append_records
from pykclient.testing.fake.groups.group import GroupKind, GroupSnapshot
from pykclient.testing.fake.groups.offset_records import WrittenOffsets, offset_record
from pykclient.testing.fake.groups.offsets import NOWHERE, GroupOffsets
from pykclient.testing.fake.topics import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pykclient.testing.fake.coordinator_log import OnAppend
    from pykclient.testing.fake.groups.group import Group, GroupSettings, Refusal
    from pykclient.testing.fake.groups.offsets import CommittedOffset
    from pykclient.testing.fake.storage import Storage
    from pykclient.testing.fake.timers import TimingWheel
    from pykclient.testing.fake.topics import Partition, Topic
    from pykclient.types import TopicPartition

OFFSETS_TOPIC = "__consumer_offsets"
MINUTE_MS = 60_000


_INT_MIN = -(2**31)


class GroupRegistry:
    """The groups of a cluster. `offsets_topic()` returns the internal topic, created on first use.

    `storage` keeps committed offsets; `on_append` is called for partitions of that topic that were
    written to. `epoch_ms` is the wall clock at time 0.
    """

    def __init__(
        self,
        settings: GroupSettings,
        timers: TimingWheel,
        offsets_topic: Callable[[], Topic],
        storage: Storage,
        *,
        on_append: OnAppend,
        epoch_ms: int,
    ) -> None:
        self.settings = settings
        self.timers = timers
        self._offsets_topic = offsets_topic
        self._storage = storage
        self._on_append = on_append
        self._epoch_ms = epoch_ms
        self._groups: dict[str, Group] = {}
        self._offsets: dict[str, GroupOffsets] = {}
        self._member_count = 0

    # Groups.

    def find(self, name: str) -> Group | None:
        """Return a group of any kind, or None."""
        return self._groups.get(name)

    def put(self, group: Group) -> None:
        """Add a group, or replace an empty one of that name; the offsets stay."""
        self._groups[group.name] = group

    def remove(self, name: str, now_ms: int) -> None:
        """Remove a group and its offsets, if it exists."""
        group = self._groups.pop(name, None)
        offsets = self._offsets.pop(name, None)
        if offsets is not None:
            self._write(name, dict.fromkeys(offsets.names()), now_ms)
            self._storage.on_group_deleted(name)
        if group is not None:
            group.on_deleted(now_ms)

    def coordinated_by(self, broker_id: int) -> list[Group]:
        """Return a broker's groups, oldest first."""
        return [
            group
            for group in self._groups.values()
            if self.partition(group.name).leader_id == broker_id
        ]

    def offsets(self, name: str) -> GroupOffsets:
        """Return a group's offsets, which may be empty."""
        offsets = self._offsets.get(name)
        if offsets is None:
            offsets = GroupOffsets(partial(self._storage.on_committed, name))
            self._offsets[name] = offsets
        return offsets

    def committed(self, name: str) -> dict[TopicPartition, CommittedOffset]:
        """Return a group's committed offsets; empty if the group does not exist."""
        offsets = self._offsets.get(name)
        return {} if offsets is None else offsets.all()

    def new_member_id(self, prefix: str) -> str:
        """Return an unused member id; ids repeat in every run of a test."""
        self._member_count += 1
        return f"{prefix}-{UUID(int=(0xFA4E << 64) + self._member_count)}"

    def snapshot(self, name: str) -> GroupSnapshot | None:
        """Return a group's current state, or None."""
        group = self._groups.get(name)
        if group is None:
            return None
        offsets = self._offsets.get(name)
        return GroupSnapshot(
            name=name,
            kind=group.kind,
            state=group.state_name,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader_id=group.leader_id,
            members=group.members(),
            offsets={} if offsets is None else offsets.all(),
            coordinator_id=self.partition(name).leader_id,
        )

    # Coordinators.

    def partition(self, name: str) -> Partition:
        """Return the partition of a group, existing or not."""
        partitions = self._offsets_topic().partitions
        return partitions[place(name, len(partitions))]

    def check_coordinator(self, broker_id: int, name: str) -> Refusal | None:
        """Return an error if this broker does not coordinate the group."""
        return None if self.partition(name).leader_id == broker_id else NotCoordinatorError

    def check_named(self, broker_id: int, name: str) -> Refusal | None:
        """Do as `check_coordinator`, and refuse an empty name, which only offsets may have."""
        return self.check_coordinator(broker_id, name) if name else InvalidGroupIdError

    def on_leader(self, partition: Partition, now_ms: int, *, has_kip848: bool) -> None:
        """Move the groups of a partition whose leader has changed.

        Without `has_kip848`, the new leader is older than KIP-848: it cannot read such groups from
        the log, and keeps only their offsets.
        """
        if partition.name.topic != OFFSETS_TOPIC:
            return
        for group in list(self._groups.values()):
            if self.partition(group.name) is not partition:
                continue
            group.on_coordinator_lost(now_ms)
            if partition.leader_id == NO_LEADER:
                continue
            if group.kind is GroupKind.CONSUMER and not has_kip848:
                del self._groups[group.name]
            else:
                group.on_coordinator_gained(now_ms)

    def hold(
        self,
        name: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        now_ms: int,
        *,
        producer_id: int,
        producer_epoch: int,
    ) -> None:
        """Add offsets of a producer's transaction, pending until it ends."""
        partition = self.partition(name)
        wall_ms = self._epoch_ms + now_ms
        log_offset = append_records(
            partition,
            [offset_record(name, *each, wall_ms) for each in offsets.items()],
            wall_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        for at, (place_of_offset, committed) in enumerate(offsets.items(), log_offset):
            self.offsets(name).hold(producer_id, place_of_offset, committed, now_ms, log_offset=at)
        self._on_append(partition, now_ms)

    def commit(
        self,
        name: str,
        partition: TopicPartition,
        committed: CommittedOffset,
        now_ms: int,
        *,
        retention_ms: int | None = None,
    ) -> None:
        """Commit an offset at once; `retention_ms` is set by the client."""
        expires_ms = None if retention_ms is None else now_ms + retention_ms
        log_offset = self._write(name, {partition: committed}, now_ms, expires_ms)
        self.offsets(name).commit(
            partition, committed, now_ms, log_offset=log_offset, expires_ms=expires_ms
        )

    def remove_offset(self, name: str, partition: TopicPartition, now_ms: int) -> None:
        """Remove an offset, if it exists."""
        if partition in self.offsets(name).names():
            self._write(name, {partition: None}, now_ms)
        self.offsets(name).remove(partition)

    def expire(self, now_ms: int) -> None:
        """Remove expired offsets, and groups without members or offsets (KIP-211)."""
        oldest_ms = now_ms - self.settings.offsets_retention_minutes * MINUTE_MS
        for name, group in list(self._groups.items()):
            if self.partition(name).leader_id == NO_LEADER:
                continue
            offsets = self.offsets(name)
            for partition, commit in offsets.commits().items():
                start_ms = group.retention_start_ms(partition.topic, commit.now_ms)
                if start_ms is None:
                    continue
                is_over = start_ms <= oldest_ms
                if commit.expires_ms is not None:
                    is_over = commit.expires_ms <= now_ms
                if is_over:
                    self.remove_offset(name, partition, now_ms)
            if group.is_empty and offsets.is_blank:
                self.remove(name, now_ms)

    def _write(
        self,
        name: str,
        offsets: Mapping[TopicPartition, CommittedOffset | None],
        now_ms: int,
        expires_ms: int | None = None,
    ) -> int:
        """Append to the log if its partition has a leader; return the first record's offset."""
        partition = self.partition(name)
        if not offsets or partition.leader_id == NO_LEADER:
            return NOWHERE
        wall_ms = self._epoch_ms + now_ms
        expires_wall_ms = None if expires_ms is None else self._epoch_ms + expires_ms
        records = [
            offset_record(name, *each, wall_ms, expires_wall_ms=expires_wall_ms)
            for each in offsets.items()
        ]
        log_offset = append_records(partition, records, wall_ms)
        self._on_append(partition, now_ms)
        return log_offset

    def load(self, now_ms: int) -> list[str]:
        """Load pending offsets of transactions that were open in an earlier run.

        Committed offsets are kept outside the log. Returns the groups with pending offsets.
        """
        names: dict[str, None] = {}
        for partition in self._offsets_topic().partitions:
            written = WrittenOffsets(partition)
            for (name, place_of_offset), at in written.log_offsets.items():
                self.offsets(name).place(place_of_offset, at)
            for producer_id, held in written.held.items():
                for (name, place_of_offset), (committed, at) in held.items():
                    names[name] = None
                    self.offsets(name).hold(
                        producer_id, place_of_offset, committed, now_ms, log_offset=at
                    )
        return list(names)

    def on_marker(self, producer_id: int, partition: Partition, *, is_commit: bool) -> None:
        """Commit or discard the pending offsets of a producer, after a marker in this partition.

        It affects all groups of the partition.
        """
        for name, offsets in self._offsets.items():
            if self.partition(name) is not partition:
                continue
            if is_commit:
                offsets.commit_held(producer_id)
            else:
                offsets.drop_held(producer_id)

    def on_topic_deleted(self, topic: str, now_ms: int) -> None:
        """Remove the offsets of a deleted topic."""
        for name, offsets in self._offsets.items():
            gone = [each for each in offsets.names() if each.topic == topic]
            if topic != OFFSETS_TOPIC:
                self._write(name, dict.fromkeys(gone), now_ms)
            offsets.remove_topic(topic)


def java_string_hash(text: str) -> int:
    """Return Java's signed hash of a string, over UTF-16 units."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for place_of_unit in range(0, len(units), 2):
        unit = units[place_of_unit] << 8 | units[place_of_unit + 1]
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def place(key: str, partition_count: int) -> int:
    """Return the partition number of a group or transactional id."""
    value = java_string_hash(key)
    return 0 if value == _INT_MIN else abs(value) % partition_count


def utf16_unit_count(text: str) -> int:
    """Return the length of a string as Java counts it."""
    return len(text.encode("utf-16-be", "surrogatepass")) // 2
