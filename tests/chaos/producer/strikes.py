"""Strikes that hit all producers at once; each verifies that it took effect.

Owner: none; the storm has the state.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pykclient.protocol.api_keys import ApiKey
from pykclient.testing import Blackhole, Cut, Delay, Direction, Lose, Refuse
from tests.chaos.producer.storm import BROKERS, TIMEOUT_S, StormOverError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.testing import Fault
    from tests.chaos.producer.storm import Storm

STRUCK_MIN: Final = 12
"""Minimum number of frames hit by each fault, for two clients and three brokers."""
CUT_OFF_S: Final = 4.0
"""Time that a broker is unreachable. It stays the leader, so that no other broker can help."""
STALL_S: Final = 8.0
"""Time that applications stall. It is longer than the hasty producer's delivery timeout, and than
brokers take to elect another leader."""
HELD_S: Final = 0.5
"""Time for which records wait for a broker before the applications stall. It stays the leader."""

LOOK_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault of a broker, or of all connections."""

    act: Callable[[Storm, int], None]

    @property
    def name(self) -> str:
        return self.act.__name__

    @property
    def title(self) -> str:
        """Description of the fault, for the table."""
        first, *_ = (self.act.__doc__ or self.name).splitlines()
        return f"{first[0].lower()}{first[1:].removesuffix('.')}"

    def run(self, storm: Storm, number: int) -> None:
        """Run it for the `number`-th time, on brokers in turn that lead partitions.

        A restarted broker leads nothing at first, and producers send it nothing.
        """

        def act(storm: Storm) -> None:
            turns = (BROKERS[(number + more) % len(BROKERS)] for more in range(len(BROKERS)))
            self.act(storm, next(broker for broker in turns if storm.leads(broker)))

        storm.strike(self.name, act)


def broker_killed(storm: Storm, broker: int) -> None:
    """Kill a broker (kill -9), and start it again when others lead its partitions."""
    storm.kafka.kill(broker)
    storm.await_others_lead(broker)
    storm.await_recovery()
    storm.kafka.start(broker)


def broker_paused(storm: Storm, broker: int) -> None:
    """Pause a broker with open connections until it is replaced, and resume the former leader."""
    storm.kafka.pause(broker)
    try:
        storm.await_others_lead(broker)
        storm.await_recovery(of_ours_only=True)
    finally:
        storm.kafka.resume(broker)


def broker_restarted(storm: Storm, broker: int) -> None:
    """Stop and start a broker, as for an upgrade."""
    storm.kafka.stop(broker)
    storm.await_others_lead(broker)
    storm.await_recovery()
    storm.kafka.start(broker)


def broker_cut_off(storm: Storm, broker: int) -> None:
    """Cut a broker off from clients for 4 s: nothing passes, no connection breaks."""
    with _injected(storm, (broker,), Blackhole(direction=Direction.REQUEST), least=2):
        time.sleep(CUT_OFF_S)


def connections_reset(storm: Storm, _: int) -> None:
    """Reset all connections to all brokers, and half of the new ones."""

    def disconnect() -> None:
        for each in BROKERS:
            storm.kafka.proxy(each).disconnect_all()
        storm.await_recovery(of_ours_only=True)

    with _injected(storm, BROKERS, Refuse(probability=0.5), least=4, again=disconnect):
        pass


def acknowledgements_lost(storm: Storm, _: int) -> None:
    """Write a tenth of the batches without a response, and close the connection."""
    with _injected(storm, BROKERS, Lose(api=ApiKey.PRODUCE, probability=0.1)):
        pass


def requests_cut(storm: Storm, _: int) -> None:
    """Close the connection in the middle of a request or response."""
    cuts = (
        Cut(api=ApiKey.PRODUCE, direction=direction, probability=0.05) for direction in Direction
    )
    with _injected(storm, BROKERS, *cuts):
        pass


def acknowledgements_late(storm: Storm, _: int) -> None:
    """Delay a fifth of the acknowledgements by half a second."""
    with _injected(storm, BROKERS, Delay(api=ApiKey.PRODUCE, probability=0.2, delay_ms=500)):
        pass


def application_stalled(storm: Storm, broker: int) -> None:
    """Stall the applications (SIGSTOP) for 8 s, while their leader stops and starts.

    The leader is paused first, so that batches are in flight to it and others wait. While the
    applications stall it writes those in flight, and the responses wait unread. Afterwards all
    these batches are older than the hasty producer's delivery timeout.
    """
    given_up_count = storm.given_up_count()
    storm.kafka.pause(broker)
    time.sleep(HELD_S)
    with storm.stalled(STALL_S):
        storm.kafka.resume(broker)
        storm.kafka.stop(broker)
        storm.await_others_lead(broker)
        storm.kafka.start(broker)
    storm.await_given_up(given_up_count)


@contextmanager
def _injected(
    storm: Storm,
    brokers: tuple[int, ...],
    *faults: Fault,
    least: int = STRUCK_MIN,
    again: Callable[[], None] | None = None,
) -> Iterator[None]:
    """Inject faults around the block until each kind has struck often enough; then heal.

    `again` is repeated until then.
    """
    proxies = [storm.kafka.proxy(broker) for broker in brokers]

    def struck() -> Counter[str]:
        return sum((Counter(proxy.counts) for proxy in proxies), Counter())

    goal = struck() + Counter({fault.name: least for fault in faults})
    try:
        for proxy in proxies:
            proxy.inject(*faults)
        yield
        deadline_s = time.monotonic() + TIMEOUT_S
        while not struck() >= goal:
            assert time.monotonic() < deadline_s, (struck(), goal)
            if storm.is_over:
                raise StormOverError
            if again is not None:
                again()
            time.sleep(LOOK_S)
    finally:
        for proxy in proxies:
            proxy.heal()


STRIKES: Final = (
    Strike(broker_killed),
    Strike(broker_paused),
    Strike(broker_restarted),
    Strike(broker_cut_off),
    Strike(connections_reset),
    Strike(acknowledgements_lost),
    Strike(requests_cut),
    Strike(acknowledgements_late),
    Strike(application_stalled),
)
