"""A consumer group on a topic under steady load, for scenarios to break.

Owner: the thread of the scenario that created it; a second thread samples committed offsets.
"""

from __future__ import annotations

import tempfile
import threading
import time
import uuid
from contextlib import ExitStack, contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Self

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from pykclient import Admin, NewTopic
from pykclient.errors import KafkaError
from pykclient.testing.cluster.properties import dump_properties
from tests.chaos.chaos_member import ChaosMember
from tests.chaos.invariants import CommittedSample, Invariants
from tests.chaos.load import Load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient import TopicPartition
    from pykclient.testing import KafkaCluster

PARTITION_COUNT = 6
REPLICATION = 3
IN_SYNC_MIN = 2
SESSION_MS = 6_000
"""Kafka's default minimum."""
HEARTBEAT_MS = 500
METADATA_MS = 1_000
REQUEST_TIMEOUT_MS = 5_000
"""Less than a session: the time after which a silent connection is noticed."""
STALL_MS_MAX = SESSION_MS + 5_000
CLOSE_MS_MAX = 31_000
"""`close` may take 30 s; one more second until its event is seen."""
TIMEOUT_S = 60.0
LOOK_S = 0.05
SAMPLE_S = 0.2
SAMPLE_TIMEOUT_S = 2.0
NS_PER_MS = 1_000_000

BROKER_SETTINGS = {
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
    "min.insync.replicas": IN_SYNC_MIN,
    "group.consumer.min.session.timeout.ms": SESSION_MS,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.consumer.heartbeat.interval.ms": HEARTBEAT_MS,
}
"""Broker settings with short timeouts, so that silent brokers and members are soon fenced."""

ASSIGNORS = "org.apache.kafka.clients.consumer."


class GroupKind(Enum):
    """Group protocol and assignor, as the members' options."""

    EAGER = ("classic", "--assignment-strategy", f"{ASSIGNORS}RangeAssignor")
    COOPERATIVE = ("classic", "--assignment-strategy", f"{ASSIGNORS}CooperativeStickyAssignor")
    MODERN = ("consumer",)

    @property
    def options(self) -> tuple[str, ...]:
        return "--group-protocol", *self.value

    @property
    def settings(self) -> dict[str, int]:
        """Settings that have no command line option."""
        heartbeat = {} if self is GroupKind.MODERN else {"heartbeat.interval.ms": HEARTBEAT_MS}
        return {
            "metadata.max.age.ms": METADATA_MS,
            "request.timeout.ms": REQUEST_TIMEOUT_MS,
            **heartbeat,
        }


class Arena:
    """A context manager; `settle` ends it cleanly and checks it, leaving it kills what runs.

    `work_ms` is how long members work on some batches, and `max_poll_interval_ms` how long they
    may; None means Kafka's default. Static members keep their partitions while they are away, for
    up to a session.
    """

    def __init__(
        self,
        kafka: KafkaCluster,
        kind: GroupKind,
        *,
        work_ms: int = 0,
        max_poll_interval_ms: int | None = None,
        is_static: bool = False,
    ) -> None:
        self.kafka = kafka
        self.kind = kind
        self.topic = self.group = f"chaos-{uuid.uuid4().hex[:8]}"
        self.members: list[ChaosMember] = []
        self._work_ms = work_ms
        self._settings = dict(kind.settings)
        if max_poll_interval_ms is not None:
            self._settings["max.poll.interval.ms"] = max_poll_interval_ms
        self._is_static = is_static
        self._resources = ExitStack()
        self._samples: list[CommittedSample] = []
        self._is_over = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._settings_path = Path()
        self._partition_count = PARTITION_COUNT
        self.load = Load(kafka.bootstrap_servers, self.topic)

    def __enter__(self) -> Self:
        with ExitStack() as resources:
            folder = resources.enter_context(tempfile.TemporaryDirectory())
            self._settings_path = Path(folder) / "consumer.properties"
            self._settings_path.write_text(dump_properties(self._settings))
            with Admin(bootstrap_servers=self.kafka.bootstrap_servers) as admin:
                admin.create_topics([NewTopic(self.topic, PARTITION_COUNT, REPLICATION)])
            resources.callback(self._end_sampler)
            self._sampler.start()
            resources.callback(self.load.stop)
            self._resources = resources.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    @property
    def alive(self) -> list[ChaosMember]:
        return [member for member in self.members if member.is_alive]

    def join(self) -> ChaosMember:
        return self._start(f"member {len(self.members)}")

    def restart(self, member: ChaosMember) -> ChaosMember:
        assert self._is_static
        assert member.has_ended
        return self._start(member.name)

    def _start(self, name: str) -> ChaosMember:
        member = ChaosMember(
            name,
            self.kafka.bootstrap_servers,
            *("--topic", self.topic, "--group-id", self.group, *self.kind.options),
            *("--session-timeout", str(SESSION_MS), "--command-config", str(self._settings_path)),
            *(("--group-instance-id", name.replace(" ", "-")) if self._is_static else ()),
            work_ms=self._work_ms,
        )
        self.members.append(self._resources.enter_context(member))
        return member

    def begin(self, member_count: int) -> None:
        """Start members, and the load once all have partitions; wait until some of it is read.

        The start-up time of Python therefore does not count as a stall.
        """
        for _ in range(member_count):
            self.join()
        self.await_shared()
        self.load.start()
        self.await_progress()

    def await_shared(self, *, without: ChaosMember | None = None) -> None:
        """Wait until each partition belongs to one live member, and each member has some.

        `without` is a member to ignore, because its last report is outdated.
        """
        self._await(lambda: self._is_shared(without), "the partitions are not shared")

    @contextmanager
    def stalled(self, member: ChaosMember) -> Iterator[None]:
        """Make a member's application work on a batch during the block, and fail to commit it."""
        count = len(member.named("stalled"))
        member.stall()
        self._await(lambda: len(member.named("stalled")) > count, f"{member.name} does not stall")
        try:
            yield
        finally:
            member.go_on()
        self._await(
            lambda: member.first_commit_after("went_on") is not None,
            f"{member.name} does not commit",
        )
        commit = member.first_commit_after("went_on")
        assert commit is not None
        assert not commit["success"], f"{member.name} was removed, and commits: {commit}"

    def await_progress(self) -> None:
        """Wait until everything acknowledged so far is processed, and some of each partition."""
        count = self._partition_count
        self._await(lambda: len(self.load.ends()) == count, "not all partitions are written")
        goal = self.load.ends()
        self._await(lambda: self._has_processed(goal), "there is no progress")

    def await_share(self, member: ChaosMember) -> None:
        self._await(lambda: bool(member.assigned()), f"{member.name} gets no partitions")

    def await_start(self, member: ChaosMember) -> None:
        self._await(lambda: bool(member.named("startup_complete")), f"{member.name} does not start")

    def coordinator(self) -> int:
        with Admin(bootstrap_servers=self.kafka.bootstrap_servers) as admin:
            return admin.describe_groups([self.group])[self.group].coordinator.id

    def grow(self, count: int) -> None:
        self._partition_count += count
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})
        grown = admin.create_partitions([NewPartitions(self.topic, self._partition_count)])
        grown[self.topic].result(TIMEOUT_S)

    def rebalance_count(self) -> int:
        return sum(len(member.named("partitions_assigned")) for member in self.members)

    def settle(self) -> Invariants:
        """Wait until all is processed, let all members leave, and check their journals."""
        self.load.stop()
        self.await_progress()
        leaving = self.alive
        for member in leaving:
            member.terminate()
        for member in self.members:
            member.wait()
        self._end_sampler()
        judged = Invariants(
            [member.journal() for member in self.members],
            self.load.acknowledged,
            self._samples,
            stall_ms_max=STALL_MS_MAX,
            close_ms_max=CLOSE_MS_MAX,
        )
        judged.violations += [f"the load failed: {error}" for error in self.load.errors]
        if not judged.generations:
            judged.violate("no member reported its generation")
        if not any(sample.offsets for sample in self._samples):
            judged.violate("the committed offsets could not be sampled")
        return judged

    def _is_shared(self, without: ChaosMember | None = None) -> bool:
        shares = [member.assigned() for member in self.alive if member is not without]
        owned = [partition for share in shares for partition in share]
        return all(shares) and len(owned) == len(set(owned)) == self._partition_count

    def _has_processed(self, goal: dict[TopicPartition, int]) -> bool:
        ends = dict.fromkeys(goal, 0)
        for member in self.members:
            for place, end in member.processed_ends().items():
                ends[place] = max(end, ends.get(place, 0))
        return all(ends[place] >= end for place, end in goal.items())

    def _await(self, condition: Callable[[], bool], complaint: str) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        while not condition():
            ended = [member for member in self.alive if member.has_ended]
            assert not ended, [(member.name, member.errors) for member in ended]
            if time.monotonic() > deadline_s:
                last = [(member.name, list(member.events)[-3:]) for member in self.members]
                raise AssertionError(f"{complaint} within {TIMEOUT_S} s: {last}")
            time.sleep(LOOK_S)

    def _sample(self) -> None:
        """Sample the committed offsets; skip while the coordinator is down."""
        with Admin(bootstrap_servers=self.kafka.bootstrap_servers) as admin:
            while not self._is_over.wait(SAMPLE_S):
                try:
                    listed = admin.list_group_offsets(self.group, timeout=SAMPLE_TIMEOUT_S)
                except KafkaError:
                    continue
                offsets = {partition: each.offset for partition, each in listed.items()}
                self._samples.append(CommittedSample(time.time_ns() // NS_PER_MS, offsets))

    def _end_sampler(self) -> None:
        self._is_over.set()
        self._sampler.join(TIMEOUT_S)
        assert not self._sampler.is_alive(), "the sampler does not end"
