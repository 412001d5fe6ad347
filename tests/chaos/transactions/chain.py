"""A chain of topics, each copied to the next by `ExactlyOnce`; the last must equal the first.

Two members copy each topic, each in its own process, and abort transactions at random. After every
further part of the records a fault follows: a process is killed in its transaction; a broker is
killed, or paused until others lead; or a process stalls in its transaction until it is no longer a
member and the other has taken over. It stalls in its block with heartbeats, or is stopped by
SIGSTOP.

Owner: the run; the processes and the reader have their own threads.
"""

from __future__ import annotations

import signal
import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient import Admin, NewTopic
from pykclient.errors import KafkaError
from tests.chaos.copies import compare
from tests.chaos.numbers import CommittedReader, numbers_of, read_numbers, write_numbers
from tests.chaos.replicas import all_in_sync
from tests.chaos.transactions.aftermath import ONGOING, committed_otherwise, still_open
from tests.chaos.transactions.result import Result
from tests.chaos.transactions.stalling_copier import GO_ON, IN_CODE
from tests.integration.verifiable_member import VerifiableMember

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.testing import KafkaCluster

BROKERS: Final = (1, 2, 3)
TOPIC_COUNT: Final = 4
KIP848_MIN: Final = 4
PARTITION_COUNT: Final = 4
REPLICATION: Final = 3
IN_SYNC_MIN: Final = 2
MEMBERS_OF_LINK: Final = 2
TIMEOUT_S: Final = 180.0
LOOK_S: Final = 0.02


class ChainSize(NamedTuple):
    """Number of records, and of records between two faults."""

    record_count: int = 200_000
    strike_every: int = 10_000
    transaction_size: int = 500


FULL_CHAIN: Final = ChainSize()
SHORT_CHAIN: Final = ChainSize(record_count=20_000, strike_every=3_000, transaction_size=100)


class Link(VerifiableMember):
    """A process that copies; a context manager."""

    module = "tests.chaos.transactions.link"

    def send_signal(self, number: int) -> None:
        """Send a signal that begins or ends a stall."""
        self._process.send_signal(number)


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain whose members use a group protocol: ``classic`` or ``consumer``."""

    group_protocol: str

    @property
    def name(self) -> str:
        return f"chain-{self.group_protocol}"

    @property
    def title(self) -> str:
        """Description of the copiers, for the table."""
        titles = {"classic": "classic groups", "consumer": "groups of KIP-848"}
        return f"a chain of {TOPIC_COUNT} topics, {titles[self.group_protocol]}"

    @property
    def strikes(self) -> str:
        """Description of the faults, for the table."""
        return "members, SIGKILL, SIGSTOP and stalls in code; brokers, SIGKILL and SIGSTOP"

    def is_for(self, version: str) -> bool:
        """Return whether it applies to this version of Kafka: KIP-848 needs 4.0."""
        return self.group_protocol == "classic" or int(version.split(".")[0]) >= KIP848_MIN

    def run(self, kafka: KafkaCluster, size: ChainSize = FULL_CHAIN) -> Result:
        """Copy along a new chain of topics."""
        with _Run(self, kafka, size) as run:
            return run.result()


CHAINS: Final = (Chain("classic"), Chain("consumer"))


class _Run:
    """A run; a context manager."""

    def __init__(self, chain: Chain, kafka: KafkaCluster, size: ChainSize) -> None:
        self._kafka = kafka
        self._size = size
        self._group_protocol = chain.group_protocol
        self._servers = kafka.bootstrap_servers
        self._wanted = numbers_of(PARTITION_COUNT, size.record_count)
        self._stem = f"chain-{uuid.uuid4().hex[:6]}"
        self._topics = [f"{self._stem}-{number}" for number in range(TOPIC_COUNT)]
        self._links: dict[str, Link] = {}
        """Running processes by transactional id."""
        self._killed: list[Link] = []
        self._resources = ExitStack()
        self._open_count = self._broker_count = 0
        self._stall_count = self._stalled_open_count = 0

    def __enter__(self) -> _Run:
        with ExitStack() as resources:
            self._admin = resources.enter_context(Admin(bootstrap_servers=self._servers))
            config = {"min.insync.replicas": str(IN_SYNC_MIN)}
            self._admin.create_topics(
                [NewTopic(n, PARTITION_COUNT, REPLICATION, config=config) for n in self._topics]
            )
            write_numbers(self._servers, self._topics[0], PARTITION_COUNT, self._size.record_count)
            self._reader = resources.enter_context(
                CommittedReader(self._servers, self._topics[-1:], PARTITION_COUNT)
            )
            self._resources = resources.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def result(self) -> Result:
        for number in range(MEMBERS_OF_LINK):
            for place in range(TOPIC_COUNT - 1):
                self._start(f"{self._group(place)}-{number}")
        strikes = cycle(self._strikes())
        for goal in range(
            self._size.strike_every, self._size.record_count, self._size.strike_every
        ):
            self._await_arrival(goal)
            next(strikes)()
        self._await(lambda: self._arrived_count() >= self._size.record_count, "not all has arrived")
        violations = self._ended()
        judged = compare(self._wanted, self._reader.found[self._topics[-1]], "read meanwhile")
        violations += judged.violations
        for topic in self._topics:
            found = read_numbers(self._servers, topic, PARTITION_COUNT)
            judged = compare(self._wanted, found, topic)
            violations += judged.violations
        every = [*self._killed, *self._links.values()]
        planned_count = sum(len(link.named("aborted")) for link in every)
        violations += self._what_did_not_strike(planned_count)
        strike_count = len(self._killed) + self._broker_count + self._stall_count
        open_count = self._open_count + self._stalled_open_count
        return Result(judged, strike_count, open_count, planned_count, violations)

    def _ended(self) -> list[str]:
        """Stop the processes; return the violations that remain."""
        violations = []
        for place, source in enumerate(self._topics[:-1]):
            violations += committed_otherwise(
                self._admin, self._servers, self._group(place), source, PARTITION_COUNT
            )
        # A process that is starting has no signal handler yet.
        self._await(self._are_started, "a process does not start")
        for link in self._links.values():
            link.terminate()
        for name, link in self._links.items():
            if (status := link.wait()) != 0:
                violations.append(f"{name} ended with {status}: {link.errors}")
        return [*violations, *still_open(self._admin, self._links)]

    def _are_started(self) -> bool:
        return all(link.named("startup_complete") for link in self._links.values())

    def _what_did_not_strike(self, planned_count: int) -> list[str]:
        return [
            f"no {what}"
            for what, count in (
                ("transaction was aborted on purpose", planned_count),
                ("process was killed in a transaction", self._open_count),
                ("broker was killed or paused", self._broker_count),
                ("process stalled in a transaction", self._stalled_open_count),
            )
            if not count
        ]

    def _group(self, place: int) -> str:
        return f"{self._stem}-group-{place}"

    def _start(self, transactional_id: str) -> None:
        group, _ = transactional_id.rsplit("-", 1)
        place = int(group.rsplit("-", 1)[1])
        source, sink = list(pairwise(self._topics))[place]
        link = Link(
            self._servers,
            *("--source", source, "--sink", sink, "--group-id", group),
            *("--transactional-id", transactional_id, "--group-protocol", self._group_protocol),
            *("--transaction-size", str(self._size.transaction_size)),
        )
        self._links[transactional_id] = self._resources.enter_context(link)

    def _strikes(self) -> Iterator[Callable[[], None]]:
        """Return the faults, one after another."""
        brokers = cycle(BROKERS)
        kinds = cycle((IN_CODE, signal.SIGSTOP))
        # The members that write the last topic have work until everything has arrived.
        last = cycle(range(MEMBERS_OF_LINK))
        for number in range(MEMBERS_OF_LINK):
            for place in range(TOPIC_COUNT - 1):
                name = f"{self._group(place)}-{number}"
                yield partial(self._kill, name)
                if place % 2:
                    yield lambda: self._pause_broker(next(brokers))
                else:
                    yield lambda: self._kill_broker(next(brokers))
                yield lambda: self._stall(TOPIC_COUNT - 2, next(last), next(kinds))

    def _kill(self, transactional_id: str) -> None:
        """Kill a process in a transaction, or when nothing is left for it to copy."""
        self._await(
            lambda: self._has_transaction(transactional_id) or self._has_nothing_to_do(),
            f"{transactional_id} begins no transaction",
        )
        link = self._links[transactional_id]
        link.kill()
        link.wait()
        self._killed.append(link)
        self._open_count += self._has_transaction(transactional_id)
        self._start(transactional_id)

    def _stall(self, place: int, number: int, kind: int) -> None:
        """Stall a process in a block until the other one has its partitions; then let it continue.

        A process without work does not stall.
        """
        self._await_in_sync()
        name = f"{self._group(place)}-{number}"
        link = self._links[name]
        other = self._links[f"{self._group(place)}-{(number + 1) % MEMBERS_OF_LINK}"]
        count = len(link.named("stalled"))
        link.send_signal(IN_CODE)
        self._await(
            lambda: len(link.named("stalled")) > count or self._has_nothing_to_do(),
            f"{name} begins no block",
        )
        stalled = link.named("stalled")[count:]
        if not stalled:
            return
        if kind == signal.SIGSTOP:
            link.send_signal(kind)
        partitions = set(stalled[-1]["partitions"])
        known = len(other.named("ended"))
        self._await(lambda: name not in self._members(place), f"{name} stays a member")
        self._await(
            lambda: any(
                partitions.intersection(each["partitions"]) for each in other.named("ended")[known:]
            ),
            f"no other member takes over from {name}",
        )
        self._stall_count += 1
        self._stalled_open_count += self._has_transaction(name)
        if kind == signal.SIGSTOP:
            link.send_signal(signal.SIGCONT)
        link.send_signal(GO_ON)

    def _members(self, place: int) -> set[str]:
        """Return the members of a link by transactional id, according to the coordinator."""
        group = self._group(place)
        try:
            found = self._admin.describe_groups([group])[group]
        except KafkaError:
            return set(self._links)  # the coordinator is about to be replaced
        return {member.client_id for member in found.members}

    def _kill_broker(self, broker: int) -> None:
        self._await_in_sync()
        self._kafka.kill(broker)
        self._await_leaders(broker)
        self._broker_count += 1
        self._kafka.start(broker)

    def _pause_broker(self, broker: int) -> None:
        self._await_in_sync()
        self._kafka.pause(broker)
        try:
            self._await_leaders(broker)
            self._broker_count += 1
        finally:
            self._kafka.resume(broker)

    def _await_in_sync(self) -> None:
        """Wait until the previously failed broker can lead again."""
        self._await(lambda: all_in_sync(self._admin), "replicas are not in sync")

    def _await_leaders(self, broker: int) -> None:
        """Wait until others lead this broker's partitions, and records arrive."""
        self._await(lambda: not self._leads(broker), f"broker {broker} still leads")
        more = self._arrived_count() + self._size.transaction_size
        self._await_arrival(min(self._size.record_count, more))

    def _leads(self, broker: int) -> bool:
        leaders = [self._kafka.leader(self._topics[-1], each) for each in range(PARTITION_COUNT)]
        return broker in leaders

    def _has_transaction(self, transactional_id: str) -> bool:
        found = self._admin.describe_transactions([transactional_id])
        return found[transactional_id].state == ONGOING

    def _has_nothing_to_do(self) -> bool:
        return self._arrived_count() >= self._size.record_count

    def _arrived_count(self) -> int:
        if self._reader.errors:
            raise self._reader.errors[0]
        return self._reader.count(self._topics[-1])

    def _await_arrival(self, count: int) -> None:
        """Wait until the last topic has this many records."""
        self._await(lambda: self._arrived_count() >= count, "there is no progress")

    def _await(self, condition: Callable[[], bool], complaint: str) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        while not condition():
            for name, link in self._links.items():
                assert not link.has_ended, (name, link.wait(), link.errors)
            assert time.monotonic() < deadline_s, (
                f"{complaint}: {self._arrived_count()} of {self._size.record_count} have arrived; "
                f"{[(name, link.events[-2:]) for name, link in self._links.items()]}"
            )
            time.sleep(LOOK_S)
