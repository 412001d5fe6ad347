"""State of a fake cluster: brokers, topics and replicas, groups, transactions, time.

Tests and request handlers change it here; `cluster` takes the requests.

Owner: the caller; one thread at a time.
Source: Java class ``ReplicaManager``; the control functions follow kfake.
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
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.cluster.security import ClusterSecurity
from pykclient.testing.fake.contents import visible_records
from pykclient.testing.fake.faults import Faults
from pykclient.testing.fake.fetch_sessions import FetchSessions
from pykclient.testing.fake.groups.group import GROUP_VERSION_MAX, GroupSettings
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
"""Key type of a group in FindCoordinator."""
TRANSACTION_KEY = 1
"""Key type of a transactional id in FindCoordinator."""
RUN_SHIFT = 32
CLEANER_BACKOFF_MS = 15_000
"""Interval between the cleaner's checks for dirty logs: Kafka's ``log.cleaner.backoff.ms``."""
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(100 * 1024 * 1024)}
"""Settings of Kafka's internal topics."""
ISOLATION_LEVELS = ("read_uncommitted", "read_committed")
SMALLEST_EPOCH_MS = 1_700_000_000_000
"""Default wall clock at time 0: a day in 2023, because records with timestamp 0 look odd."""

VersionRange = tuple[int, int]


@dataclass(slots=True, eq=False)
class Broker:
    """A broker: its address, and the state it loses when it stops."""

    id: int
    host: str
    port: int
    rack: str | None = None
    is_alive: bool = True
    fetch_sessions: FetchSessions = field(default_factory=FetchSessions)
    connections: dict[object, Callable[[], None]] = field(default_factory=dict)
    """Open connections, oldest first, each with the function that closes it."""
    versions: dict[ApiKey, VersionRange | None] = field(default_factory=dict)
    """Overrides of the API versions it announces; None removes the API."""
    listeners: dict[str, Address] = field(default_factory=dict)
    """Addresses of all named listeners; `host` and `port` are those of the first."""

    def address(self, listener: str | None) -> Address:
        """Return the address that clients of a listener connect to."""
        found = None if listener is None else self.listeners.get(listener)
        return Address(self.host, self.port) if found is None else found


class ClusterState:
    """The state of a cluster with broker ids from 0; `FakeCluster` documents the arguments."""

    api_versions: ClassVar[Mapping[ApiKey, VersionRange]] = {}
    """API versions of a broker without overrides."""
    unstable_versions: ClassVar[Mapping[ApiKey, int]] = {}
    """Highest unstable versions, announced only if the settings enable them."""

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
        """Users of PLAIN and SCRAM; change a password with `users.set_password("alice", "new")`."""
        self.connections_max_reauth_ms = connections_max_reauth_ms
        """Lifetime of new authenticated sessions in ms; 0 for no limit."""
        self.sessions: WeakSet[Session] = WeakSet()
        """Sessions of all connections."""
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
        """Number of earlier runs of the storage; part of topic ids and producer ids."""
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
        self.group_version = self.groups.settings.group_version
        """Level of Kafka's feature ``group.version``."""
        self.features_epoch = 0
        """Number of changes of a feature."""
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
        """Latest time passed to `advance`, in ms."""
        return self._now_ms

    @property
    def wall_ms(self) -> int:
        """Wall clock used for records, in ms since 1970."""
        return self._epoch_ms + self._now_ms

    def advance(self, now_ms: int) -> None:
        """Advance the clock to `now_ms` and fire all timers due by then; time never goes back."""
        self._now_ms = max(self._now_ms, now_ms)
        self.timers.advance(self._now_ms)

    def next_deadline_ms(self) -> int | None:
        """Return when `advance` is next needed; None if only requests can change anything."""
        return self.timers.next_deadline_ms()

    # Versions.

    def versions(self, broker_id: int) -> dict[ApiKey, VersionRange]:
        """Return the API versions that a broker announces."""
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
        """Limit the API versions of one broker, or of all; None removes an API.

        Raises:
            UsageError: the broker does not exist.
        """
        for broker in self._chosen(broker_id):
            broker.versions.update(limits)

    def set_group_version(self, level: int) -> None:
        """Switch Kafka's feature ``group.version`` in the whole cluster, as kafka-features.sh does.

        Level 1 supports groups of KIP-848. With level 0, brokers respond to their members with
        UNSUPPORTED_VERSION, and keep each until its session expires.

        Raises:
            UsageError: the level is out of range.
        """
        check_number(level, "level", 0, GROUP_VERSION_MAX)
        self.group_version = level
        self.features_epoch += 1

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
        """Create a topic and spread its partitions and replicas over the brokers.

        `topic_id` is the id of a topic restored from storage; None generates one.

        Raises:
            UsageError: the name is invalid or in use, there are too few brokers, a broker does not
                exist, or a numeric setting is not a number.
        """
        if name in self.topics or not is_valid_name(name):
            raise UsageError(f"the topic {name!r} exists already, or its name is invalid")
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
            raise UsageError(f"invalid settings for topic {name!r}: {error}") from error
        self.topics[name] = topic
        self._lead(topic.partitions)
        self.watch_compaction()
        return topic

    def add_partitions(self, name: str, count: int) -> None:
        """Increase a topic's number of partitions to `count`, with the same replication factor.

        Raises:
            UsageError: the topic does not exist, or has as many partitions already.
        """
        topic = self.topics.get(name)
        if topic is None or count <= len(topic.partitions):
            raise UsageError(f"there is no topic {name!r} with fewer than {count} partitions")
        spread = self.spread(count, len(topic.partitions[0].replicas))
        self._lead(topic.grow(spread[len(topic.partitions) :]))

    def _lead(self, partitions: Iterable[Partition]) -> None:
        """Take stopped brokers out of leadership and ISR of new partitions."""
        for partition in partitions:
            for broker_id in partition.replicas:
                if broker_id not in self.alive:
                    self.replication.on_stopped(partition, broker_id, self._now_ms)

    def spread(self, partition_count: int, replication_factor: int | None) -> list[list[int]]:
        """Assign replicas to partitions; a replication factor of None means up to three.

        Like Kafka's controller, it uses stopped brokers only if too few others run.

        Raises:
            UsageError: there are fewer brokers than replicas.
        """
        ids = list(self.brokers)
        if replication_factor is None:
            replication_factor = min(DEFAULT_REPLICATION_FACTOR, len(ids))
        if not 1 <= replication_factor <= len(ids) or partition_count < 1:
            raise UsageError(
                f"{partition_count} partitions with {replication_factor} replicas do not fit on "
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
        """Schedule the cleaner if a user's topic is compacted; internal topics can wait."""
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
        """Run the cleaner now on all compacted logs that are dirty."""
        for partition in self._partitions():
            if partition.leader_id != NO_LEADER:
                partition.log.compact(self.wall_ms)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records. Raises `UsageError` if it does not exist."""
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
        """Return the topic with this id, or None."""
        return next((t for t in self.topics.values() if t.topic_id == topic_id), None)

    def partition(self, name: TopicPartition) -> Partition:
        """Return a partition. Raises `UsageError` if it does not exist."""
        partition = self._find_partition(name)
        if partition is None:
            raise UsageError(f"there is no partition {name}")
        return partition

    # Contents, for a test's assertions.

    def records(
        self, topic: str, *, isolation_level: str = "read_uncommitted"
    ) -> list[ConsumerRecord[bytes, bytes]]:
        """Return the records of a topic that a consumer can read, partition by partition.

        `isolation_level` is that of a consumer: "read_committed" leaves out open and aborted
        transactions.

        Raises:
            UsageError: the topic or the level does not exist.
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
                f"{', '.join(map(repr, sorted(self.topics))) or 'none'}. A topic exists once it "
                f"is created, or once the first record is sent to it"
            )
        is_committed = isolation_level == "read_committed"
        return [
            record
            for partition in found.partitions
            for record in visible_records(partition, is_committed=is_committed)
        ]

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that a group has committed; empty if the group does not exist."""
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

    # Brokers and replicas, controlled by the test.

    def move_leader(self, name: TopicPartition, broker_id: int | None = None) -> None:
        """Make another replica the leader; None picks the next one in sync.

        Raises:
            UsageError: the partition does not exist, or the broker cannot lead it.
        """
        self.replication.move_leader(self.partition(name), broker_id, self._now_ms)

    def shrink_isr(self, name: TopicPartition, broker_id: int) -> None:
        """Remove a follower from the ISR until it copies again.

        Raises:
            UsageError: the partition does not exist, or the broker leads it.
        """
        self.replication.shrink_isr(self.partition(name), broker_id, self._now_ms)

    def stall_replicas(self, broker_id: int) -> None:
        """Stop the copying of a broker's followers until `resume_replicas`. Raises `UsageError`."""
        self._broker(broker_id)
        self.replication.stall(broker_id)

    def resume_replicas(self, broker_id: int) -> None:
        """Allow a broker's followers to copy again; they catch up at once."""
        self.replication.resume(broker_id)
        for partition in self._partitions():
            self.replication.copy(partition, self._now_ms)

    def stop_broker(self, broker_id: int) -> None:
        """Stop a broker: close its connections and move its leaderships; logs stay.

        Raises:
            UsageError: the broker does not exist, or does not run.
        """
        broker = self._broker(broker_id)
        if not broker.is_alive:
            raise UsageError(f"broker {broker_id} is not running")
        broker.is_alive = False
        self.alive.discard(broker_id)
        broker.fetch_sessions.clear()
        for close in list(broker.connections.values()):
            close()
        for partition in self._partitions():
            if broker_id in partition.replicas:
                self.replication.on_stopped(partition, broker_id, self._now_ms)

    def start_broker(self, broker_id: int) -> None:
        """Start a stopped broker. Raises `UsageError` if it runs or does not exist."""
        broker = self._broker(broker_id)
        if broker.is_alive:
            raise UsageError(f"broker {broker_id} is already running")
        broker.is_alive = True
        self.alive.add(broker_id)
        for partition in self._partitions():
            if broker_id in partition.replicas:
                self.replication.on_started(partition, broker_id, self._now_ms)

    @property
    def controller_id(self) -> int:
        """Id of the broker that clients see as controller; -1 if none runs."""
        return min(self.alive, default=-1)

    def expire_sessions(self) -> None:
        """Expire the sessions of all authenticated clients now.

        At the next request a broker closes the connection without serving it, unless the request
        begins a re-authentication (KIP-368).
        """
        for session in self.sessions:
            if session.authentication is not None:
                session.authentication.expire(self.now_ms)

    # Coordinators and producer ids.

    def coordinator(self, key_type: int, key: str) -> Broker | None:
        """Return the coordinator of a group (0), a transactional id (1) or a share group (2)."""
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
        """Move a group's or transactional id's coordinator to another broker.

        All keys in the same partition of the internal topic move with it.

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
            raise UsageError(f"broker {broker_id} cannot coordinate {key!r}: it is not running")
        self._moved_coordinators[key_type, key] = broker_id

    def new_producer_id(self) -> int:
        """Return an unused producer id."""
        self._next_producer_id += 1
        return (self.run_number << RUN_SHIFT) + self._next_producer_id

    def stall_markers(self) -> None:
        """Delay the markers of transactions that end until `resume_markers`."""
        self.transactions.stall_markers()

    def resume_markers(self) -> None:
        """Write all delayed markers, and write later ones at once."""
        self.transactions.resume_markers(self._now_ms)

    # Groups, controlled by the test.

    def group(self, name: str) -> GroupSnapshot:
        """Return a group's current state. Raises `UsageError` if the group does not exist."""
        snapshot = self.groups.snapshot(name)
        if snapshot is None:
            raise UsageError(f"there is no group {name!r}")
        return snapshot

    def expire_member(self, name: str, member_id: str) -> None:
        """Expire a member's session now. Raises `UsageError` if the member does not exist."""
        group = self.groups.find(name)
        if group is None or not group.expire_member(member_id, self._now_ms):
            raise UsageError(f"there is no member {member_id!r} in group {name!r}")

    def _offsets_topic(self) -> Topic:
        topic = self.topics.get(OFFSETS_TOPIC)
        if topic is None:
            partition_count = self.groups.settings.offsets_topic_num_partitions
            topic = self.create_topic(OFFSETS_TOPIC, partition_count, config=COMPACTED)
        return topic

    def load_coordinators(self) -> list[str]:
        """Load what coordinators wrote in an earlier run, if anything.

        Returns the groups that have offsets in transactions.
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
        leader_id = partition.leader_id
        has_kip848 = leader_id != NO_LEADER and ApiKey.CONSUMER_GROUP_HEARTBEAT in self.versions(
            leader_id
        )
        self.groups.on_leader(partition, now_ms, has_kip848=has_kip848)
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
        """Remove expired records, producers, transactional ids and offsets."""
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
        raise UsageError(f"racks has {len(names)} names for {count} brokers; name one for each")
    for number in range(count):
        rack = names[number] if names else None
        yield Broker(number, "localhost", FIRST_PORT + number, rack)


def _checked_security(security: ClusterSecurity) -> ClusterSecurity:
    """Return `security` if fake brokers support all of it. Raises `UsageError` otherwise."""
    if not isinstance(security, ClusterSecurity):
        raise UsageError(f"security is {shown_argument(security)}; give a ClusterSecurity")
    if security.acls is not None or security.super_users:
        raise UsageError("fake brokers have no ACLs; leave out acls, or use KafkaCluster")
    if security.jwks_url is not None:
        raise UsageError(
            "fake brokers verify no token signatures; leave out jwks_url, or use KafkaCluster"
        )
    unknown = [name for name in security.mechanisms if name not in EXCHANGES]
    if unknown and any(listener.has_sasl for listener in security.client_listeners):
        raise UsageError(
            f"fake brokers do not support {', '.join(unknown)}; use mechanisms among "
            f"{', '.join(EXCHANGES)}, or use KafkaCluster"
        )
    return security


def new_cluster_id() -> str:
    """Return a new, unique cluster id."""
    return f"fake-{uuid4().hex[:17]}"


def _id_base(cluster_id: str) -> int:
    """Return the upper half of a cluster's topic ids, so that clusters share no ids."""
    return int.from_bytes(sha256(cluster_id.encode()).digest()[:8], "big")
