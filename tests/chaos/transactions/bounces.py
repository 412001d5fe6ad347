"""Kafka's own system tests of transactions: copiers, with bounces of copiers or brokers.

In partition mode each copier has a partition of the source; in group mode they share it as a group.
Copiers are ours, or one of them Java's, and abort a third of their transactions at random. As in
Kafka's tests, the sink of two partitions has three; a copier keeps the partition number, so that
one stays empty. A reader reads committed records all the time. In the end the copies must equal the
source, the group's offsets must be at its end, and no transaction may be open.

A bounce happens when copying is in progress, and verifies that it took effect. For a broker: others
lead and transactions commit while it is down, and copiers are at work when the next one goes. For a
copier: its transaction is open when it is killed.

Owner: the run; copiers and the reader have their own threads.
Source: ``transactions_test.py`` and ``group_mode_transactions_test.py`` of Kafka's system tests.
"""

from __future__ import annotations

import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient import Admin, NewTopic
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing import Delay, Direction
from pykclient.testing.transactional_copier import ABORTED_OF
from tests.chaos.copies import compare
from tests.chaos.numbers import CommittedReader, Numbers, numbers_of, read_numbers, write_numbers
from tests.chaos.replicas import all_in_sync
from tests.chaos.transactions.aftermath import ONGOING, committed_otherwise, still_open
from tests.chaos.transactions.copiers import BouncedCopier
from tests.chaos.transactions.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.testing import KafkaCluster

BROKERS: Final = (1, 2, 3)
REPLICATION: Final = 3
IN_SYNC_MIN: Final = 2
PROGRESS_MIN: Final = 0.2
"""Share of its records that a copier must have copied before it is bounced."""
LOOK_S: Final = 0.02
TIMEOUT_S: Final = 240.0
HOLD_MS: Final = 100
BROKER_TARGET: Final = "brokers"
COPIERS: Final = "copiers"
SINK_PARTITION_COUNTS: Final = {2: 3}
"""Number of sink partitions, if it differs from the source's."""


class Size(NamedTuple):
    """Number of records (a third if there is one partition), and of records a transaction.

    Each copier is bounced `round_count` times. With bounces of brokers, which need time to return,
    copying takes about `copying_s`.
    """

    record_count: int = 100_000
    transaction_size: int = 750
    round_count: int = 3
    copying_s: int = 40


FULL: Final = Size()
"""The size in Kafka's tests."""
SHORT: Final = Size(record_count=12_000, transaction_size=100, round_count=1, copying_s=30)


@dataclass(frozen=True, slots=True)
class Bounce:
    """Copiers and their fault: with `is_clean` by SIGTERM, otherwise by SIGKILL.

    With `uses_group_metadata`, offsets are committed as members. `java_count` copiers are Java's.
    """

    target: str
    is_clean: bool
    is_group: bool
    uses_group_metadata: bool = True
    partition_count: int = 1
    java_count: int = 0

    @property
    def name(self) -> str:
        return "-".join(
            (
                "group" if self.is_group else "partition",
                "clean" if self.is_clean else "hard",
                self.target,
                *(() if self.is_group else (str(self.partition_count),)),
                *(() if self.uses_group_metadata else ("without_metadata",)),
                *(("beside_java",) if self.java_count else ()),
            )
        )

    @property
    def title(self) -> str:
        """Description of the copiers, for the table."""
        count = self.partition_count
        partitions = "one partition" if count == 1 else f"{count} partitions"
        if self.is_group:
            java = ", one of them Java's" if self.java_count else ""
            return f"a group of {self.copier_count} copiers{java}, {partitions}"
        metadata = "" if self.uses_group_metadata else ", without the group's metadata"
        return f"a copier for each of {partitions}{metadata}"

    @property
    def strikes(self) -> str:
        """Description of the fault, for the table."""
        return f"{self.target}, {'SIGTERM' if self.is_clean else 'SIGKILL'}"

    def is_for(self, version: str) -> bool:
        """Return whether it applies to this version of Kafka: to any."""
        return bool(version)

    @property
    def copier_count(self) -> int:
        return 3 if self.is_group else self.partition_count

    @property
    def sink_partition_count(self) -> int:
        return SINK_PARTITION_COUNTS.get(self.partition_count, self.partition_count)

    def run(self, kafka: KafkaCluster, size: Size = FULL) -> Result:
        """Run it with new copiers."""
        with _Run(self, kafka, size) as run:
            return run.result()


class _Run:
    """A run; a context manager."""

    def __init__(self, bounce: Bounce, kafka: KafkaCluster, size: Size) -> None:
        self._bounce = bounce
        self._kafka = kafka
        self._size = size
        self._servers = kafka.bootstrap_servers
        is_short = bounce.partition_count == 1
        self._count = size.record_count // 3 if is_short else size.record_count
        self._wanted = numbers_of(bounce.partition_count, self._count)
        stem = f"{bounce.name}-{uuid.uuid4().hex[:6]}"
        self._source = f"in-{bounce.partition_count}-{self._count}"
        self._sink, self._group = f"out-{stem}", f"group-{stem}"
        self._resources = ExitStack()
        self._strike_count = self._open_count = 0

    def __enter__(self) -> _Run:
        with ExitStack() as resources:
            self._admin = resources.enter_context(Admin(bootstrap_servers=self._servers))
            self._make_topics()
            for broker in BROKERS:
                proxy = self._kafka.proxy(broker)
                resources.callback(proxy.heal)
                proxy.inject(
                    Delay(
                        api=ApiKey.END_TXN,
                        direction=Direction.REQUEST,
                        delay_ms=self._hold_ms(),
                    )
                )
            self._reader = resources.enter_context(
                CommittedReader(self._servers, [self._sink], self._bounce.sink_partition_count)
            )
            self._copiers = [
                resources.enter_context(self._copier(number))
                for number in range(self._bounce.copier_count)
            ]
            self._resources = resources.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def result(self) -> Result:
        if self._bounce.target == BROKER_TARGET:
            self._bounce_brokers()
        else:
            self._bounce_copiers()
        self._await(lambda: all(each.is_done for each in self._copiers), "not all is copied")
        self._await(lambda: self._copied_count() >= self._count, "not all is read")
        sink_count = self._bounce.sink_partition_count
        found = read_numbers(self._servers, self._sink, sink_count)
        every = read_numbers(self._servers, self._sink, sink_count, is_committed_only=False)
        judged = compare(self._wanted, found, self._sink)
        violations = [*judged.violations]
        violations += committed_otherwise(
            self._admin, self._servers, self._group, self._source, self._bounce.partition_count
        )
        violations += still_open(self._admin, [each.transactional_id for each in self._copiers])
        seen = compare(self._wanted, self._reader.found[self._sink], "read meanwhile")
        violations += seen.violations
        least = len(BROKERS) if self._bounce.target == BROKER_TARGET else len(self._copiers)
        if self._strike_count < least:
            violations.append(f"{self._strike_count} bounces struck, of at least {least}")
        is_killed = self._bounce.target == COPIERS and not self._bounce.is_clean
        if is_killed and not self._open_count:
            violations.append("no copier was killed in a transaction")
        aborted_count = _count(every) - _count(found)
        if not aborted_count:
            violations.append("no transaction was aborted")
        return Result(judged, self._strike_count, self._open_count, aborted_count, violations)

    def _make_topics(self) -> None:
        settings = {"min.insync.replicas": str(IN_SYNC_MIN)}
        count = self._bounce.partition_count
        sink_count = self._bounce.sink_partition_count
        self._admin.create_topics([NewTopic(self._sink, sink_count, REPLICATION, config=settings)])
        if self._source not in self._admin.list_topics():
            self._admin.create_topics([NewTopic(self._source, count, REPLICATION, config=settings)])
            write_numbers(self._servers, self._source, count, self._count)

    def _hold_ms(self) -> int:
        """Return the delay of each EndTxn request, during which its transaction is open."""
        if self._bounce.target == COPIERS:
            return HOLD_MS
        commit_count = self._count / self._size.transaction_size / self._bounce.copier_count
        transaction_count = commit_count * ABORTED_OF / (ABORTED_OF - 1)
        return round(self._size.copying_s * 1_000 / transaction_count)

    def _copier(self, number: int) -> BouncedCopier:
        bounce = self._bounce
        return BouncedCopier(
            self._servers,
            f"{self._group}-copier-{number}",
            *("--input-topic", self._source, "--output-topic", self._sink),
            *("--input-partition", str(-1 if bounce.is_group else number)),
            *("--consumer-group", self._group),
            *("--transaction-size", str(self._size.transaction_size)),
            *("--transaction-timeout", "10000" if bounce.is_group else "40000"),
            "--enable-random-aborts",
            *(("--group-mode",) if bounce.is_group else ()),
            *(("--use-group-metadata",) if bounce.uses_group_metadata else ()),
            java_version=self._kafka.version if number < bounce.java_count else None,
        )

    def _bounce_brokers(self) -> None:
        for broker in BROKERS:
            self._await_more()
            self._await(lambda: all_in_sync(self._admin), "replicas are not in sync")
            if all(copier.is_done for copier in self._copiers):
                return
            if self._bounce.is_clean:
                self._kafka.stop(broker)
            else:
                self._kafka.kill(broker)
            for partition in self._wanted:
                assert self._kafka.leader(self._sink, partition) != broker
            if not all(copier.is_done for copier in self._copiers):
                self._await_more()
                self._strike_count += 1
            self._kafka.start(broker)

    def _bounce_copiers(self) -> None:
        for _ in range(self._size.round_count):
            for copier in self._copiers:
                self._await(
                    partial(self._can_be_bounced, copier),
                    f"copier {copier.transactional_id} does not come far enough",
                )
                if copier.is_done:
                    continue
                copier.stop(is_clean=self._bounce.is_clean)
                self._strike_count += 1
                self._open_count += self._has_transaction(copier)
                copier.start()

    def _can_be_bounced(self, copier: BouncedCopier) -> bool:
        """Return whether it has copied enough and is in a transaction, or is done."""
        is_far = copier.progress >= PROGRESS_MIN
        return copier.is_done or (is_far and self._has_transaction(copier))

    def _has_transaction(self, copier: BouncedCopier) -> bool:
        name = copier.transactional_id
        return self._admin.describe_transactions([name])[name].state == ONGOING

    def _copied_count(self) -> int:
        if self._reader.errors:
            raise self._reader.errors[0]
        return self._reader.count(self._sink)

    def _await_more(self) -> None:
        """Wait until another transaction is committed, or all are."""
        goal = min(self._count, self._copied_count() + self._size.transaction_size)
        self._await(lambda: self._copied_count() >= goal, "there is no progress")

    def _await(self, condition: Callable[[], bool], complaint: str) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        while not condition():
            for copier in self._copiers:
                copier.check()
            assert time.monotonic() < deadline_s, (
                f"{complaint}: {self._copied_count()} of {self._count} are copied, "
                f"{[(each.transactional_id, each.progress) for each in self._copiers]}"
            )
            time.sleep(LOOK_S)


def _count(numbers: Numbers) -> int:
    return sum(map(len, numbers.values()))


PARTITIONS_OF_GROUP: Final = 9

BOUNCES: Final = (
    *(
        Bounce(
            target,
            is_clean=is_clean,
            is_group=False,
            uses_group_metadata=uses_group_metadata,
            partition_count=partition_count,
        )
        for partition_count in (1, 2)
        for uses_group_metadata in (True, False)
        for target in (BROKER_TARGET, COPIERS)
        for is_clean in (False, True)
    ),
    *(
        Bounce(
            target,
            is_clean=is_clean,
            is_group=True,
            partition_count=PARTITIONS_OF_GROUP,
            java_count=java_count,
        )
        for java_count in (0, 1)
        for target in (BROKER_TARGET, COPIERS)
        for is_clean in (False, True)
    ),
)
