"""What a fake cluster consists of: brokers, topics with their replicas, groups, transactions, time.

Here is what tests command and what handlers change; what brokers do with requests is `cluster`'s.

Owner: whoever calls; one thread at a time.
Source: Java class ``ReplicaManager``; the shape of control functions is kfake's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, ClassVar
from uuid import UUID, uuid4
from weakref import WeakSet
from zlib import crc32

from pykclient.arguments import check_number, shown_argument, value_list
from pykclient.config.setting import INT_MAX
from pykclient.errors.base import UsageError
from pykclient.testing.cluster.security import ClusterSecurity
from pykclient.testing.fake.contents import visible_records
from pykclient.testing.fake.faults import Faults
from pykclient.testing.fake.fetch_sessions import FetchSessions
from pykclient.testing.fake.groups.group import GroupSettings
from pykclient.testing.fake.groups.registry import OFFSETS_TOPIC, GroupRegistry
from pykclient.testing.fake.profiles import profile_named
from pykclient.testing.fake.replication import Replication
from pykclient.testing.fake.sasl import EXCHANGES, Users
from pykclient.testing.fake.storage import Storage
from pykclient.testing.fake.timers import Purgatory, TimingWheel, Turns
from pykclient.testing.fake.topics import NO_LEADER, Partition, Topic, is_valid_name
from pykclient.testing.fake.transactions.coordinator import TransactionCoordinator
from pykclient.testing.fake.transactions.settings import TransactionSettings
from pykclient.testing.fake.transactions.state_log import STATE_TOPIC
from pykclient.testing.port import Address
from pykclient.types import OffsetAndMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pykclient.accel import ConsumerRecord
    from pykclient.protocol.api_keys import ApiKey
    from pykclient.testing.fake.authentication import Session
    from pykclient.testing.fake.groups.group import GroupSnapshot
    from pykclient.testing.fake.timers import Timer
    from pykclient.types import TopicPartition

CLUSTER_ID = "pykclient-fake-cluster"
FIRST_PORT = 9092
BROKER_COUNT_MAX = 100
PARTITION_COUNT_MAX = 10_000
RETENTION_CHECK_MS = 300_000
DEFAULT_REPLICATION_FACTOR = 3
GROUP_KEY = 0
"""What FindCoordinator calls a group."""
TRANSACTION_KEY = 1
"""What it calls a transactional id."""
RUN_SHIFT = 32
CLEANER_BACKOFF_MS = 15_000
"""Kafka's ``log.cleaner.backoff.ms``: how often the cleaner looks for logs that are dirty."""
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(100 * 1024 * 1024)}
"""The settings of Kafka's own topics."""
ISOLATION_LEVELS = ("read_uncommitted", "read_committed")
SMALLEST_EPOCH_MS = 1_700_000_000_000
"""The wall clock at time 0, unless given: some day of 2023, since records with time 0 are odd."""

VersionRange = tuple[int, int]


@dataclass(slots=True, eq=False)
class Broker:
    """One broker: its address, and what it loses when it stops."""

    id: int
    host: str
    port: int
    rack: str | None = None
    is_alive: bool = True
    fetch_sessions: FetchSessions = field(default_factory=FetchSessions)
    connections: dict[object, Callable[[], None]] = field(default_factory=dict)
    """Those that are open, in the order in which they came, and what closes each."""
    versions: dict[ApiKey, VersionRange | None] = field(default_factory=dict)
    """The versions that it pretends to have; None for an API that it lacks."""
    listeners: dict[str, Address] = field(default_factory=dict)
    """Where it listens besides, by the names of listeners; host and port are the first one's."""

    def address(self, listener: str | None) -> Address:
        """Where clients of a listener are sent to."""
        found = None if listener is None else self.listeners.get(listener)
        return Address(self.host, self.port) if found is None else found


class ClusterState:
    """Brokers with ids from 0; what they are given is said at `FakeCluster`."""

    api_versions: ClassVar[Mapping[ApiKey, VersionRange]] = {}
    """What a broker speaks, unless it pretends to be older."""
    unstable_versions: ClassVar[Mapping[ApiKey, int]] = {}
    """What it speaks besides, where the settings say so."""

    def __init__(
        self,
        brokers: int = 3,
        *,
        default_partition_count: int = 1,
        min_insync_replicas: int = 1,
        auto_create_topics: bool = True,
        replication_delay_ms: int = 0,
        racks: Sequence[str] = (),
        group_settings: GroupSettings | None = None,
        transaction_settings: TransactionSettings | None = None,
        profile: str = "kafka",
        security: ClusterSecurity | None = None,
        connections_max_reauth_ms: int = 0,
        storage: Storage | None = None,
        cluster_id: str = CLUSTER_ID,
        epoch_ms: int = SMALLEST_EPOCH_MS,
        now_ms: int = 0,
    ) -> None:
        check_number(brokers, "brokers", 1, BROKER_COUNT_MAX)
        check_number(default_partition_count, "default_partition_count", 1, PARTITION_COUNT_MAX)
        check_number(min_insync_replicas, "min_insync_replicas", 1, BROKER_COUNT_MAX)
        check_number(replication_delay_ms, "replication_delay_ms", 0, INT_MAX)
        check_number(connections_max_reauth_ms, "connections_max_reauth_ms", 0, INT_MAX)
        self.security = None if security is None else _checked_security(security)
        self.users = Users({} if security is None else security.users)
        """The users of PLAIN and SCRAM: `users.set_password("alice", "new")`."""
        self.connections_max_reauth_ms = connections_max_reauth_ms
        """How long sessions last that begin from now on; 0 without an end."""
        self.sessions: WeakSet[Session] = WeakSet()
        """Those of all connections."""
        self.brokers = {broker.id: broker for broker in _brokers(brokers, racks)}
        self.profile = profile_named(profile)
        self.limit_versions(self.profile.limits(self.api_versions))
        self.cluster_id = cluster_id
        self.default_partition_count = default_partition_count
        self.min_insync_replicas = min_insync_replicas
        self.auto_create_topics = auto_create_topics
        self.has_rack_aware_reads = bool(racks)
        self.topics: dict[str, Topic] = {}
        self.run_number = 0
        """How often the storage was used before; topic ids and producer ids have it in them."""
        self.storage = Storage() if storage is None else storage
        self.faults = Faults()
        self.timers = TimingWheel(now_ms)
        self.purgatory = Purgatory(self.timers)
        self.turns = Turns()
        self.alive = set(self.brokers)
        self.replication = Replication(
            self.alive,
            self.timers,
            self.purgatory,
            delay_ms=replication_delay_ms,
            on_leader=self._on_leader,
        )
        self._epoch_ms = epoch_ms
        self._now_ms = now_ms
        self.groups = self._new_groups(group_settings)
        self.transactions = self._new_transactions(transaction_settings)
        self._next_producer_id = 0
        self._topic_count = 0
        self._cleaner_timer: Timer | None = None
        self._moved_coordinators: dict[tuple[int, str], int] = {}
        self.timers.add(now_ms + RETENTION_CHECK_MS, self._retain)

    def _new_groups(self, settings: GroupSettings | None) -> GroupRegistry:
        if settings is not None and not isinstance(settings, GroupSettings):
            raise UsageError(f"group_settings is {shown_argument(settings)}")
        return GroupRegistry(
            settings or GroupSettings(),
            self.timers,
            self._offsets_topic,
            self.storage,
            on_append=self.replication.on_append,
            epoch_ms=self._epoch_ms,
        )

    def _new_transactions(self, settings: TransactionSettings | None) -> TransactionCoordinator:
        if settings is not None and not isinstance(settings, TransactionSettings):
            raise UsageError(f"transaction_settings is {shown_argument(settings)}")
        return TransactionCoordinator(
            settings or TransactionSettings(),
            self.timers,
            self.groups,
            state_topic=self._state_topic,
            find_partition=self._find_partition,
            new_producer_id=self.new_producer_id,
            on_append=self.replication.on_append,
            epoch_ms=self._epoch_ms,
        )

    # Time.

    @property
    def now_ms(self) -> int:
        """The latest time that `advance` was given, in ms."""
        return self._now_ms

    @property
    def wall_ms(self) -> int:
        """The time that goes into records, in ms since 1970."""
        return self._epoch_ms + self._now_ms

    def advance(self, now_ms: int) -> None:
        """Let everything happen that is due by `now_ms`. A time before the last one is that one."""
        self._now_ms = max(self._now_ms, now_ms)
        self.timers.advance(self._now_ms)

    def next_deadline_ms(self) -> int | None:
        """When `advance` is worth calling next; None when only requests can change anything."""
        return self.timers.next_deadline_ms()

    # Versions.

    def versions(self, broker_id: int) -> dict[ApiKey, VersionRange]:
        """The API versions in a broker's response."""
        spoken = dict(self.api_versions)
        if self.transactions.settings.unstable_api_versions_enable:
            for key, unstable in self.unstable_versions.items():
                spoken[key] = spoken[key][0], unstable
        for key, limits in self.brokers[broker_id].versions.items():
            if limits is None:
                spoken.pop(key, None)
            elif key in spoken:
                low, high = spoken[key]
                spoken[key] = max(low, limits[0]), min(high, limits[1])
        return dict(sorted(spoken.items()))

    def limit_versions(
        self, limits: Mapping[ApiKey, VersionRange | None], *, broker_id: int | None = None
    ) -> None:
        """Have a broker, or all, pretend to be older; None for an API that it shall lack.

        Raises:
            UsageError: there is no such broker.
        """
        for broker in self._chosen(broker_id):
            broker.versions.update(limits)

    # Topics.

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        replication_factor: int | None = None,
        assignments: Sequence[Sequence[int]] | None = None,
        config: Mapping[str, str] | None = None,
        topic_id: UUID | None = None,
    ) -> Topic:
        """Make a topic; its partitions and replicas go round the brokers.

        `topic_id` is that of a topic that was kept; None makes a new one.

        Raises:
            UsageError: the name is not valid or taken, there are too few brokers, a replica is
                on a broker that there is not, or a setting that must be a number is none.
        """
        if name in self.topics or not is_valid_name(name):
            raise UsageError(f"the topic {name!r} exists, or its name is not valid")
        if assignments is None:
            count = self.default_partition_count if partitions is None else partitions
            assignments = self.spread(count, replication_factor)
        for broker_id in {replica for replicas in assignments for replica in replicas}:
            self._broker(broker_id)
        if topic_id is None:
            self._topic_count += 1
            number = (self.run_number << RUN_SHIFT) + self._topic_count
            topic_id = UUID(int=(_id_base(self.cluster_id) << 64) + number)
        try:
            topic = Topic(name, topic_id, assignments, config=config or {}, storage=self.storage)
        except ValueError as error:
            raise UsageError(f"the topic {name!r} cannot have these settings: {error}") from error
        self.topics[name] = topic
        self._lead(topic.partitions)
        self.watch_compaction()
        return topic

    def add_partitions(self, name: str, count: int) -> None:
        """Have a topic grow to `count` partitions, as widely replicated as those it has.

        Raises:
            UsageError: the topic is not there, or has as many.
        """
        topic = self.topics.get(name)
        if topic is None or count <= len(topic.partitions):
            raise UsageError(f"there is no topic {name!r} with fewer than {count} partitions")
        spread = self.spread(count, len(topic.partitions[0].replicas))
        self._lead(topic.grow(spread[len(topic.partitions) :]))

    def _lead(self, partitions: Iterable[Partition]) -> None:
        """Have new partitions led by brokers that run, and in sync on no other."""
        for partition in partitions:
            for broker_id in partition.replicas:
                if broker_id not in self.alive:
                    self.replication.on_stopped(partition, broker_id, self._now_ms)

    def spread(self, partition_count: int, replication_factor: int | None) -> list[list[int]]:
        """The replicas of so many partitions; None for as many as there can be, up to three.

        As with Kafka's controller those that are stopped get one only where too few others are.

        Raises:
            UsageError: there are fewer brokers than replicas.
        """
        ids = list(self.brokers)
        if replication_factor is None:
            replication_factor = min(DEFAULT_REPLICATION_FACTOR, len(ids))
        if not 1 <= replication_factor <= len(ids) or partition_count < 1:
            raise UsageError(
                f"{partition_count} partitions with {replication_factor} replicas cannot be on "
                f"{len(ids)} brokers"
            )
        spread = []
        for number in range(partition_count):
            first = number % len(ids)
            in_turn = ids[first:] + ids[:first]
            in_turn.sort(key=lambda broker_id: broker_id not in self.alive)
            spread.append(in_turn[:replication_factor])
        return spread

    def watch_compaction(self) -> None:
        """Have the cleaner run while a topic is compacted; Kafka's own topics can wait."""
        is_wanted = any(
            topic.is_compacted and not topic.is_internal for topic in self.topics.values()
        )
        if is_wanted and self._cleaner_timer is None:
            self._cleaner_timer = self.timers.add(
                self._now_ms + CLEANER_BACKOFF_MS, lambda _: self._run_cleaner()
            )

    def _run_cleaner(self) -> None:
        self._cleaner_timer = None
        self.clean_logs()
        self.watch_compaction()

    def clean_logs(self) -> None:
        """Have the cleaner look now for compacted logs that are dirty, and clean them."""
        for partition in self._partitions():
            if partition.leader_id != NO_LEADER:
                partition.log.compact(self.wall_ms)

    def delete_topic(self, name: str) -> None:
        """Lose a topic with its records. Raises `UsageError` if it is not there."""
        topic = self.topics.pop(name, None)
        if topic is None:
            raise UsageError(f"there is no topic {name!r}")
        for partition in topic.partitions:
            partition.leader_id = NO_LEADER
            self.purgatory.check(partition.name, self._now_ms)
        self.storage.on_topic_deleted(name, len(topic.partitions))
        self.groups.on_topic_deleted(name, self._now_ms)
        self.transactions.on_topic_deleted(self._now_ms)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """The topic with this id."""
        return next((t for t in self.topics.values() if t.topic_id == topic_id), None)

    def partition(self, name: TopicPartition) -> Partition:
        """A partition. Raises `UsageError` if it is not there."""
        partition = self._find_partition(name)
        if partition is None:
            raise UsageError(f"there is no partition {name}")
        return partition

    # The contents, for a test's assertions.

    def records(
        self, topic: str, *, isolation_level: str = "read_uncommitted"
    ) -> list[ConsumerRecord[bytes, bytes]]:
        """Return the records of a topic that a consumer can read, partition by partition.

        `isolation_level` is a consumer's: "read_committed" leaves out transactions that are open or
        were aborted.

        Raises:
            UsageError: there is no such topic, or no such level.
        """
        if isolation_level not in ISOLATION_LEVELS:
            raise UsageError(
                f"records: isolation_level is {shown_argument(isolation_level)}; give one of "
                f"{', '.join(ISOLATION_LEVELS)}"
            )
        found = self.topics.get(topic) if isinstance(topic, str) else None
        if found is None:
            raise UsageError(
                f"records: there is no topic {shown_argument(topic)}; there are "
                f"{', '.join(map(repr, sorted(self.topics))) or 'none'}. A topic is there once it "
                f"was created, or the first record was sent to it"
            )
        is_committed = isolation_level == "read_committed"
        return [
            record
            for partition in found.partitions
            for record in visible_records(partition, is_committed=is_committed)
        ]

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that a group has committed; none for a group that is not there."""
        if not isinstance(group, str):
            raise UsageError(f"committed: group is {shown_argument(group)}; give its name")
        return {
            partition: OffsetAndMetadata(
                each.offset, each.metadata, each.leader_epoch if each.leader_epoch >= 0 else None
            )
            for partition, each in self.groups.committed(group).items()
        }

    def _find_partition(self, name: TopicPartition) -> Partition | None:
        topic = self.topics.get(name.topic)
        if topic is None or not 0 <= name.partition < len(topic.partitions):
            return None
        return topic.partitions[name.partition]

    # Brokers and replicas, at a test's command.

    def move_leader(self, name: TopicPartition, broker_id: int | None = None) -> None:
        """Have another replica lead; None for the next that is in sync.

        Raises:
            UsageError: the partition is not there, or that broker cannot lead it.
        """
        self.replication.move_leader(self.partition(name), broker_id, self._now_ms)

    def shrink_isr(self, name: TopicPartition, broker_id: int) -> None:
        """Take a follower out of the in-sync replicas until it copies again.

        Raises:
            UsageError: the partition is not there, or that broker leads it.
        """
        self.replication.shrink_isr(self.partition(name), broker_id, self._now_ms)

    def stall_replicas(self, broker_id: int) -> None:
        """Have its followers copy nothing until `resume_replicas`. Raises `UsageError`."""
        self._broker(broker_id)
        self.replication.stall(broker_id)

    def resume_replicas(self, broker_id: int) -> None:
        """Have this broker's followers copy again, and catch up at once."""
        self.replication.resume(broker_id)
        for partition in self._partitions():
            self.replication.copy(partition, self._now_ms)

    def stop_broker(self, broker_id: int) -> None:
        """Stop a broker: its connections close, others lead; its log stays. Raises `UsageError`."""
        broker = self._broker(broker_id)
        if not broker.is_alive:
            raise UsageError(f"broker {broker_id} does not run")
        broker.is_alive = False
        self.alive.discard(broker_id)
        broker.fetch_sessions.clear()
        for close in list(broker.connections.values()):
            close()
        for partition in self._partitions():
            if broker_id in partition.replicas:
                self.replication.on_stopped(partition, broker_id, self._now_ms)

    def start_broker(self, broker_id: int) -> None:
        """Start a broker that was stopped. Raises `UsageError` when it runs, or there is none."""
        broker = self._broker(broker_id)
        if broker.is_alive:
            raise UsageError(f"broker {broker_id} runs")
        broker.is_alive = True
        self.alive.add(broker_id)
        for partition in self._partitions():
            if broker_id in partition.replicas:
                self.replication.on_started(partition, broker_id, self._now_ms)

    @property
    def controller_id(self) -> int:
        """The broker that is named to clients as the controller; -1 when none runs."""
        return min(self.alive, default=-1)

    def expire_sessions(self) -> None:
        """Have the sessions of all authenticated clients end now.

        A broker closes the connection at the next request, which it does not serve, unless that
        begins another authentication (KIP-368).
        """
        for session in self.sessions:
            if session.authentication is not None:
                session.authentication.expire(self.now_ms)

    # Coordinators and producer ids.

    def coordinator(self, key_type: int, key: str) -> Broker | None:
        """The coordinator of a group (0), a transactional id (1) or a share group (2)."""
        if key_type == GROUP_KEY:
            return self.brokers.get(self.groups.partition(key).leader_id)
        if key_type == TRANSACTION_KEY:
            return self.brokers.get(self.transactions.partition(key).leader_id)
        moved = self._moved_coordinators.get((key_type, key))
        if moved in self.alive:
            return self.brokers[moved]
        alive = sorted(self.alive)
        return self.brokers[alive[crc32(key.encode()) % len(alive)]] if alive else None

    def move_coordinator(self, key_type: int, key: str, broker_id: int) -> None:
        """Have another broker coordinate this group or transactional id.

        All others of the same partition of Kafka's own topic go with it.

        Raises:
            UsageError: the broker has no replica of that partition, or does not run.
        """
        if key_type == GROUP_KEY:
            self.move_leader(self.groups.partition(key).name, broker_id)
            return
        if key_type == TRANSACTION_KEY:
            self.move_leader(self.transactions.partition(key).name, broker_id)
            return
        if broker_id not in self.alive:
            raise UsageError(f"broker {broker_id} cannot coordinate {key!r}: it does not run")
        self._moved_coordinators[key_type, key] = broker_id

    def new_producer_id(self) -> int:
        """A producer id that is not in use."""
        self._next_producer_id += 1
        return (self.run_number << RUN_SHIFT) + self._next_producer_id

    def stall_markers(self) -> None:
        """Have transactions that end get no markers until `resume_markers`."""
        self.transactions.stall_markers()

    def resume_markers(self) -> None:
        """Have all the markers written that were held back, and later ones at once."""
        self.transactions.resume_markers(self._now_ms)

    # Groups, at a test's command.

    def group(self, name: str) -> GroupSnapshot:
        """A group as it is now. Raises `UsageError` if there is none."""
        snapshot = self.groups.snapshot(name)
        if snapshot is None:
            raise UsageError(f"there is no group {name!r}")
        return snapshot

    def expire_member(self, name: str, member_id: str) -> None:
        """Act as if a member's session had timed out. Raises `UsageError` if there is no such."""
        group = self.groups.find(name)
        if group is None or not group.expire_member(member_id, self._now_ms):
            raise UsageError(f"there is no member {member_id!r} in a group {name!r}")

    def _offsets_topic(self) -> Topic:
        topic = self.topics.get(OFFSETS_TOPIC)
        if topic is None:
            partition_count = self.groups.settings.offsets_topic_num_partitions
            topic = self.create_topic(OFFSETS_TOPIC, partition_count, config=COMPACTED)
        return topic

    def load_coordinators(self) -> list[str]:
        """Have what coordinators wrote in an earlier run; the groups with offsets in transactions.

        No effect where there was none.
        """
        groups: list[str] = []
        if OFFSETS_TOPIC in self.topics:
            groups = self.groups.load(self._now_ms)
        if STATE_TOPIC in self.topics:
            self.transactions.load(self._now_ms)
        return groups

    def _state_topic(self) -> Topic:
        topic = self.topics.get(STATE_TOPIC)
        if topic is None:
            partition_count = self.transactions.settings.transaction_state_log_num_partitions
            topic = self.create_topic(STATE_TOPIC, partition_count, config=COMPACTED)
        return topic

    def _on_leader(self, partition: Partition, now_ms: int) -> None:
        self.groups.on_leader(partition, now_ms)
        self.transactions.on_leader(partition, now_ms)

    def _chosen(self, broker_id: int | None) -> Iterable[Broker]:
        return self.brokers.values() if broker_id is None else [self._broker(broker_id)]

    def _broker(self, broker_id: int) -> Broker:
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise UsageError(f"there is no broker {broker_id}: there are {len(self.brokers)}")
        return broker

    def _partitions(self) -> list[Partition]:
        return [partition for topic in self.topics.values() for partition in topic.partitions]

    def _retain(self, now_ms: int) -> None:
        """Lose what is too old: records, producers, transactional ids, offsets."""
        wall_ms = self._epoch_ms + now_ms
        expiration_ms = self.transactions.settings.producer_id_expiration_ms
        for partition in self._partitions():
            partition.log.retain(wall_ms)
            partition.log.producers.expire(wall_ms - expiration_ms)
        self.clean_logs()
        self.transactions.expire(now_ms)
        self.groups.expire(now_ms)
        self.timers.add(now_ms + RETENTION_CHECK_MS, self._retain)


def _brokers(count: int, racks: Sequence[str]) -> Iterator[Broker]:
    names = value_list(racks, "racks", "the name of a rack")
    if names and len(names) != count:
        raise UsageError(f"{count} brokers need as many racks, or none, not {len(names)}")
    for number in range(count):
        rack = names[number] if names else None
        yield Broker(number, "localhost", FIRST_PORT + number, rack)


def _checked_security(security: ClusterSecurity) -> ClusterSecurity:
    """Return it, unless it has what fake brokers have not. Raises `UsageError`."""
    if not isinstance(security, ClusterSecurity):
        raise UsageError(f"security is {shown_argument(security)}; give a ClusterSecurity")
    if security.acls is not None or security.super_users:
        raise UsageError("fake brokers have no ACLs; leave out acls, or use KafkaCluster")
    if security.jwks_url is not None:
        raise UsageError(
            "fake brokers verify no signature of tokens; leave out jwks_url, or use KafkaCluster"
        )
    unknown = [name for name in security.mechanisms if name not in EXCHANGES]
    if unknown and any(listener.has_sasl for listener in security.client_listeners):
        raise UsageError(
            f"fake brokers have not {', '.join(unknown)}; give some of {', '.join(EXCHANGES)} as "
            "mechanisms, or use KafkaCluster"
        )
    return security


def new_cluster_id() -> str:
    """Return an id that no other cluster has."""
    return f"fake-{uuid4().hex[:17]}"


def _id_base(cluster_id: str) -> int:
    """Return the upper half of a cluster's topic ids: two clusters have none in common."""
    return int.from_bytes(sha256(cluster_id.encode()).digest()[:8], "big")
