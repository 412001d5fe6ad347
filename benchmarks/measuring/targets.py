"""The targets, and how a run is judged by them.

A target compares the median of one figure with that of a rival in the same run, or with a limit.
What was not measured is neither met nor missed.

Owner: none; targets are immutable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from measuring.figures import FIGURES
from measuring.measurement import Key, Series

Groups = Mapping[Key, Mapping[str, Series]]
"""The result of `measurement.grouped`."""


class Relation(Enum):
    """The side of the target on which good values are."""

    AT_LEAST = ">="
    AT_MOST = "<="

    def holds(self, value: float, limit: float) -> bool:
        """Tell whether `value` meets the target."""
        return value >= limit if self is Relation.AT_LEAST else value <= limit


class Judgement(NamedTuple):
    """The verdict on a run, with our median, the rival's, and the value compared to the target."""

    ours: str
    theirs: str
    result: str
    is_met: bool


class Target(Protocol):
    """One row of the table of targets."""

    @property
    def what(self) -> str:
        """The name of the measured value."""
        ...

    @property
    def wanted(self) -> str:
        """The target in words."""
        ...

    def judge(self, groups: Groups) -> Judgement | None:
        """Judge the medians of a run, None when they were not measured."""
        ...


@dataclass(frozen=True, slots=True)
class RatioTarget:
    """Our figure, divided by a rival's in the same case.

    With `floor` it is also met when we reach nine tenths of that client's records/s: then the
    broker is the limit, not we.
    """

    place: tuple[str, str]
    figure: str
    relation: Relation
    limit: float
    rival: str
    client: str = "pykclient"
    floor: str | None = None

    FLOOR_SHARE = 0.9

    @property
    def what(self) -> str:
        """Benchmark, case and figure."""
        client = self.client.removeprefix("pykclient").removeprefix(", ")
        parts = [*self.place, client, FIGURES[self.figure].heading]
        return ", ".join(part for part in parts if part)

    @property
    def wanted(self) -> str:
        """The ratio and the rival."""
        alternative = ""
        if self.floor is not None:
            alternative = f", or {self.FLOOR_SHARE}x {self.floor}"
        return f"{self.relation.value} {self.limit:g}x {self.rival}{alternative}"

    def judge(self, groups: Groups) -> Judgement | None:
        """Divide the medians."""
        ours, theirs = (self._median(groups, client) for client in (self.client, self.rival))
        if ours is None or theirs is None:
            return None
        ratio = ours / theirs
        is_met = self.relation.holds(ratio, self.limit)
        result = f"{ratio:.2f}x"
        floor = None if self.floor is None else self._median(groups, self.floor)
        if floor is not None:
            is_met = is_met or ours / floor >= self.FLOOR_SHARE
            result += f", {ours / floor:.2f}x {self.floor}"
        figure = FIGURES[self.figure]
        return Judgement(figure.text(ours), figure.text(theirs), result, is_met)

    def _median(self, groups: Groups, client: str) -> float | None:
        series = groups.get((*self.place, client), {}).get(self.figure)
        return None if series is None else series.median


@dataclass(frozen=True, slots=True)
class LimitTarget:
    """Our figure against a fixed limit: the median, or with `is_worst` the largest of all turns."""

    place: tuple[str, str]
    figure: str
    limit: float
    is_worst: bool = False

    @property
    def what(self) -> str:
        """Benchmark, case and figure."""
        return ", ".join([*self.place, FIGURES[self.figure].heading])

    @property
    def wanted(self) -> str:
        """The limit."""
        return f"<= {self.limit:g}" + (" in every turn" if self.is_worst else "")

    def judge(self, groups: Groups) -> Judgement | None:
        """Compare the one value."""
        series = groups.get((*self.place, "pykclient"), {}).get(self.figure)
        if series is None:
            return None
        value = series.range[1] if self.is_worst else series.median
        text = FIGURES[self.figure].text(value)
        return Judgement(text, "", text, value <= self.limit)


@dataclass(frozen=True, slots=True)
class GrowthTarget:
    """The CPU of a record at any size against that at the smallest; cases are ``<stem>: <size>``.

    A benchmark that grows something yields the smallest size first.
    """

    stem: str
    limit: float

    @property
    def what(self) -> str:
        """The name of the value that grows."""
        return f"growth, {self.stem}, {FIGURES[FIGURE_OF_GROWTH].heading}"

    @property
    def wanted(self) -> str:
        """The limit."""
        return f"<= {self.limit:g}x the smallest"

    def judge(self, groups: Groups) -> Judgement | None:
        """Divide the largest median by that of the smallest size."""
        medians = [
            figures[FIGURE_OF_GROWTH].median
            for (benchmark, case, _), figures in groups.items()
            if benchmark == "growth" and case.startswith(f"{self.stem}: ")
        ]
        if not medians:
            return None
        figure = FIGURES[FIGURE_OF_GROWTH]
        ratio = max(medians) / medians[0]
        return Judgement(
            figure.text(max(medians)), figure.text(medians[0]), f"{ratio:.2f}x", ratio <= self.limit
        )


FIGURE_OF_GROWTH = "cpu_s_per_million"
RATE, CPU = "records_per_second", "cpu_s_per_million"
CONFLUENT, JAVA, KAFKA_PYTHON = "confluent-kafka", "Java", "kafka-python"
LARGE, SMALL = ("produce", "batch size 1,000,000"), ("produce", "batch size 16,384")
CONSUME = ("consume", "record objects")
OUT, IN = ("arrow", "out"), ("arrow", "in")
LATENCY = ("latency", "one record, linger 0")
AT_LEAST, AT_MOST = Relation.AT_LEAST, Relation.AT_MOST
ARROW = "pykclient, poll_arrow"
PURE = "pykclient, pure"
BUFFER_MEMORY_MIB = 32
FETCH_MAX_MIB = 50

TARGETS: tuple[Target, ...] = (
    RatioTarget(LARGE, RATE, AT_LEAST, 1.5, CONFLUENT),
    RatioTarget(LARGE, CPU, AT_MOST, 0.5, CONFLUENT),
    RatioTarget(SMALL, RATE, AT_LEAST, 1, CONFLUENT),
    RatioTarget(SMALL, RATE, AT_LEAST, 1, JAVA),
    RatioTarget(SMALL, CPU, AT_MOST, 0.8, CONFLUENT),
    RatioTarget(OUT, CPU, AT_MOST, 0.1, CONFLUENT, "pykclient, send_batch"),
    RatioTarget(OUT, CPU, AT_MOST, 0.1, CONFLUENT, "pykclient, send_arrow"),
    RatioTarget(CONSUME, RATE, AT_LEAST, 3, CONFLUENT),
    RatioTarget(CONSUME, RATE, AT_LEAST, 1.3, JAVA),
    RatioTarget(CONSUME, CPU, AT_MOST, 0.2, CONFLUENT),
    RatioTarget(IN, RATE, AT_LEAST, 8, CONFLUENT, ARROW, floor="raw socket"),
    RatioTarget(IN, CPU, AT_MOST, 0.08, CONFLUENT, ARROW),
    RatioTarget(IN, CPU, AT_MOST, 2, "raw socket and CRC", ARROW),
    RatioTarget(("pure", "produce"), RATE, AT_LEAST, 2, KAFKA_PYTHON, PURE),
    RatioTarget(("pure", "consume"), RATE, AT_LEAST, 2, KAFKA_PYTHON, PURE),
    *(
        RatioTarget(LATENCY, figure, AT_MOST, 1, rival)
        for figure in ("ack_p50_ms", "ack_p99_ms", "received_p50_ms", "received_p99_ms")
        for rival in (CONFLUENT, JAVA)
    ),
    LimitTarget(("busy neighbour", "a record each 10 ms"), "ack_p99_ms", 20),
    LimitTarget(("busy neighbour", "member of a group"), "missed_heartbeats", 0, is_worst=True),
    LimitTarget(("memory", "producer"), "growth_mib", BUFFER_MEMORY_MIB + 32),
    LimitTarget(("memory", "consumer"), "growth_mib", 2 * FETCH_MAX_MIB + 64),
    GrowthTarget("produce without keys, partitions", 1.1),
    GrowthTarget("produce with keys, partitions", 1.1),
    GrowthTarget("consume, partitions", 1.1),
    GrowthTarget("produce, records", 1.1),
    GrowthTarget("consume, records", 1.1),
    LimitTarget(("import", "the package"), "import_ms", 60),
    LimitTarget(("import", "the package"), "optional_modules", 0),
    RatioTarget(("tls", "produce"), RATE, AT_LEAST, 1.2, CONFLUENT),
    RatioTarget(("tls", "consume"), RATE, AT_LEAST, 2, CONFLUENT),
    RatioTarget(("transactions", "of 1,000 records"), RATE, AT_LEAST, 2, CONFLUENT),
    *(
        RatioTarget(("tls", "one record, linger 0"), figure, AT_MOST, 1.2, "pykclient, plain")
        for figure in ("ack_p50_ms", "received_p50_ms")
    ),
)
"""In the order of the table."""
