"""A group whose members make the calls of a transaction themselves, in stalling applications.

Two members copy a topic, each in its own process, while a feed writes it. One stalls until it is no
longer a member and the other has its partitions: in its own code with heartbeats, in a native call
that holds the GIL, or stopped by SIGSTOP. Then the other one stalls as well, and the first one
continues while the group is empty; brokers then accept transactional offsets from anyone who names
no member. Meanwhile EndTxn requests are delayed, responses are lost, and once a round a broker is
killed during a stall.

The copy must equal the source, as in `bounces.py`. A run fails if no member took over, or if no
member that continued was refused.

Owner: the run; the feed, the processes and the reader have their own threads.
"""

from __future__ import annotations

import signal
import threading
import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from pykclient import Admin, NewTopic, Producer
from pykclient.errors import KafkaError
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing import Delay, Direction, Lose
from tests.chaos.copies import compare
from tests.chaos.numbers import CommittedReader, numbers_of, read_numbers
from tests.chaos.replicas import all_in_sync
from tests.chaos.transactions.aftermath import ONGOING, committed_otherwise, still_open
from tests.chaos.transactions.result import Result
from tests.chaos.transactions.stalling_copier import (
    AFTER_OFFSETS,
    GO_ON,
    IN_CODE,
    IN_NATIVE_CALL,
)
from tests.integration.verifiable_member import VerifiableMember

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.testing import KafkaCluster

BROKERS: Final = (1, 2, 3)
PARTITION_COUNT: Final = 6
REPLICATION: Final = 3
IN_SYNC_MIN: Final = 2
KIP848_MIN: Final = 4
MEMBER_COUNT: Final = 2
TRANSACTION_SIZE: Final = 100
HOLD_MS: Final = 50
LOST: Final = 0.02
"""Share of the responses to a transaction's requests that are lost."""

LOST_APIS: Final = (ApiKey.END_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT)
TIMEOUT_S: Final = 120.0
TAKEOVER_S: Final = 3.0
"""Time limit for the other member to commit records of the partitions it took over.

It cannot if the stalled member has sent its offsets: they stay unstable until its end.
"""

LOOK_S: Final = 0.05
TICK_S: Final = 0.02


class StallSize(NamedTuple):
    """Number of rounds, each with every kind of stall, and records a second."""

    round_count: int = 3
    rate: int = 200


FULL_STALLS: Final = StallSize()
SHORT_STALLS: Final = StallSize(round_count=1)


class StallingMember(VerifiableMember):
    """A process that copies; a context manager."""

    module = "tests.chaos.transactions.stalling_copier"

    def send_signal(self, number: int) -> None:
        """Send a signal that begins or ends a stall."""
        self._process.send_signal(number)

    def count(self, name: str) -> int:
        """Return the number of reported events with this name."""
        return len(self.named(name))


@dataclass(frozen=True, slots=True)
class Stall:
    """Stalling members with a group protocol: ``classic`` or ``consumer``."""

    group_protocol: str

    @property
    def name(self) -> str:
        return f"stall-{self.group_protocol}"

    @property
    def title(self) -> str:
        """Description of the copiers, for the table."""
        titles = {"classic": "a classic group", "consumer": "a group of KIP-848"}
        group = titles[self.group_protocol]
        return f"{group} of {MEMBER_COUNT} copiers by the raw calls, {PARTITION_COUNT} partitions"

    @property
    def strikes(self) -> str:
        """Description of the faults, for the table."""
        return "copiers that stall in code, in a native call, by SIGSTOP; brokers, SIGKILL"

    def is_for(self, version: str) -> bool:
        """Return whether it applies to this version of Kafka: KIP-848 needs 4.0."""
        return self.group_protocol == "classic" or int(version.split(".")[0]) >= KIP848_MIN

    def run(self, kafka: KafkaCluster, size: StallSize = FULL_STALLS) -> Result:
        """Copy a new topic."""
        with _Run(self, kafka, size) as run:
            return run.result()


STALLS: Final = (Stall("classic"), Stall("consumer"))


class Feed:
    """Writes numbers at a steady rate until `stop`; a context manager."""

    def __init__(self, servers: str, topic: str, rate: int) -> None:
        self.count = 0
        """Number of records so far; all numbers below it are sent."""
        self.errors: list[BaseException] = []
        self._topic = topic
        self._rate = rate
        self._producer = Producer[bytes, bytes](bootstrap_servers=servers)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        """Stop writing; return the number of acknowledged records."""
        self._is_over.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "the feed does not end"
        self._producer.close()
        assert not self.errors, self.errors
        return self.count

    def _run(self) -> None:
        started_s = time.monotonic()
        while not self._is_over.wait(TICK_S):
            due = int((time.monotonic() - started_s) * self._rate)
            while self.count < due:
                self._send()

    def _send(self) -> None:
        number = self.count
        self._producer.send(
            self._topic,
            b"%d" % number,
            partition=number % PARTITION_COUNT,
            on_delivery=self._on_delivery,
        )
        self.count += 1

    def _on_delivery(self, _: object, error: BaseException | None) -> None:
        if error is not None:
            self.errors.append(error)


class _Run:
    """A run; a context manager."""

    def __init__(self, stall: Stall, kafka: KafkaCluster, size: StallSize) -> None:
        self._stall = stall
        self._kafka = kafka
        self._size = size
        self._servers = kafka.bootstrap_servers
        stem = f"{stall.name}-{uuid.uuid4().hex[:6]}"
        self._source, self._sink, self._group = (f"{stem}-{each}" for each in ("in", "out", "g"))
        self._members: dict[str, StallingMember] = {}
        self._resources = ExitStack()
        self._strike_count = self._open_count = 0
        self._taken_over: dict[int, int] = {}
        """Number of takeovers by kind of stall, in which the other member copied records."""

    def __enter__(self) -> Self:
        with ExitStack() as resources:
            self._admin = resources.enter_context(Admin(bootstrap_servers=self._servers))
            config = {"min.insync.replicas": str(IN_SYNC_MIN)}
            self._admin.create_topics(
                [
                    NewTopic(name, PARTITION_COUNT, REPLICATION, config=config)
                    for name in (self._source, self._sink)
                ]
            )
            self._reader = resources.enter_context(
                CommittedReader(self._servers, [self._sink], PARTITION_COUNT)
            )
            for broker in BROKERS:
                proxy = self._kafka.proxy(broker)
                resources.callback(proxy.heal)
                proxy.inject(
                    Delay(api=ApiKey.END_TXN, direction=Direction.REQUEST, delay_ms=HOLD_MS),
                    *(Lose(api=api, probability=LOST) for api in LOST_APIS),
                )
            for number in range(MEMBER_COUNT):
                name = f"{self._group}-{number}"
                self._members[name] = resources.enter_context(self._member(name, number))
            self._feed = resources.enter_context(Feed(self._servers, self._source, self._size.rate))
            self._resources = resources.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def result(self) -> Result:
        one, other = self._members
        names = cycle([(one, other), (other, one)])
        brokers = cycle(BROKERS)
        kinds = (IN_CODE, signal.SIGSTOP, IN_NATIVE_CALL)
        for _ in range(self._size.round_count):
            for place, kind in enumerate(kinds):
                self._await_shared()
                killed = None if place else next(brokers)
                name, taker = next(names)
                self._stall_both(name, taker, (kind, kinds[place - 1]), killed=killed)
                if killed is not None:
                    self._kafka.start(killed)
        self._await_shared()
        count = self._feed.stop()
        self._await(lambda: self._copied_count() >= count, "not all is copied")
        return self._judged(count)

    def _judged(self, count: int) -> Result:
        wanted = numbers_of(PARTITION_COUNT, count)
        violations = committed_otherwise(
            self._admin, self._servers, self._group, self._source, PARTITION_COUNT
        )
        for member in self._members.values():
            member.terminate()
        for name, member in self._members.items():
            if (status := member.wait()) != 0:
                violations.append(f"{name} ended with {status}: {member.errors}")
        found = read_numbers(self._servers, self._sink, PARTITION_COUNT)
        every = read_numbers(self._servers, self._sink, PARTITION_COUNT, is_committed_only=False)
        judged = compare(wanted, found, self._sink)
        violations += judged.violations
        violations += compare(wanted, self._reader.found[self._sink], "read meanwhile").violations
        violations += still_open(self._admin, self._members)
        violations += self._what_did_not_strike()
        aborted_count = sum(map(len, every.values())) - sum(map(len, found.values()))
        return Result(judged, self._strike_count, self._open_count, aborted_count, violations)

    def _what_did_not_strike(self) -> list[str]:
        members = self._members.values()
        return [
            f"no {what}"
            for what, count in (
                ("member that went on was refused", sum(each.count("refused") for each in members)),
                (
                    "transaction was aborted on purpose",
                    sum(each.count("aborted") for each in members),
                ),
                ("member stalled in its transaction", self._open_count),
                ("member took over from one that stalled", sum(self._taken_over.values())),
            )
            if not count
        ]

    def _member(self, name: str, number: int) -> StallingMember:
        return StallingMember(
            self._servers,
            *("--source", self._source, "--sink", self._sink, "--group-id", self._group),
            *("--transactional-id", name, "--group-protocol", self._stall.group_protocol),
            *("--transaction-size", str(TRANSACTION_SIZE), "--first-gap", str(number)),
        )

    # Stalls.

    def _stall_both(
        self, name: str, other: str, kinds: tuple[int, int], *, killed: int | None
    ) -> None:
        """Stall one member until the other has taken over, stall that one, and continue both.

        The first one continues while the group is empty; the second one when the first has rejoined
        and taken over.
        """
        first, second = self._members[name], self._members[other]
        kind, kind_of_other = kinds
        gap = self._begin(name, kind)
        if killed is not None:
            self._await(lambda: all_in_sync(self._admin), "replicas are not in sync")
            self._kafka.kill(killed)
        self._await_taken_over(name, other, kind)
        if gap == AFTER_OFFSETS:  # the other one gets no records and cannot stall
            self._end(first, kind)
            self._await_more(first)
            return
        gap_of_other = self._begin(other, kind_of_other)
        self._await(lambda: not self._in_group(), f"{other} stays a member")
        self._end(first, kind)
        self._await_more(first)
        if gap_of_other != AFTER_OFFSETS:  # otherwise no offsets are stable before its end
            self._await_taken_over(other, name, kind_of_other)
        self._end(second, kind_of_other)
        self._await_more(second)

    def _await_taken_over(self, name: str, other: str, kind: int) -> None:
        """Wait until a stalled member is removed, and the other one has its partitions."""
        stalled, taker = self._members[name], self._members[other]
        taken = {each.partition for each in stalled.assigned()}
        self._await(lambda: name not in self._in_group(), f"{name} stays a member")
        self._await(lambda: len(taker.assigned()) == PARTITION_COUNT, f"{other} takes nothing over")
        self._open_count += self._has_transaction(name)
        self._taken_over[kind] = self._taken_over.get(kind, 0) + self._has_copied(taker, taken)

    def _begin(self, name: str, kind: int) -> str:
        """Stall a member; return the gap in which it stalls."""
        member = self._members[name]
        count = member.count("stalled")
        member.send_signal(IN_CODE if kind == signal.SIGSTOP else kind)
        self._await(lambda: member.count("stalled") > count, f"{name} does not stall")
        if kind == signal.SIGSTOP:
            member.send_signal(kind)
        self._strike_count += 1
        gap: str = member.named("stalled")[-1]["gap"]
        return gap

    def _end(self, member: StallingMember, kind: int) -> None:
        if kind == signal.SIGSTOP:
            member.send_signal(signal.SIGCONT)
        member.send_signal(GO_ON)

    def _has_copied(self, member: StallingMember, partitions: set[int]) -> bool:
        """Return whether it commits records of these partitions in time."""
        known = member.count("ended")
        deadline_s = time.monotonic() + TAKEOVER_S
        while time.monotonic() < deadline_s:
            ended = member.named("ended")[known:]
            if any(partitions.intersection(event["partitions"]) for event in ended):
                return True
            time.sleep(LOOK_S)
        return False

    def _in_group(self) -> set[str]:
        """Return the members by transactional id, according to the coordinator."""
        try:
            found = self._admin.describe_groups([self._group])[self._group]
        except KafkaError:
            return set(self._members)  # the coordinator is about to be replaced
        return {member.client_id for member in found.members}

    def _has_transaction(self, transactional_id: str) -> bool:
        found = self._admin.describe_transactions([transactional_id])
        return found[transactional_id].state == ONGOING

    # Waiting.

    def _await_shared(self) -> None:
        """Wait until each member has partitions, and makes progress."""

        def is_shared() -> bool:
            shares = [member.assigned() for member in self._members.values()]
            return all(shares) and sum(map(len, shares)) == PARTITION_COUNT

        self._await(is_shared, "the group does not share its partitions")
        for member in self._members.values():
            self._await_more(member)

    def _await_more(self, member: StallingMember) -> None:
        """Wait until a member has finished another transaction, in any way."""

        def finished_count() -> int:
            return sum(member.count(name) for name in ("ended", "refused", "aborted"))

        count = finished_count()
        self._await(lambda: finished_count() > count, "a member does not go on")

    def _copied_count(self) -> int:
        if self._reader.errors:
            raise self._reader.errors[0]
        return self._reader.count(self._sink)

    def _await(self, condition: Callable[[], bool], complaint: str) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        while not condition():
            for name, member in self._members.items():
                assert not member.has_ended, (name, member.wait(), member.errors)
            assert time.monotonic() < deadline_s, (
                f"{complaint}: {self._copied_count()} of {self._feed.count} are copied; "
                f"{[(name, each.events[-4:]) for name, each in self._members.items()]}"
            )
            time.sleep(LOOK_S)
