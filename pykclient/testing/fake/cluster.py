"""FakeCluster: Kafka brokers in the process, sans-IO.

It gets requests and the time, and gives answers; some at once, some when something has happened or
a time has come. It has no thread, no socket and no clock: `advance` tells it the time, and
`next_deadline_ms` says when that is worth while. It shares messages and records with the client and
none of its state machines, so that one mistake cannot hide in both.

Owner: whoever calls; one thread at a time.
Source: Java classes ``KafkaApis``, ``ReplicaManager``; the shape of control functions is kfake's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID
from zlib import crc32

from pykclient.arguments import check_number, shown_argument, value_list
from pykclient.config.setting import INT_MAX
from pykclient.errors.base import DecodeError, UnsupportedVersionError, UsageError
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.message import RequestHeader, decode_request, decode_request_header
from pykclient.testing.fake.call import Call, CallState
from pykclient.testing.fake.connection import Turns
from pykclient.testing.fake.faults import Fault, Faults
from pykclient.testing.fake.fetch_sessions import FetchSessions
from pykclient.testing.fake.groups.group import GroupSettings
from pykclient.testing.fake.groups.registry import OFFSETS_TOPIC, GroupRegistry
from pykclient.testing.fake.handlers import HANDLERS
from pykclient.testing.fake.handlers.api_versions import answer_unsupported
from pykclient.testing.fake.replication import Replication
from pykclient.testing.fake.timers import Purgatory, TimingWheel
from pykclient.testing.fake.topics import NO_LEADER, Partition, Topic, is_valid_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pykclient.protocol.message import Request
    from pykclient.testing.fake.connection import FakeConnection
    from pykclient.testing.fake.groups.group import GroupSnapshot
    from pykclient.types import TopicPartition

__all__ = ["Broker", "FakeCluster"]

CLUSTER_ID = "pykclient-fake-cluster"
FIRST_PORT = 9092
BROKER_COUNT_MAX = 100
PARTITION_COUNT_MAX = 10_000
RETENTION_CHECK_MS = 300_000
DEFAULT_REPLICATION_FACTOR = 3
GROUP_KEY = 0
"""What FindCoordinator calls a group."""
SMALLEST_EPOCH_MS = 1_700_000_000_000
"""The wall clock at time 0, unless told: some day of 2023, since records with time 0 are odd."""

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
    connections: dict[FakeConnection, None] = field(default_factory=dict)
    """Those that are open, in the order in which they came."""
    versions: dict[ApiKey, VersionRange | None] = field(default_factory=dict)
    """What it pretends to speak; None for an API that it does not know."""


class FakeCluster:
    """Brokers with ids from 0.

    `replication_delay_ms` is how long followers take to copy; 0 means they have everything at once.
    `min_insync_replicas` and `default_partition_count` are for topics that do not say. With `racks`
    (one for each broker) consumers are sent to followers in their own (KIP-392). `group_settings`
    None means the defaults. `epoch_ms` is the wall clock at time 0.

    There are no quotas, no security, no compaction and no coordinator of transactions. Groups and
    offsets never expire, and a group changes between the classic protocol and that of KIP-848 only
    while it has no members.
    """

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
        epoch_ms: int = SMALLEST_EPOCH_MS,
        now_ms: int = 0,
    ) -> None:
        check_number(brokers, "brokers", 1, BROKER_COUNT_MAX)
        check_number(default_partition_count, "default_partition_count", 1, PARTITION_COUNT_MAX)
        check_number(min_insync_replicas, "min_insync_replicas", 1, BROKER_COUNT_MAX)
        check_number(replication_delay_ms, "replication_delay_ms", 0, INT_MAX)
        rack_names = value_list(racks, "racks", "the name of a rack")
        if rack_names and len(rack_names) != brokers:
            raise UsageError(
                f"{brokers} brokers need as many racks, or none, not {len(rack_names)}"
            )
        if group_settings is not None and not isinstance(group_settings, GroupSettings):
            raise UsageError(f"group_settings is {shown_argument(group_settings)}")
        self.brokers = {
            number: Broker(
                number, "localhost", FIRST_PORT + number, rack_names[number] if rack_names else None
            )
            for number in range(brokers)
        }
        self.cluster_id = CLUSTER_ID
        self.default_partition_count = default_partition_count
        self.min_insync_replicas = min_insync_replicas
        self.auto_create_topics = auto_create_topics
        self.has_rack_aware_reads = bool(racks)
        self.topics: dict[str, Topic] = {}
        self.faults = Faults()
        self.timers = TimingWheel(now_ms)
        self.purgatory = Purgatory(self.timers)
        self.turns = Turns()
        self.alive = set(self.brokers)
        self.groups = GroupRegistry(
            group_settings or GroupSettings(), self.timers, self._offsets_topic
        )
        self.replication = Replication(
            self.alive,
            self.timers,
            self.purgatory,
            delay_ms=replication_delay_ms,
            on_leader=self.groups.on_leader,
        )
        self.transactional_ids: dict[str, tuple[int, int]] = {}
        """Transactional id -> producer id and epoch."""
        self._epoch_ms = epoch_ms
        self._now_ms = now_ms
        self._next_producer_id = 0
        self._topic_count = 0
        self._moved_coordinators: dict[tuple[int, str], int] = {}
        self.timers.add(now_ms + RETENTION_CHECK_MS, self._retain)

    # Time.

    @property
    def now_ms(self) -> int:
        """The latest time that it was told, in ms."""
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

    # Requests.

    def handle(
        self, broker_id: int, frame: bytes | memoryview, now_ms: int, *, client_host: str = "fake"
    ) -> Call:
        """Take a request's frame, without its size; what comes of it is in the `Call`.

        Nothing that a frame may hold raises: what Kafka would not answer closes the connection.
        """
        self.advance(now_ms)
        try:
            header = decode_request_header(frame)
        except DecodeError:
            return self._closed_call(broker_id, now_ms)
        call = Call(broker_id, header, client_host=client_host, timers=self.timers)
        if not self._is_spoken(call):
            if header.api_key == ApiKey.API_VERSIONS:
                answer_unsupported(self, call)
            else:
                call.close(now_ms)
            return call
        try:
            _, request = decode_request(frame)
        except (DecodeError, UnsupportedVersionError):
            call.close(now_ms)
            return call
        self._dispatch(call, request)
        return call

    def ask(
        self,
        broker_id: int,
        request: Request,
        now_ms: int,
        *,
        version: int | None = None,
        client_id: str | None = "test",
    ) -> Call:
        """Take a request that is no bytes yet; `version` None means the newest."""
        self.advance(now_ms)
        api_version = request.max_version if version is None else version
        header = RequestHeader(request.api_key, api_version, 0, client_id)
        call = Call(broker_id, header, client_host="fake", timers=self.timers)
        self._dispatch(call, request)
        return call

    def versions(self, broker_id: int) -> dict[ApiKey, VersionRange]:
        """What a broker says that it speaks."""
        spoken = {key: handler.versions for key, handler in HANDLERS.items()}
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
        """Have a broker, or all, pretend to be older; None for an API that it shall not know.

        Raises:
            UsageError: there is no such broker.
        """
        for broker in self._chosen(broker_id):
            broker.versions.update(limits)

    def _is_spoken(self, call: Call) -> bool:
        try:
            low, high = self.versions(call.broker_id)[ApiKey(call.header.api_key)]
        except (ValueError, KeyError):
            return False
        return low <= call.version <= high

    def _closed_call(self, broker_id: int, now_ms: int) -> Call:
        nothing = RequestHeader(-1, -1, -1, None)
        call = Call(broker_id, nothing, client_host="fake", timers=self.timers)
        call.close(now_ms)
        return call

    def _dispatch(self, call: Call, request: Request) -> None:
        if not self.brokers[call.broker_id].is_alive:
            call.close(self._now_ms)
            return
        handler = HANDLERS[request.api_key]
        fault = self.faults.take(call.broker_id, request.api_key, request)
        if fault is not None and not self._prepare(call, request, fault):
            return
        response = handler.handle(self, call, request)
        if response is not None:
            call.answer(response, self._now_ms)

    def _prepare(self, call: Call, request: Request, fault: Fault) -> bool:
        """Apply what a fault does before the broker acts; whether it shall act."""
        if fault.is_lost:
            call.ending = CallState.SILENT
        elif fault.closes:
            call.ending = CallState.CLOSED
        call.answer_delay_ms = fault.delay_ms
        if fault.acts:
            return True
        if fault.closes:
            call.close(self._now_ms)
        elif fault.response is not None:
            call.answer(fault.response(request), self._now_ms)
        elif fault.error is not None:
            refused = HANDLERS[request.api_key].refuse(self, request, fault.error.code)
            call.answer(refused, self._now_ms)
        else:
            call.silence(self._now_ms)
        return False

    # Topics.

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        replication_factor: int | None = None,
        assignments: Sequence[Sequence[int]] | None = None,
        config: Mapping[str, str] | None = None,
    ) -> Topic:
        """Make a topic; its partitions and replicas go round the brokers.

        Raises:
            UsageError: the name is not valid or taken, there are too few brokers, or a setting
                that must be a number is none.
        """
        if name in self.topics or not is_valid_name(name):
            raise UsageError(f"the topic {name!r} exists, or its name is not valid")
        if assignments is None:
            count = self.default_partition_count if partitions is None else partitions
            assignments = self.spread(count, replication_factor)
        topic_id = UUID(int=(0xFA4E << 64) + self._topic_count + 1)
        try:
            topic = Topic(name, topic_id, assignments, config or {})
        except ValueError as error:
            raise UsageError(f"the topic {name!r} cannot have these settings: {error}") from error
        self._topic_count += 1
        self.topics[name] = topic
        self._lead(topic.partitions)
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
        """Have new partitions led by brokers that run."""
        for partition in partitions:
            if partition.leader_id not in self.alive:
                self.replication.on_stopped(partition, partition.leader_id, self._now_ms)

    def spread(self, partition_count: int, replication_factor: int | None) -> list[list[int]]:
        """The replicas of so many partitions; None for as many as there can be, up to three.

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
        return [
            [ids[(number + place) % len(ids)] for place in range(replication_factor)]
            for number in range(partition_count)
        ]

    def delete_topic(self, name: str) -> None:
        """Lose a topic with its records. Raises `UsageError` if it is not there."""
        topic = self.topics.pop(name, None)
        if topic is None:
            raise UsageError(f"there is no topic {name!r}")
        for partition in topic.partitions:
            partition.leader_id = NO_LEADER
            self.purgatory.check(partition.name, self._now_ms)
        self.groups.on_topic_deleted(name)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """The topic with this id."""
        return next((t for t in self.topics.values() if t.topic_id == topic_id), None)

    def partition(self, name: TopicPartition) -> Partition:
        """A partition. Raises `UsageError` if it is not there."""
        topic = self.topics.get(name.topic)
        if topic is None or not 0 <= name.partition < len(topic.partitions):
            raise UsageError(f"there is no partition {name}")
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
        for connection in list(broker.connections):
            connection.close()
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
        """The broker that clients are told to be the controller; -1 when none runs."""
        return min(self.alive, default=-1)

    # Coordinators and producer ids.

    def coordinator(self, key_type: int, key: str) -> Broker | None:
        """Who coordinates a group (0), a transactional id (1) or a share group (2)."""
        if key_type == GROUP_KEY:
            return self.brokers.get(self.groups.partition(key).leader_id)
        moved = self._moved_coordinators.get((key_type, key))
        if moved in self.alive:
            return self.brokers[moved]
        alive = sorted(self.alive)
        return self.brokers[alive[crc32(key.encode()) % len(alive)]] if alive else None

    def move_coordinator(self, key_type: int, key: str, broker_id: int) -> None:
        """Have another broker coordinate this group or transactional id.

        All groups of the same partition of Kafka's own topic go with a group.

        Raises:
            UsageError: the broker has no replica of that partition, or does not run.
        """
        if key_type == GROUP_KEY:
            self.move_leader(self.groups.partition(key).name, broker_id)
            return
        if broker_id not in self.alive:
            raise UsageError(f"broker {broker_id} cannot coordinate {key!r}: it does not run")
        self._moved_coordinators[key_type, key] = broker_id

    def new_producer_id(self) -> int:
        """A producer id that nobody has."""
        self._next_producer_id += 1
        return self._next_producer_id

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
            topic = self.create_topic(OFFSETS_TOPIC, partition_count)
        return topic

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
        for partition in self._partitions():
            partition.log.retain(self._epoch_ms + now_ms)
        self.timers.add(now_ms + RETENTION_CHECK_MS, self._retain)
