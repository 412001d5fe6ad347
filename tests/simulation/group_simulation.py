"""A group of real consumers on a fake cluster, with failures chosen by a seed.

Members join, leave, stall, are killed and work too long; they poll or iterate, commit in every
possible way, pause, seek back and resubscribe. Coordinators move, brokers stop, topics grow,
connections break, and requests are refused, delayed, or executed without a response. After each
step the members are compared with each other and with the committed offsets: see `check_step`. In
the end everything is healed, and the group must settle with every record processed.

With `is_mild`, members join and leave, and nothing fails. Then nothing is read twice and nothing is
lost, except by a member that leaves during a rebalance, when brokers refuse commits.

Owner: the test that created it.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

from pykclient.consumer.group.auto import AutoMembership, AutoState
from pykclient.consumer.group.kip848.membership import Kip848Membership, MemberState
from pykclient.errors import BufferExhaustedError, KafkaTimeoutError
from pykclient.errors.broker import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedMemberEpochError,
    IllegalGenerationError,
    NotCoordinatorError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.clock import ManualClock
from pykclient.testing.fake.cluster import FakeCluster
from pykclient.testing.fake.groups.classic.group import ClassicGroup
from pykclient.testing.fake.groups.group import GroupSettings
from pykclient.testing.fake.groups.kip848.group import ConsumerGroup
from pykclient.types import TopicPartition
from tests.simulation.simulated_clients import SimulatedProducer
from tests.simulation.simulated_member import (
    IN_BETWEEN,
    POLL_MS,
    Habits,
    ProcessedRecords,
    SimulatedMember,
)
from tests.simulation.simulated_world import SimulatedTime, SimulatedWorld

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.simulated_world import ApiFaults

TOPIC = "t"
GROUP = "g"
BROKER_COUNT = 3
BREAK_COUNT = 25
QUIET_MS = (0, 0, 5, 50, 300, 2_000)
"""Time without further failures after each one."""
MEMBER_COUNT_MAX = 4
SESSION_TIMEOUT_MS = 6_000
MAX_POLL_INTERVAL_MS = 2_500
MILD_MAX_POLL_INTERVAL_MS = 3_500
"""Time to join a rebalance, if no member may be late. A member learns of it from a heartbeat within
1.1 s, the next poll commits, and the one after it joins, each after two records of 500 ms.
"""
STALL_MAX_MS = SESSION_TIMEOUT_MS + 6_000
"""Time limit for the group to settle: sessions of dead members must expire, and a lost request may
have waited as long as possible before it was sent."""

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


READING = frozenset({MemberState.RECONCILING, MemberState.ACKNOWLEDGING, MemberState.STABLE})


class GroupSimulation(SimulatedWorld):
    """A run."""

    api_faults: ClassVar[ApiFaults] = API_FAULTS
    delays_ms: ClassVar[tuple[int, ...]] = (5, 500, 3_000)
    group_settings: ClassVar[GroupSettings] = GroupSettings()

    def __init__(
        self,
        seed: int,
        *,
        member_class: type[SimulatedMember] = SimulatedMember,
        is_mild: bool = False,
        polls_inside: bool = False,
    ) -> None:
        self.seed = seed
        self.member_class = member_class
        self.is_mild = is_mild
        self.polls_inside = polls_inside
        random, clock = Random(seed), ManualClock(1_000)
        cluster = FakeCluster(
            BROKER_COUNT,
            min_insync_replicas=1,
            group_settings=self.group_settings,
            now_ms=clock.now_ms,
        )
        super().__init__(random, clock, cluster)
        self.partition_count = random.choice((1, 3, 6))
        cluster.create_topic(TOPIC, self.partition_count)
        self.strategy = random.choice(STRATEGIES)
        self.producer = SimulatedProducer(
            self.network, seed, bootstrap_servers=self.bootstrap, request_timeout_ms=2_000
        )
        self.members: list[SimulatedMember] = []
        self.processed = ProcessedRecords()
        self.stall_ms = 0
        """Time it took to settle."""
        # The extra time is for a SyncGroup without a response, and another rebalance.
        self.stall_max_ms = STALL_MAX_MS + (SESSION_TIMEOUT_MS if polls_inside else 0)
        self.sent_count = 0

    def run(self) -> None:
        """Break things, heal them, and wait until the group has settled."""
        try:
            with SimulatedTime(self.clock, self.cluster).installed():
                self._break_and_heal()
        finally:
            for member in self.members:
                member.kill()

    def _break_and_heal(self) -> None:
        self._join()
        for _ in range(BREAK_COUNT):
            if self.is_mild:
                self._join_or_leave()
            else:
                self._break_something()
            quiet_until_ms = self.clock.now_ms + self.random.choice(QUIET_MS)
            while self.clock.now_ms <= quiet_until_ms:
                self._send()
                self._step_and_check()
        self._heal()
        healed_ms = self.clock.now_ms
        while not self._is_at_rest():
            self._step_and_check()
            self.stall_ms = self.clock.now_ms - healed_ms
            assert self.stall_ms <= self.stall_max_ms, self._described()
        if self.is_mild and not self.has_lost:
            assert not self.processed.repeated_count, f"seed {self.seed}: read twice"

    @property
    def has_lost(self) -> bool:
        """True if a member has lost partitions: its records in hand are read again."""
        return any("lose" in member.did for member in self.members)

    # Steps.

    def _step_and_check(self) -> None:
        self._step([self.producer.turn, *(member.turn for member in self.members)])
        self.check_step()

    def _send(self) -> None:
        if self.random.random() < (0.3 if self.is_mild else 0.1):
            partition = self.random.randrange(self.partition_count)
            try:
                self.producer.send(TOPIC, b"%d" % self.sent_count, partition=partition)
            except (KafkaTimeoutError, BufferExhaustedError):
                return
            self.sent_count += 1

    def _break_something(self) -> None:
        self._break_one(
            (0.15, self._join),
            (0.22, self._leave),
            (0.30, self._kill),
            (0.40, self._pause_or_resume),
            (0.45, self._work_long),
            (0.50, self._move_coordinator),
            (0.55, self._stop_or_start),
            (0.65, self._cut),
            (0.68, self._grow),
            (1.00, self._add_fault),
        )

    def _join_or_leave(self) -> None:
        self._break_one((0.2, self._join), (0.35, self._leave))

    @property
    def alive(self) -> list[SimulatedMember]:
        """Members that are not gone."""
        return [member for member in self.members if not member.is_gone]

    def _join(self) -> None:
        if len(self.alive) == MEMBER_COUNT_MAX:
            return
        self.met["join"] += 1
        number = len(self.members)
        habits = self._habits()._replace(polls_inside=self.polls_inside)
        self.met.update(str(habit) for habit in habits[:2])
        instance_id = self._instance_id()
        self.met["static"] += instance_id is not None
        self.met["pattern"] += habits.pattern is not None
        member = self.member_class(
            self.network,
            self.seed * 1_000 + number,
            self.random,
            self.processed,
            topic=TOPIC,
            habits=habits,
            client_id=f"m{number}",
            group_instance_id=instance_id,
            bootstrap_servers=self.bootstrap,
            group_id=GROUP,
            auto_offset_reset="earliest",
            **self.protocol_settings(),
            max_poll_interval_ms=(
                MILD_MAX_POLL_INTERVAL_MS if self.is_mild else MAX_POLL_INTERVAL_MS
            ),
            enable_auto_commit=habits.commits == "automatically",
            auto_commit_interval_ms=500,
            request_timeout_ms=2_000,
            max_poll_records=2,
            metadata_max_age_ms=5_000,
            fetch_max_wait_ms=500,
            consumer_timeout_ms=POLL_MS,
        )
        self.members.append(member)

    def _habits(self) -> Habits:
        random = self.random
        if self.is_mild:
            return Habits(random.choice(("poll", "iterate")), may_lose=False)
        reads, commits = random.choice(
            (
                ("poll", "automatically"),
                ("poll", "sync"),
                ("poll", "async"),
                ("iterate", "automatically"),
            )
        )
        pattern = "t.*" if random.random() < 0.2 else None
        return Habits(reads, commits, fidgets=random.random() < 0.3, pattern=pattern)

    def protocol_settings(self) -> dict[str, object]:
        """Return a member's settings for the group protocol."""
        return {
            "partition_assignment_strategy": self.strategy,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "heartbeat_interval_ms": 1_000,
        }

    def _instance_id(self) -> str | None:
        """Return an instance id for a static member, not used by a live one, or None."""
        if self.is_mild or self.random.random() < 0.7:
            return None
        taken = {member.consumer._wiring.config.group_instance_id for member in self.alive}
        free = [name for name in ("i0", "i1", "i2", "i3", "i4") if name not in taken]
        return self.random.choice(free)

    def _leave(self) -> None:
        member = self._chosen(not_last=True)
        if member is not None and not member.is_paused:
            self.met["leave"] += 1
            member.is_leaving = True

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
        staying = [member for member in self.alive if not member.is_leaving]
        if not staying or (not_last and len(staying) == 1):
            return None
        return self.random.choice(staying)

    def _move_coordinator(self) -> None:
        self.met["coordinator move"] += 1
        alive = sorted(self.cluster.alive)
        self.cluster.move_coordinator(0, GROUP, self.random.choice(alive))

    def _grow(self) -> None:
        if self.partition_count < 8:
            self.met["growth"] += 1
            self.partition_count += 1
            self.cluster.add_partitions(TOPIC, self.partition_count)

    def _heal(self) -> None:
        super()._heal()
        for member in self.alive:
            member.be_calm()

    # Invariants.

    def check_step(self) -> None:
        """Check that partitions have one owner, and that only processed records are committed."""
        owners: dict[tuple[int, TopicPartition], SimulatedMember] = {}
        for member in self.alive:
            for partition in member.holds:
                other = owners.setdefault((member.generation, partition), member)
                assert other is member, f"{partition} has two owners"
        for partition, committed in self.cluster.groups.offsets(GROUP).all().items():
            assert committed.offset <= self.processed.end(partition), (
                f"{partition}: committed too far"
            )

    def _partitions(self) -> Iterable[TopicPartition]:
        return (TopicPartition(TOPIC, number) for number in range(self.partition_count))

    def _is_at_rest(self) -> bool:
        """Return whether every partition is read by one member to its end, with nothing missing."""
        held = [partition for member in self.alive for partition in member.holds]
        return sorted(held) == sorted(self._partitions()) and all(
            self.processed.end(partition) == self.cluster.partition(partition).log.high_watermark
            for partition in self._partitions()
        )

    def _described(self) -> str:
        lines = [f"seed {self.seed} does not come to rest, {self.strategy}:"]
        for member in self.alive:
            wiring = member.consumer._wiring
            group = wiring.group
            assert group is not None
            state = vars(group._membership)["state"]
            lines.append(
                f"{member.consumer}: {state} {group.identity} {member.habits} "
                f"{sorted(wiring.subscription.partitions)} errors: {member.errors[-2:]}"
            )
        lines.append(str(self.cluster.groups.snapshot(GROUP)))
        return "\n".join(lines)


class SimulatedKip848Member(SimulatedMember):
    """A member of KIP-848."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        # Replace the id drawn before the member was seeded.
        member = self._membership.member
        self._membership.member = member._replace(member_id=str(settings["client_id"]))

    @property
    def _membership(self) -> Kip848Membership:
        group = self.consumer._wiring.group
        assert group is not None
        assert isinstance(group._membership, Kip848Membership)
        return group._membership

    @property
    def holds(self) -> frozenset[TopicPartition]:
        """Partitions it reads; empty if the coordinator no longer counts it as a member."""
        if self._membership.state not in READING:
            return frozenset()
        group = self._network.cluster.groups.find(GROUP)
        assert isinstance(group, ConsumerGroup)
        member_id = self._membership.member.member_id
        is_known = any(member.member_id == member_id for member, _ in group.member_targets())
        return self.consumer._wiring.subscription.partitions if is_known else frozenset()

    @property
    def generation(self) -> int:
        """Always 0, the same for all members."""
        return 0


class Kip848GroupSimulation(GroupSimulation):
    """A run with members of KIP-848: the coordinator assigns.

    Members of a group differ in their epochs, so their partitions are compared regardless of
    epochs, as long as the coordinator counts both as members.
    """

    api_faults: ClassVar[ApiFaults] = {
        ApiKey.FIND_COORDINATOR: (CoordinatorNotAvailableError,),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: (
            *GROUP_ERRORS,
            UnknownMemberIdError,
            FencedMemberEpochError,
        ),
        ApiKey.OFFSET_COMMIT: (*GROUP_ERRORS, StaleMemberEpochError, UnknownMemberIdError),
        ApiKey.OFFSET_FETCH: (NotCoordinatorError, *GROUP_ERRORS),
    }
    group_settings: ClassVar[GroupSettings] = GroupSettings(
        group_consumer_session_timeout_ms=6_000,
        group_consumer_heartbeat_interval_ms=1_000,
        group_consumer_assignment_interval_ms=1_000,
    )

    def __init__(
        self,
        seed: int,
        *,
        member_class: type[SimulatedMember] = SimulatedKip848Member,
        is_mild: bool = False,
        polls_inside: bool = False,
    ) -> None:
        super().__init__(
            seed, member_class=member_class, is_mild=is_mild, polls_inside=polls_inside
        )

    def protocol_settings(self) -> dict[str, object]:
        """Choose the server-side assignor."""
        assignor = self.random.choice(("", "uniform", "range"))
        return {"group_protocol": "consumer", "group_remote_assignor": assignor}


KIP848_APIS = (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE)
ANY_VERSION = (0, 32_767)


class SimulatedAutoMember(SimulatedMember):
    """A member with either protocol."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        # The random member id was drawn before the client got the seed's randomness.
        kip848 = self._membership._kip848
        kip848.member = kip848.member._replace(member_id=str(settings["client_id"]))

    @property
    def _membership(self) -> AutoMembership:
        group = self.consumer._wiring.group
        assert group is not None
        assert isinstance(group._membership, AutoMembership)
        return group._membership

    @property
    def holds(self) -> frozenset[TopicPartition]:
        """Partitions it reads as a member; none if the coordinator has removed it."""
        membership = self._membership
        group = self._network.cluster.groups.find(GROUP)
        if membership.state is AutoState.CONSUMER:
            is_reading = membership._kip848.state in READING and isinstance(group, ConsumerGroup)
        else:
            is_classic = membership.state in (AutoState.ENTERING_CLASSIC, AutoState.CLASSIC)
            is_settled = self.generation > 0 and membership._classic.state not in IN_BETWEEN
            is_reading = is_classic and is_settled and isinstance(group, ClassicGroup)
        if not is_reading or group is None:
            return frozenset()
        is_known = any(each.member_id == membership.member.member_id for each in group.members())
        return self.consumer._wiring.subscription.partitions if is_known else frozenset()

    @property
    def generation(self) -> int:
        """Generation of the classic protocol; 0 under KIP-848."""
        return 0 if self._membership.state is AutoState.CONSUMER else super().generation


class AutoGroupSimulation(GroupSimulation):
    """A run of members with ``group_protocol=auto``, while the cluster is up- and downgraded.

    Brokers get or lose KIP-848 one by one, and the cluster's feature is switched on and off. Groups
    with members are not converted here, as with the policy `disabled`.
    """

    api_faults: ClassVar[ApiFaults] = {
        **API_FAULTS,
        **Kip848GroupSimulation.api_faults,
        ApiKey.OFFSET_COMMIT: (*GROUP_ERRORS, UnknownMemberIdError),
        ApiKey.API_VERSIONS: (CoordinatorNotAvailableError,),
    }
    group_settings: ClassVar[GroupSettings] = Kip848GroupSimulation.group_settings

    def __init__(
        self,
        seed: int,
        *,
        member_class: type[SimulatedMember] = SimulatedAutoMember,
        is_mild: bool = False,
        polls_inside: bool = False,
    ) -> None:
        super().__init__(
            seed, member_class=member_class, is_mild=is_mild, polls_inside=polls_inside
        )
        # A member that could not leave waits until its former membership has expired.
        self.stall_max_ms += SESSION_TIMEOUT_MS
        for broker_id in self.cluster.brokers:
            self._make_new(broker_id, is_new=self.random.random() < 0.5)
        self.cluster.set_group_version(self.random.randrange(2))

    def protocol_settings(self) -> dict[str, object]:
        """Return the settings of both protocols."""
        return {
            **super().protocol_settings(),
            "group_protocol": "auto",
            "group_remote_assignor": self.random.choice(("", "uniform", "range")),
        }

    def _break_something(self) -> None:
        self._break_one(
            (0.10, self._replace_broker),
            (0.18, self._switch_feature),
            (0.24, self._remove_members),
            (1.0, super()._break_something),
        )

    def _replace_broker(self) -> None:
        """Stop a broker, and start it in the other version."""
        if len(self.cluster.alive) < len(self.cluster.brokers):
            return
        broker_id = self.random.randrange(len(self.cluster.brokers))
        is_new = KIP848_APIS[0] in self.cluster.versions(broker_id)
        self.met["downgrade" if is_new else "upgrade"] += 1
        self.cluster.stop_broker(broker_id)
        self._make_new(broker_id, is_new=not is_new)
        self.cluster.start_broker(broker_id)

    def _make_new(self, broker_id: int, *, is_new: bool) -> None:
        limits = dict.fromkeys(KIP848_APIS, ANY_VERSION if is_new else None)
        self.cluster.limit_versions(limits, broker_id=broker_id)

    def _remove_members(self) -> None:
        """Expire all members; the first one to rejoin chooses the protocol."""
        group = self.cluster.groups.snapshot(GROUP)
        for member in () if group is None else group.members:
            self.met["removal"] += 1
            self.cluster.expire_member(GROUP, member.member_id)

    def _switch_feature(self) -> None:
        self.met["feature"] += 1
        self.cluster.set_group_version(1 - self.cluster.group_version)
