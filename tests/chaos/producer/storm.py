"""Two producers under the same faults: ours and confluent-kafka, each in its own process.

Both write numbers to topics with equal partition leaders, at the same rate, during one strike after
another. In the end each topic must have every acknowledged number, once and in order. Times without
an acknowledgement are attributed to the strike at that time.

A third producer, `HASTY`, is ours with a short `delivery_timeout_ms` and a tenth of the records. In
many strikes, and whenever its application stalls, some of its records expire; those may be in its
topic or not, all others must be there once and in order. After expired records it may report others
as out of order: they may be in the log, so it does not send them as if they were new.

Owner: the thread that created it; other threads read the processes' output.
"""

from __future__ import annotations

import signal
import tempfile
import time
import uuid
from array import array
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from pykclient import Admin, NewTopic
from pykclient.errors import DeliveryTimeoutError, OutOfOrderSequenceNumberError
from tests.chaos.copies import Comparison, compare
from tests.chaos.numbers import numbers_of, read_numbers
from tests.chaos.producer.writer import DELIVERY_TIMEOUT_MS, EVERY
from tests.integration.verifiable_member import VerifiableMember

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pykclient.testing import KafkaCluster

BROKERS: Final = (1, 2, 3)
PARTITION_COUNT: Final = 6
IN_SYNC_MIN: Final = 2
OURS: Final = "pykclient"
THEIRS: Final = "confluent-kafka"
HASTY: Final = "pykclient that delivers within 5 s"
HASTY_TIMEOUT_MS: Final = 5_000
HASTY_SHARE: Final = 10
"""The hasty producer sends one record of this many."""
GIVEN_UP: Final = DeliveryTimeoutError.__name__
REFUSED: Final = OutOfOrderSequenceNumberError.__name__
RECOVERED: Final = 50
"""Acknowledgements of each partition after which a client counts as recovered."""
TIMEOUT_S: Final = 90.0
THEIR_TIMEOUT_S: Final = 45.0
"""Maximum time to wait for the other client."""
END_TIMEOUT_S: Final = 200.0
LOOK_S: Final = 0.02
NS_PER_MS: Final = 1_000_000


class StormOverError(Exception):
    """A strike came too late: all records were sent before it took effect."""


class StormSize(NamedTuple):
    """Records of each producer, records a second, and our acknowledgements between two strikes."""

    record_count: int = 1_000_000
    rate: int = 4_000
    calm: int = 8_000


FULL_STORM: Final = StormSize()


class Pause(NamedTuple):
    """Time between two acknowledgements of a partition, or of all partitions (`EVERY`)."""

    partition: int
    begin_ms: int
    end_ms: int

    @property
    def duration_ms(self) -> int:
        return self.end_ms - self.begin_ms

    def meets(self, other: Window) -> bool:
        """Return whether it overlaps with a window."""
        return self.begin_ms < other.end_ms and other.begin_ms < self.end_ms


class Window(NamedTuple):
    """Time from a strike until both clients have recovered, or the wait has ended."""

    strike: str
    begin_ms: int
    end_ms: int


class Writer(VerifiableMember):
    """A producer's process; a context manager."""

    module = "tests.chaos.producer.writer"

    def counts(self) -> list[int]:
        """Return the number of acknowledged records of each partition."""
        found = self.last("acknowledged")
        return [0] * PARTITION_COUNT if found is None else found["counts"]

    def last(self, name: str) -> dict[str, Any] | None:
        """Return the last event with this name, searching backwards, or None."""
        return next((event for event in reversed(self.events) if event["name"] == name), None)

    def failure_count(self) -> int:
        """Return the number of failed records so far."""
        found = self.last("acknowledged")
        return 0 if found is None else int(found["failures"])

    @property
    def has_sent_all(self) -> bool:
        return self.last("sent") is not None

    def send_signal(self, number: int) -> None:
        """Send a signal that stops or continues its process."""
        self._process.send_signal(number)

    def pauses(self) -> list[Pause]:
        return [
            Pause(event["partition"], event["begin"], event["end"]) for event in self.named("pause")
        ]


@dataclass(frozen=True, slots=True)
class Written:
    """Results of a client: acknowledged numbers, failures and pauses."""

    judged: Comparison
    acknowledged_count: int
    failures: Sequence[str]
    pauses: Sequence[Pause]
    retries: int | None = None
    violations: list[str] = field(default_factory=list)

    def longest_ms(self, windows: Iterable[Window], *, is_of_all: bool) -> int:
        """Return the longest pause within windows, of all partitions together or of any one."""
        known = list(windows)
        return max(
            (
                pause.duration_ms
                for pause in self.pauses
                if (pause.partition == EVERY) is is_of_all
                and any(pause.meets(window) for window in known)
            ),
            default=0,
        )


class Storm:
    """A run of the storm, as a context manager: `begin`, strike, `settle`."""

    def __init__(self, kafka: KafkaCluster, size: StormSize = FULL_STORM) -> None:
        self.kafka = kafka
        self.windows: list[Window] = []
        self._size = size
        self._stem = uuid.uuid4().hex[:8]
        self._writers: dict[str, Writer] = {}
        self._journals: dict[str, Path] = {}
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as resources:
            folder = Path(resources.enter_context(tempfile.TemporaryDirectory()))
            self._admin = resources.enter_context(
                Admin(bootstrap_servers=self.kafka.bootstrap_servers)
            )
            self._journals = {client: folder / client for client in (OURS, THEIRS, HASTY)}
            self._resources = resources.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    @property
    def is_over(self) -> bool:
        """True if our producer has sent all its records."""
        return self._writers[OURS].has_sent_all

    def begin(self) -> None:
        """Start all producers, and wait for acknowledgements of all partitions."""
        replicas = {
            partition: [BROKERS[(partition + other) % len(BROKERS)] for other in range(3)]
            for partition in range(PARTITION_COUNT)
        }
        config = {"min.insync.replicas": str(IN_SYNC_MIN)}
        self._admin.create_topics(
            [
                NewTopic(self._topic(client), replica_assignments=replicas, config=config)
                for client in self._journals
            ]
        )
        for client, journal in self._journals.items():
            size = self._size_of(client)
            timeout_ms = HASTY_TIMEOUT_MS if client == HASTY else DELIVERY_TIMEOUT_MS
            self._writers[client] = self._resources.enter_context(
                Writer(
                    self.kafka.bootstrap_servers,
                    *("--client", THEIRS if client == THEIRS else OURS, "--journal", str(journal)),
                    *("--topic", self._topic(client), "--partitions", str(PARTITION_COUNT)),
                    *("--records", str(size.record_count), "--rate", str(size.rate)),
                    *("--delivery-timeout-ms", str(timeout_ms)),
                )
            )
        self.await_recovery()

    def strike(self, name: str, act: Callable[[Storm], None]) -> None:
        """Wait for acknowledgements, strike, and wait until both clients have recovered."""
        self._await_calm()
        if self.is_over:
            return
        begin_ms = _now_ms()
        try:
            act(self)
        except StormOverError:
            return
        self.await_recovery()
        self.windows.append(Window(name, begin_ms, _now_ms()))

    @contextmanager
    def stalled(self, duration_s: float) -> Iterator[None]:
        """Stop the processes of all producers during the block, and at least for a duration."""
        started_s = time.monotonic()
        for writer in self._writers.values():
            writer.send_signal(signal.SIGSTOP)
        try:
            yield
            time.sleep(max(0.0, started_s + duration_s - time.monotonic()))
        finally:
            for writer in self._writers.values():
                writer.send_signal(signal.SIGCONT)

    def given_up_count(self) -> int:
        """Return how many records of the hasty producer have expired so far."""
        return self._writers[HASTY].failure_count()

    def await_given_up(self, count: int) -> None:
        """Wait until more than `count` records of the hasty producer have expired.

        Raises:
            StormOverError: it has sent all its records.
        """
        deadline_s = time.monotonic() + TIMEOUT_S
        while self.given_up_count() <= count:
            if self._writers[HASTY].has_sent_all:
                raise StormOverError
            assert time.monotonic() < deadline_s, "no record of the hasty producer expires"
            self._look()

    def await_recovery(self, *, of_ours_only: bool = False) -> None:
        """Wait for more acknowledgements of each partition; for the other client, up to a limit."""
        goals = {client: self._goal(writer) for client, writer in self._writers.items()}
        started_s = time.monotonic()
        for client in (OURS, HASTY):
            while not self._has_reached(client, goals[client]):
                assert time.monotonic() - started_s < TIMEOUT_S, self._writers[client].events[-3:]
                self._look()
        deadline_s = started_s + THEIR_TIMEOUT_S
        while not of_ours_only and not self._has_reached(THEIRS, goals[THEIRS]):
            if time.monotonic() > deadline_s:
                return
            self._look()

    def leads(self, broker: int) -> list[int]:
        """Return the partitions led by a broker, according to running brokers."""
        topic = self._topic(OURS)
        return [p for p in range(PARTITION_COUNT) if self.kafka.leader(topic, p) == broker]

    def await_others_lead(self, broker: int) -> None:
        """Wait until the broker leads no partition."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while self.leads(broker):
            assert time.monotonic() < deadline_s, f"broker {broker} still leads"
            self._look()

    def settle(self) -> dict[str, Written]:
        """Wait until all producers have ended, and check what they have written."""
        return {client: self._judged(client) for client in self._writers}

    def _judged(self, client: str) -> Written:
        writer, size = self._writers[client], self._size_of(client)
        deadline_s = time.monotonic() + size.record_count / size.rate + END_TIMEOUT_S
        while not writer.has_ended:
            assert time.monotonic() < deadline_s, f"{client} does not end: {writer.events[-1:]}"
            time.sleep(LOOK_S)
        status = writer.wait()
        assert status == 0, (client, status, writer.errors)
        done = writer.named("done")[0]
        numbers = array("q")
        numbers.frombytes(self._journals[client].read_bytes())
        acknowledged: dict[int, list[int]] = {p: [] for p in range(PARTITION_COUNT)}
        for number in sorted(numbers):
            acknowledged[number % PARTITION_COUNT].append(number)
        topic = self._topic(client)
        found = read_numbers(self.kafka.bootstrap_servers, topic, PARTITION_COUNT)
        possible = numbers_of(PARTITION_COUNT, size.record_count)
        judged = compare(acknowledged, found, topic, possible=possible)
        violations = [*judged.violations]
        failures = done["failures"]
        if wrong := unexplained(failures) if client == HASTY else failures:
            violations.append(f"{len(wrong)} records failed: {wrong[:3]}")
        if done["unknown"]:
            violations.append(f"{done['unknown']} records have no result")
        return Written(
            judged,
            len(numbers),
            failures,
            writer.pauses(),
            retries=done.get("retries"),
            violations=violations,
        )

    def _size_of(self, client: str) -> StormSize:
        size = self._size
        if client != HASTY:
            return size
        return size._replace(
            record_count=size.record_count // HASTY_SHARE, rate=size.rate // HASTY_SHARE
        )

    def _topic(self, client: str) -> str:
        return f"{client.replace(' ', '-')}-{self._stem}"

    def _await_calm(self) -> None:
        writer = self._writers[OURS]
        goal = sum(writer.counts()) + self._size.calm
        deadline_s = time.monotonic() + TIMEOUT_S
        while not self.is_over and sum(writer.counts()) < goal:
            assert time.monotonic() < deadline_s, "there are no acknowledgements"
            self._look()

    def _goal(self, writer: Writer) -> list[int]:
        return [count + RECOVERED for count in writer.counts()]

    def _has_reached(self, client: str, goal: Sequence[int]) -> bool:
        writer = self._writers[client]
        counts = writer.counts()
        return writer.has_sent_all or all(
            count >= wanted for count, wanted in zip(counts, goal, strict=True)
        )

    def _look(self) -> None:
        for client, writer in self._writers.items():
            if writer.has_ended and not writer.named("done"):
                raise AssertionError((client, writer.wait(), writer.errors))
        time.sleep(LOOK_S)


def unexplained(failures: Iterable[str]) -> list[str]:
    """Return the failures that a short delivery timeout does not explain.

    It explains expired records, and those right after them that the log refuses as out of order.
    """
    explained: set[int] = set()
    others = []
    for failure in sorted(failures, key=_failed_number):
        number = _failed_number(failure)
        is_behind = number - PARTITION_COUNT in explained and REFUSED in failure
        if GIVEN_UP in failure or is_behind:
            explained.add(number)
        else:
            others.append(failure)
    return others


def _failed_number(failure: str) -> int:
    return int(failure.split(":", 1)[0])


def by_strike(windows: Iterable[Window]) -> Mapping[str, list[Window]]:
    """Group windows by strike, in order of first occurrence."""
    found: dict[str, list[Window]] = {}
    for window in windows:
        found.setdefault(window.strike, []).append(window)
    return found


def _now_ms() -> int:
    return time.time_ns() // NS_PER_MS
