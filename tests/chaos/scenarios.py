"""What is done to a group: each takes an arena whose members are at work, and returns when the
group has got over it. That nothing was lost meanwhile is for `Invariants` to say.

Owner: none; the arena has the state.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pykclient.protocol.api_keys import ApiKey
from pykclient.testing import Blackhole, Cut, Delay, Double, ForgeLength, Lose
from tests.chaos.arena import SESSION_MS, Arena

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.testing import Fault, KafkaCluster
    from tests.chaos.arena import GroupKind
    from tests.chaos.invariants import Invariants

__all__ = ["SCENARIOS", "Scenario"]

MEMBER_COUNT: Final = 3
SESSION_S: Final = SESSION_MS / 1000
BEYOND_SESSION_S: Final = SESSION_S + 2.0
LONG_WORK_MS: Final = SESSION_MS + 1_000
CHURN_COUNT: Final = 4
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
    """`work_ms` is how long members work on some of the batches."""

    act: Callable[[Arena], None]
    work_ms: int = 0

    @property
    def name(self) -> str:
        """What it is called in tables and tests."""
        return self.act.__name__

    def run(self, kafka: KafkaCluster, kind: GroupKind, *, round_count: int = 1) -> Invariants:
        """Do it to a group of its own, so many times; what it left behind, judged."""
        with Arena(kafka, kind, work_ms=self.work_ms) as arena:
            arena.begin(MEMBER_COUNT)
            for _ in range(round_count):
                self.act(arena)
            return arena.settle()


def coordinator_killed(arena: Arena) -> None:
    """The broker that coordinates the group is killed, and comes back."""
    coordinator = arena.coordinator()
    arena.kafka.kill(coordinator)
    arena.await_progress()
    arena.kafka.start(coordinator)
    arena.await_progress()


def brokers_rolled(arena: Arena) -> None:
    """One broker after the other is stopped and started, as for a new version."""
    for broker in (1, 2, 3):
        arena.kafka.stop(broker)
        arena.await_progress()
        arena.kafka.start(broker)
        arena.await_progress()


def member_killed(arena: Arena) -> None:
    """A member ends without a word; the others have its partitions when its session ends."""
    arena.alive[0].kill()
    arena.join()
    arena.await_shared()
    arena.await_progress()


def member_frozen(arena: Arena) -> None:
    """A member sleeps past its session, and wakes up as one that others have replaced."""
    arena.alive[0].freeze(BEYOND_SESSION_S)
    arena.await_shared()
    arena.await_progress()


def members_churned(arena: Arena) -> None:
    """Members join while others leave, all the time."""
    for _ in range(CHURN_COUNT):
        newcomer = arena.join()
        arena.alive[0].terminate()
        arena.await_share(newcomer)
    arena.await_shared()
    arena.await_progress()


def topic_grown(arena: Arena) -> None:
    """The topic gets further partitions, which are read from their beginnings."""
    arena.grow(GROWTH)
    arena.await_shared()
    arena.await_progress()


def work_long(arena: Arena) -> None:
    """Members work on a batch for longer than a session, and stay members all the same."""
    before = arena.rebalance_count()
    time.sleep(LONG_WORK_MS / 1000)
    arena.await_progress()
    assert arena.rebalance_count() == before


def network_broken(arena: Arena) -> None:
    """Connections die young, what groups ask is done without an answer, late, or goes nowhere."""
    for broker in (1, 2, 3):
        arena.kafka.proxy(broker).limit_lifetimes(LIFETIMES_MS)
    _strike(
        arena,
        *(Lose(api=api, probability=0.1) for api in GROUP_APIS),
        *(Delay(api=api, probability=0.2, delay_ms=500) for api in GROUP_APIS),
        Lose(api=ApiKey.FETCH, probability=0.1),
        Blackhole(api=ApiKey.FETCH, probability=0.02, count_max=2),
    )


def answers_damaged(arena: Arena) -> None:
    """What brokers answer to fetches is cut, doubled, and announced with sizes that are not so."""
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
    """Have faults strike, enough of each kind to count, then heal the network."""
    proxies = [arena.kafka.proxy(broker) for broker in (1, 2, 3)]
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
    Scenario(brokers_rolled),
    Scenario(member_killed),
    Scenario(member_frozen),
    Scenario(members_churned),
    Scenario(topic_grown),
    Scenario(work_long, work_ms=LONG_WORK_MS),
    Scenario(network_broken),
    Scenario(answers_damaged),
)
