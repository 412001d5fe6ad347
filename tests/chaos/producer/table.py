"""The load ``producers`` of `make chaos`: ours and confluent-kafka, with a fault every few seconds.

The environment can restrict it:

`CHAOS_PRODUCER_RECORDS`  records of each producer; a million.
`CHAOS_PRODUCER_RATE`     records a second; 4,000.
`CHAOS_PRODUCER_STRIKES`  names of faults, separated by commas; all.
`CHAOS_VERSIONS`          versions of Kafka; all tested ones.

What the other client loses, doubles or swaps is in the table, and is no violation.

Owner: the main thread.
"""

from __future__ import annotations

import sys
import time
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from pykclient.testing import KafkaCluster
from pykclient.testing.cluster.jars import KAFKA_VERSIONS
from tests.chaos.arena import BROKER_SETTINGS
from tests.chaos.campaign import chosen, report, versions_of
from tests.chaos.producer.storm import FULL_STORM, HASTY, OURS, THEIRS, Storm, StormSize, by_strike
from tests.chaos.producer.strikes import STRIKES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.chaos.producer.storm import Window, Written
    from tests.chaos.producer.strikes import Strike

SECTION = "Producer under fire"
HEAD = (
    "| Kafka {version}: fault | times | no acknowledgement at all, s: ours, theirs "
    "| none of a partition, s: ours, theirs | ours / theirs |",
    "| --- | --: | --: | --: | --: |",
)
MS_PER_S = 1_000
NOTHING = "-"


class Campaign(NamedTuple):
    """Faults, repeated until all records are sent, and the Kafka versions."""

    strikes: tuple[Strike, ...] = STRIKES
    versions: tuple[str, ...] = KAFKA_VERSIONS
    size: StormSize = FULL_STORM

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Campaign:
        """Parse the environment.

        Raises:
            ValueError: a name is unknown.
        """
        known = {strike.name: strike for strike in STRIKES}
        strikes = chosen(environment.get("CHAOS_PRODUCER_STRIKES"), known)
        size = FULL_STORM._replace(
            record_count=int(environment.get("CHAOS_PRODUCER_RECORDS", FULL_STORM.record_count)),
            rate=int(environment.get("CHAOS_PRODUCER_RATE", FULL_STORM.rate)),
        )
        return cls(strikes, versions_of(environment), size)


class Weathered(NamedTuple):
    """Results of the producers on a version, and the faults."""

    version: str
    written: Mapping[str, Written]
    windows: Sequence[Window]
    seconds: int

    @property
    def violations(self) -> list[str]:
        """Violations of our two producers, the hasty one included."""
        return [*self.written[OURS].violations, *self.written[HASTY].violations]


def weather(kafka: KafkaCluster, strikes: Sequence[Strike], size: StormSize) -> Weathered:
    """Run all producers to their last record, under one fault after another."""
    started_s = time.monotonic()
    with Storm(kafka, size) as storm:
        storm.begin()
        for number in count():
            for strike in strikes:
                if not storm.is_over:
                    strike.run(storm, number)
                    sys.stderr.write(f"{kafka.version}, {strike.name}: over\n")
            if storm.is_over:
                break
        written = storm.settle()
        violations = written[OURS].violations
        struck = by_strike(storm.windows)
        violations += [f"no {strike.name}" for strike in strikes if strike.name not in struck]
        if not written[OURS].retries:
            violations.append("nothing was sent again")
    return Weathered(kafka.version, written, storm.windows, round(time.monotonic() - started_s))


def markdown(weathered: Weathered) -> str:
    """Return the table of a version, followed by the results of each producer."""
    titles = {strike.name: strike.title for strike in STRIKES}
    lines = [HEAD[0].format(version=weathered.version), HEAD[1]]
    for name, windows in by_strike(weathered.windows).items():
        lines.append(_line(titles[name], weathered, windows))
    for client, written in weathered.written.items():
        judged = written.judged
        again = "" if written.retries is None else f", {written.retries:,.0f} sent again"
        lines += [
            "",
            f"{client}: {written.acknowledged_count:,} records acknowledged{again}, "
            f"{len(written.failures):,} failed; {judged.lost_count:,} lost, "
            f"{judged.doubled_count:,} doubled, {judged.swapped_count:,} out of order.",
        ]
    lines += ["", f"{len(weathered.windows)} strikes in {weathered.seconds} s."]
    return "\n".join(lines)


def _line(title: str, weathered: Weathered, windows: Sequence[Window]) -> str:
    def pauses(*, is_of_all: bool) -> list[int]:
        return [
            weathered.written[client].longest_ms(windows, is_of_all=is_of_all)
            for client in (OURS, THEIRS)
        ]

    of_any = pauses(is_of_all=False)
    ratio = f"{of_any[0] / of_any[1]:.2f}" if of_any[1] else NOTHING
    seconds = [", ".join(map(_seconds, each)) for each in (pauses(is_of_all=True), of_any)]
    return f"| {' | '.join((title, str(len(windows)), *seconds, ratio))} |"


def _seconds(duration_ms: int) -> str:
    return f"{duration_ms / MS_PER_S:.1f}"


def run(environment: Mapping[str, str]) -> tuple[str, int]:
    """Run the campaign; return its tables and the number of violations of ours."""
    campaign = Campaign.of(environment)
    tables = []
    violation_count = 0
    for version in campaign.versions:
        with KafkaCluster(3, version, BROKER_SETTINGS, proxied=True) as kafka:
            weathered = weather(kafka, campaign.strikes, campaign.size)
        report(version, weathered.violations)
        violation_count += len(weathered.violations)
        tables.append(markdown(weathered))
    return "\n\n".join([*tables, f"violations of ours: {violation_count}"]), violation_count
