"""A group of real consumers on a fake cluster, with a seed that makes things go wrong.

Members come, go, stall, are killed and work too long; coordinators move, brokers stop, topics grow,
connections break, requests are refused, delayed, and done without an answer. After each step the
members are compared with each other and with what was committed: see `check_step`. In the end all
is healed, and the group must come to rest with every record processed.

Owner: the test that made it.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, ClassVar

from pykclient.errors.broker import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    IllegalGenerationError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from pykclient.network.manager import NEVER_MS
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.clock import ManualClock
from pykclient.testing.fake import faults
from pykclient.testing.fake.cluster import FakeCluster
from pykclient.testing.fake.groups.settings import GroupSettings
from pykclient.types import TopicPartition
from tests.simulation.simulated_clients import SimulatedProducer, TryLaterError
from tests.simulation.simulated_member import SimulatedMember
from tests.simulation.simulated_network import SimulatedNetwork

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pykclient.errors import BrokerError

__all__ = ["GroupSimulation"]

TOPIC = "t"
GROUP = "g"
BROKER_COUNT = 3
STEP_COUNT = 100
HEAL_STEP_COUNT_MAX = 5_000
STALLED_STEP_MS = 500
MEMBER_COUNT_MAX = 4
SESSION_TIMEOUT_MS = 6_000
MAX_POLL_INTERVAL_MS = 5_000
REST_MS = 15_000
"""How long the group may take to come to rest: sessions of those who are gone have to end."""

STRATEGIES = (
    "range",
    "sticky",
    "roundrobin",
    "cooperative-sticky",
    "cooperative-sticky,range",
)
GROUP_ERRORS = (
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    CoordinatorLoadInProgressError,
)
API_FAULTS = {
    ApiKey.FIND_COORDINATOR: (CoordinatorNotAvailableError,),
    ApiKey.JOIN_GROUP: (*GROUP_ERRORS, UnknownMemberIdError, RebalanceInProgressError),
    ApiKey.SYNC_GROUP: (
        *GROUP_ERRORS,
        UnknownMemberIdError,
        IllegalGenerationError,
        RebalanceInProgressError,
    ),
    ApiKey.HEARTBEAT: (
        CoordinatorNotAvailableError,
        NotCoordinatorError,
        UnknownMemberIdError,
        IllegalGenerationError,
        RebalanceInProgressError,
    ),
    ApiKey.OFFSET_COMMIT: (*GROUP_ERRORS, RebalanceInProgressError, UnknownMemberIdError),
    ApiKey.OFFSET_FETCH: (NotCoordinatorError, CoordinatorLoadInProgressError),
    ApiKey.LEAVE_GROUP: (NotCoordinatorError,),
}


class GroupSimulation:
    """One run."""

    api_faults: ClassVar[Mapping[ApiKey, tuple[type[BrokerError], ...]]] = API_FAULTS
    group_settings: ClassVar[GroupSettings] = GroupSettings()

    def __init__(self, seed: int, *, member_class: type[SimulatedMember] = SimulatedMember) -> None:
        self.seed = seed
        self.member_class = member_class
        self.random = random = Random(seed)
        self.clock = ManualClock(1_000)
        self.cluster = FakeCluster(
            BROKER_COUNT,
            min_insync_replicas=1,
            group_settings=self.group_settings,
            now_ms=self.clock.now_ms,
        )
        self.partition_count = random.choice((1, 3, 6))
        self.cluster.create_topic(TOPIC, self.partition_count)
        self.network = SimulatedNetwork(self.cluster, self.clock, random)
        self.bootstrap = ",".join(f"{b.host}:{b.port}" for b in self.cluster.brokers.values())
        self.strategy = random.choice(STRATEGIES)
        self.producer = SimulatedProducer(
            self.network, seed, bootstrap_servers=self.bootstrap, request_timeout_ms=2_000
        )
        self.members: list[SimulatedMember] = []
        self.met: Counter[str] = Counter()
        self.sent_count = 0
        self._last_generation: dict[SimulatedMember, int] = {}
        self._join()

    def run(self) -> None:
        """Let things go wrong, heal them, and wait until the group is at rest."""
        for _ in range(STEP_COUNT):
            self._send()
            self._break_something()
            self._step()
            self.check_step()
        self._heal()
        healed_ms = self.clock.now_ms
        for _ in range(HEAL_STEP_COUNT_MAX):
            self._step()
            self.check_step()
            if self._is_at_rest():
                break
            assert self.clock.now_ms - healed_ms < REST_MS + SESSION_TIMEOUT_MS, self._described()
        assert self._is_at_rest(), self._described()

    # Steps.

    def _step(self) -> None:
        now_ms = self.clock.now_ms
        self.cluster.advance(now_ms)
        self.network.deliver()
        deadlines = [
            self.producer.turn(now_ms),
            *(member.turn(now_ms) for member in self.members),
            self.network.next_ms(),
            self.cluster.next_deadline_ms(),
        ]
        next_ms = min((d for d in deadlines if d is not None), default=NEVER_MS)
        self.clock.move_to(max(now_ms, min(next_ms, now_ms + STALLED_STEP_MS)))

    def _send(self) -> None:
        if self.random.random() < 0.3:
            partition = self.random.randrange(self.partition_count)
            try:
                self.producer.send(TOPIC, b"%d" % self.sent_count, partition=partition)
            except TryLaterError:
                return
            self.sent_count += 1

    def _break_something(self) -> None:
        drawn = self.random.random()
        for limit, action in (
            (0.03, self._join),
            (0.045, self._leave),
            (0.06, self._kill),
            (0.08, self._pause_or_resume),
            (0.09, self._work_long),
            (0.10, self._move_coordinator),
            (0.11, self._stop_or_start),
            (0.13, self._cut),
            (0.135, self._grow),
            (0.20, self._add_fault),
        ):
            if drawn < limit:
                action()
                return

    @property
    def alive(self) -> list[SimulatedMember]:
        """The members that are not gone."""
        return [member for member in self.members if not member.is_gone]

    def _join(self) -> None:
        if len(self.alive) == MEMBER_COUNT_MAX:
            return
        self.met["join"] += 1
        number = len(self.members)
        member = self.member_class(
            self.network,
            self.seed * 1_000 + number,
            self.random,
            client_id=f"m{number}",
            group_instance_id=self._instance_id(),
            bootstrap_servers=self.bootstrap,
            group_id=GROUP,
            auto_offset_reset="earliest",
            **self.protocol_settings(),
            max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
            auto_commit_interval_ms=500,
            request_timeout_ms=2_000,
            max_poll_records=2,
            metadata_max_age_ms=5_000,
            fetch_max_wait_ms=100,
        )
        if self.random.random() < 0.8:
            member.subscribe([TOPIC], listener=member.listener)
        else:
            member.subscribe(pattern="t.*", listener=member.listener)
        self.members.append(member)

    def protocol_settings(self) -> dict[str, object]:
        """What a member is told of how its group agrees."""
        return {
            "partition_assignment_strategy": self.strategy,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "heartbeat_interval_ms": 1_000,
        }

    def _instance_id(self) -> str | None:
        """A static member takes a name that nobody alive has; of one that is gone, perhaps."""
        if self.random.random() < 0.7:
            return None
        taken = {member._config.group_instance_id for member in self.alive}
        free = [name for name in ("i0", "i1", "i2", "i3", "i4") if name not in taken]
        return self.random.choice(free)

    def _leave(self) -> None:
        member = self._chosen(not_last=True)
        if member is not None and not member.is_paused:
            self.met["leave"] += 1
            member.leave(now_ms=self.clock.now_ms)

    def _kill(self) -> None:
        member = self._chosen(not_last=True)
        if member is not None:
            self.met["kill"] += 1
            member.kill()

    def _pause_or_resume(self) -> None:
        member = self._chosen()
        if member is not None:
            self.met["pause"] += not member.is_paused
            member.is_paused = not member.is_paused

    def _work_long(self) -> None:
        member = self._chosen()
        if member is not None:
            self.met["long work"] += 1
            member.busy_until_ms = self.clock.now_ms + 2 * MAX_POLL_INTERVAL_MS

    def _chosen(self, *, not_last: bool = False) -> SimulatedMember | None:
        alive = [member for member in self.alive if member._left is None]
        if not alive or (not_last and len(alive) == 1):
            return None
        return self.random.choice(alive)

    def _move_coordinator(self) -> None:
        self.met["coordinator move"] += 1
        alive = sorted(self.cluster.alive)
        self.cluster.move_coordinator(0, GROUP, self.random.choice(alive))

    def _stop_or_start(self) -> None:
        stopped = self.cluster.brokers.keys() - self.cluster.alive
        if stopped:
            self.cluster.start_broker(min(stopped))
        else:
            self.met["broker stop"] += 1
            self.cluster.stop_broker(self.random.randrange(BROKER_COUNT))

    def _cut(self) -> None:
        links = [link for link in self.network.links if not link.is_closed]
        if links:
            self.met["cut"] += 1
            self.random.choice(links).cut()

    def _grow(self) -> None:
        if self.partition_count < 8:
            self.met["growth"] += 1
            self.partition_count += 1
            self.cluster.add_partitions(TOPIC, self.partition_count)

    def _add_fault(self) -> None:
        key = self.random.choice(list(self.api_faults))
        kind, fault = self.random.choice(
            (
                ("error", faults.fail_with(self.random.choice(self.api_faults[key]))),
                ("delay", faults.delay_answer(self.random.choice((5, 500, 3_000)))),
                ("drop", faults.drop()),
                ("lost answer", faults.lose_answer()),
                ("lost answer", faults.lose_answer(closes=True)),
                ("disconnect", faults.disconnect()),
            )
        )
        self.met[kind] += 1
        self.cluster.faults.add(fault, key)

    def _heal(self) -> None:
        self.cluster.faults.clear()
        for broker_id in self.cluster.brokers:
            if broker_id not in self.cluster.alive:
                self.cluster.start_broker(broker_id)
        for member in self.alive:
            member.is_paused = False
            member.busy_until_ms = min(member.busy_until_ms, self.clock.now_ms)

    # What must hold.

    def check_step(self) -> None:
        """Partitions have one owner, and nothing is committed that nobody has processed."""
        owners: dict[tuple[int, TopicPartition], SimulatedMember] = {}
        for member in self.alive:
            for partition in member.holds:
                other = owners.setdefault((member.generation, partition), member)
                assert other is member, f"{partition} has two owners"
        ends = self._processed_ends()
        group = self.cluster.groups.snapshot(GROUP)
        for partition, committed in () if group is None else group.offsets.items():
            assert committed.offset <= ends.get(partition, 0), f"{partition}: committed too far"

    def _processed_ends(self) -> dict[TopicPartition, int]:
        ends: dict[TopicPartition, int] = {}
        for member in self.members:
            for record in member.processed:
                partition = TopicPartition(record.topic, record.partition)
                ends[partition] = max(ends.get(partition, 0), record.offset + 1)
        return ends

    def _partitions(self) -> Iterable[TopicPartition]:
        return (TopicPartition(TOPIC, number) for number in range(self.partition_count))

    def _is_at_rest(self) -> bool:
        """Whether every partition is read by one member, to its end, with nothing left out."""
        held = [partition for member in self.alive for partition in member.holds]
        return sorted(held) == sorted(self._partitions()) and all(
            self._is_read(partition) for partition in self._partitions()
        )

    def _is_read(self, partition: TopicPartition) -> bool:
        processed = {
            record.offset
            for member in self.members
            for record in member.processed
            if (record.topic, record.partition) == partition
        }
        return processed == set(range(self.cluster.partition(partition).log.high_watermark))

    def _described(self) -> str:
        lines = [f"seed {self.seed} does not come to rest, {self.strategy}:"]
        for member in self.alive:
            group = member._group
            assert group is not None
            state = vars(group._membership)["state"]
            lines.append(
                f"{member._config.client_id}: {state} {group.identity} "
                f"{sorted(member._subscription.partitions)} errors: {member.errors[-2:]}"
            )
        lines.append(str(self.cluster.groups.snapshot(GROUP)))
        return "\n".join(lines)
