"""Faults for a consumer group.

Each takes an arena with working members, and returns when the group has recovered. `Invariants`
checks that nothing was lost.

Owner: none; the arena has the state.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pykclient.protocol.api_keys import ApiKey
from pykclient.testing import Blackhole, Cut, Delay, Double, ForgeLength, Lose
from tests.chaos.arena import SESSION_MS, Arena, GroupKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.testing import Fault, KafkaCluster
    from tests.chaos.invariants import Invariants

BROKERS: Final = (1, 2, 3)
MEMBER_COUNT: Final = 3
SESSION_S: Final = SESSION_MS / 1000
BEYOND_SESSION_S: Final = SESSION_S + 1.0
LONG_WORK_MS: Final = SESSION_MS + 1_000
SHORT_POLL_INTERVAL_MS: Final = 3_000
"""Less than a session, so that only the time between two polls can remove a member."""
CHURN_COUNT: Final = 3
GROWTH: Final = 3
FAULTS_MIN: Final = 8
FAULTS_S: Final = 60.0
LIFETIMES_MS: Final = (300, 1_500)

GROUP_APIS: Final = (
    *(ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT),
    *(ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH),
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fault and its group: `work_ms` is how long members work on some batches.

    `max_poll_interval_ms` is how long members may work; None means Kafka's default. Static members
    may return.
    """

    act: Callable[[Arena], None]
    work_ms: int = 0
    max_poll_interval_ms: int | None = None
    is_static: bool = False

    @property
    def name(self) -> str:
        return self.act.__name__

    @property
    def title(self) -> str:
        """Description of the fault, for the table."""
        first, *_ = (self.act.__doc__ or self.name).splitlines()
        return f"{first[0].lower()}{first[1:].removesuffix('.')}"

    def run(self, kafka: KafkaCluster, kind: GroupKind, *, round_count: int = 1) -> Invariants:
        """Run it on a new group, several times, and return the checked result."""
        with Arena(
            kafka,
            kind,
            work_ms=self.work_ms,
            max_poll_interval_ms=self.max_poll_interval_ms,
            is_static=self.is_static,
        ) as arena:
            arena.begin(MEMBER_COUNT)
            for _ in range(round_count):
                self.act(arena)
            return arena.settle()


def coordinator_killed(arena: Arena) -> None:
    """Kill the group's coordinator, and start it again."""
    coordinator = arena.coordinator()
    arena.kafka.kill(coordinator)
    arena.await_progress()
    arena.kafka.start(coordinator)
    arena.await_progress()


def coordinator_frozen(arena: Arena) -> None:
    """Pause the coordinator while a member joins, until it is replaced, and resume it."""
    newcomer = arena.join()
    arena.await_start(newcomer)
    with _frozen(arena, arena.coordinator()):
        arena.await_share(newcomer)
        arena.await_shared()
        arena.await_progress()
    arena.alive[0].terminate()
    arena.await_shared()
    arena.await_progress()


def leader_frozen(arena: Arena) -> None:
    """Pause a broker that leads partitions but is not the coordinator; connections stay open."""
    coordinator = arena.coordinator()
    with _frozen(arena, next(broker for broker in BROKERS if broker != coordinator)):
        arena.await_progress()
    arena.await_shared()
    arena.await_progress()


@contextmanager
def _frozen(arena: Arena, broker: int) -> Iterator[None]:
    """Pause a broker for longer than a session."""
    arena.kafka.pause(broker)
    started_s = time.monotonic()
    try:
        yield
        time.sleep(max(0.0, started_s + BEYOND_SESSION_S - time.monotonic()))
    finally:
        arena.kafka.resume(broker)


def brokers_rolled(arena: Arena) -> None:
    """Restart one broker after another, as for an upgrade."""
    for broker in BROKERS:
        arena.kafka.stop(broker)
        arena.await_progress()
        arena.kafka.start(broker)
        arena.await_progress()


def member_killed(arena: Arena) -> None:
    """Kill a member; the others get its partitions when its session expires."""
    arena.alive[0].kill()
    arena.join()
    arena.await_shared()
    arena.await_progress()


def static_members_restarted(arena: Arena) -> None:
    """Restart static members one after another within a session: no partition moves.

    They are killed, except in KIP-848, where the coordinator only releases an instance id after
    its member has left temporarily.
    """
    for member in arena.alive:
        share, count = member.assigned(), arena.rebalance_count()
        if arena.kind is GroupKind.MODERN:
            member.terminate()
        else:
            member.kill()
        member.wait()
        again = arena.restart(member)
        arena.await_share(again)
        arena.await_progress()
        moved = again.assigned() ^ share
        assert not moved, f"{again.name} does not have what it had: {moved}"
        others_count = arena.rebalance_count() - count - 1
        assert others_count == 0, f"others were given partitions {others_count} times"


def member_frozen(arena: Arena) -> None:
    """Freeze a member past its session, so that it returns after others have replaced it."""
    arena.alive[0].freeze(BEYOND_SESSION_S)
    arena.await_shared()
    arena.await_progress()


def members_churned(arena: Arena) -> None:
    """Add members while others leave, continuously."""
    for _ in range(CHURN_COUNT):
        newcomer = arena.join()
        arena.alive[0].terminate()
        arena.await_share(newcomer)
    arena.await_shared()
    arena.await_progress()


def topic_grown(arena: Arena) -> None:
    """Add partitions to the topic, which are read from their beginning."""
    arena.grow(GROWTH)
    arena.await_shared()
    arena.await_progress()


def work_long(arena: Arena) -> None:
    """Work on a batch for longer than a session; the members must stay members."""
    before = arena.rebalance_count()
    time.sleep(LONG_WORK_MS / 1000)
    arena.await_progress()
    assert arena.rebalance_count() == before, "a working member was removed"


def application_stalled(arena: Arena) -> None:
    """Stall a member past max.poll.interval.ms; others take over, its commit fails, it rejoins."""
    member = arena.alive[0]
    with arena.stalled(member):
        arena.await_shared(without=member)
        arena.await_progress()
    arena.await_shared()
    arena.await_progress()


def network_broken(arena: Arena) -> None:
    """Reset connections, and lose, delay or swallow responses to groups."""
    for broker in BROKERS:
        arena.kafka.proxy(broker).limit_lifetimes(LIFETIMES_MS)
    _strike(
        arena,
        *(Lose(api=api, probability=0.1) for api in GROUP_APIS),
        *(Delay(api=api, probability=0.2, delay_ms=500) for api in GROUP_APIS),
        Lose(api=ApiKey.FETCH, probability=0.1),
        Blackhole(api=ApiKey.FETCH, probability=0.02, count_max=2),
    )


def answers_damaged(arena: Arena) -> None:
    """Cut, double and forge the sizes of fetch responses."""
    _strike(
        arena,
        *(
            ForgeLength(api=ApiKey.FETCH, probability=0.05, length_bytes=length_bytes)
            for length_bytes in (2**31 - 1, -1, 100)
        ),
        Cut(api=ApiKey.FETCH, probability=0.05),
        Double(api=ApiKey.FETCH, probability=0.05),
    )


def _strike(arena: Arena, *faults: Fault) -> None:
    """Inject faults until each kind has struck often enough, then heal the network."""
    proxies = [arena.kafka.proxy(broker) for broker in BROKERS]
    least = Counter({fault.name: FAULTS_MIN for fault in faults if fault.count_max is None})

    def struck() -> Counter[str]:
        return sum((Counter(proxy.counts) for proxy in proxies), Counter())

    goal = struck() + least
    try:
        for proxy in proxies:
            proxy.inject(*faults)
        deadline_s = time.monotonic() + FAULTS_S
        while not struck() >= goal:
            assert time.monotonic() < deadline_s, (struck(), goal)
            arena.await_progress()
    finally:
        for proxy in proxies:
            proxy.heal()
    arena.await_shared()
    arena.await_progress()


SCENARIOS: Final = (
    Scenario(coordinator_killed),
    Scenario(coordinator_frozen),
    Scenario(leader_frozen),
    Scenario(brokers_rolled),
    Scenario(member_killed),
    Scenario(member_frozen),
    Scenario(static_members_restarted, is_static=True),
    Scenario(members_churned),
    Scenario(topic_grown),
    Scenario(work_long, work_ms=LONG_WORK_MS),
    Scenario(application_stalled, max_poll_interval_ms=SHORT_POLL_INTERVAL_MS),
    Scenario(network_broken),
    Scenario(answers_damaged),
)
