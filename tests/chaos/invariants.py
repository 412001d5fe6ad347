"""Invariants of a group, checked against its members' journals.

- No partition has two owners in one generation.
- A member reads only its own partitions, each from the right position, without a gap.
- No offset is committed, according to members or the coordinator, before it is processed.
- Every record that was acknowledged to its producer is processed at least once,
- and not later after that than the longest allowed stall.
- A member that is asked to leave does so in time, and none ends with an error.

Owner: the test that created it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pykclient import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Acknowledged = dict[TopicPartition, dict[int, int]]
"""Time of each acknowledgement in ms since 1970, by partition and offset."""

NO_GENERATION = -1
FIRST_OFFSET = 0
"""First offset of logs in these tests, and of groups without a commit."""


class Ends:
    """Progress over time: increasing offsets by partition."""

    def __init__(self) -> None:
        self._steps: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)

    def add(self, partition: TopicPartition, timestamp_ms: int, end: int) -> None:
        self._steps[partition].append((timestamp_ms, end))

    def settle(self) -> None:
        """Sort the steps; afterwards the progress can be queried."""
        for steps in self._steps.values():
            steps.sort()
            highest = FIRST_OFFSET
            for index, (timestamp_ms, end) in enumerate(steps):
                highest = max(highest, end)
                steps[index] = timestamp_ms, highest

    def at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """Return the progress at a time, including that millisecond."""
        steps = self._steps.get(partition, [])
        index = bisect_right(steps, timestamp_ms, key=lambda step: step[0])
        return steps[index - 1][1] if index else FIRST_OFFSET


@dataclass(frozen=True, slots=True)
class Journal:
    """Events of a watched consumer in order; `status` is None if it was killed or runs.

    Timestamps are ms since 1970, by this machine's clock.
    """

    member: str
    events: tuple[Mapping[str, Any], ...]
    status: int | None = None
    errors: str = ""


class CommittedSample(NamedTuple):
    """Committed offsets that the coordinator returned; the response arrived at `timestamp_ms`."""

    timestamp_ms: int
    offsets: Mapping[TopicPartition, int]


def _partitions_in(event: Mapping[str, Any]) -> set[TopicPartition]:
    return {TopicPartition(part["topic"], part["partition"]) for part in event["partitions"]}


class Invariants:
    """Checks a run: `violations` is empty if all is well; the rest are statistics."""

    def __init__(
        self,
        journals: Sequence[Journal],
        acknowledged: Acknowledged,
        samples: Iterable[CommittedSample],
        *,
        stall_ms_max: int,
        close_ms_max: int,
    ) -> None:
        self.violations: list[str] = []
        self.generations: set[int] = set()
        self.failed_commit_count = 0
        self.processed_count = 0
        self.lost_count = 0
        self.stall_ms = 0
        """Longest time from a record's acknowledgement to its processing."""
        self.close_ms = 0
        """Longest time that a member took to leave."""
        self._processed = Ends()
        self._committed = Ends()
        self._first_processed_ms: dict[TopicPartition, dict[int, int]] = defaultdict(dict)
        self._owners: dict[tuple[int, TopicPartition], str] = {}
        for journal in journals:
            self._note(journal)
        self._processed.settle()
        self._committed.settle()
        for journal in journals:
            _Walk(self, journal).check()
            self._check_end(journal, close_ms_max)
        for sample in samples:
            self._check_sample(sample)
        self._check_processed(acknowledged, stall_ms_max)

    @property
    def record_count(self) -> int:
        return sum(map(len, self._first_processed_ms.values()))

    def claim(self, generation: int, partition: TopicPartition, member: str) -> None:
        """Record that a member owns a partition in a generation."""
        owner = self._owners.setdefault((generation, partition), member)
        if owner != member:
            self.violate(f"{partition} is owned by {owner} and {member} in generation {generation}")

    def violate(self, what: str) -> None:
        self.violations.append(what)

    def processed_end(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """Return the offset after the last one processed by any member at that time."""
        return self._processed.at(partition, timestamp_ms)

    def committed_end(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """Return the highest offset reported as committed before that time."""
        return self._committed.at(partition, timestamp_ms - 1)

    def _note(self, journal: Journal) -> None:
        for event in journal.events:
            timestamp_ms = event["timestamp"]
            match event["name"]:
                case "records_consumed":
                    for part in event["partitions"]:
                        self._note_processed(part, timestamp_ms)
                case "offsets_committed" if event["success"]:
                    for part in event["offsets"]:
                        self._committed.add(_place(part), timestamp_ms, part["offset"])
                case "offsets_committed":
                    self.failed_commit_count += 1

    def _note_processed(self, part: Mapping[str, Any], timestamp_ms: int) -> None:
        place = _place(part)
        self._processed.add(place, timestamp_ms, part["maxOffset"] + 1)
        self.processed_count += part["count"]
        first_ms = self._first_processed_ms[place]
        for offset in range(part["minOffset"], part["maxOffset"] + 1):
            first_ms[offset] = min(timestamp_ms, first_ms.get(offset, timestamp_ms))

    def _check_end(self, journal: Journal, close_ms_max: int) -> None:
        if journal.status not in (None, 0):
            self.violate(f"{journal.member} ended with {journal.status}: {journal.errors}")
        at_ms = {event["name"]: event["timestamp"] for event in journal.events}
        if "shutdown_requested" in at_ms and "shutdown_complete" in at_ms:
            close_ms = at_ms["shutdown_complete"] - at_ms["shutdown_requested"]
            self.close_ms = max(self.close_ms, close_ms)
            if close_ms > close_ms_max:
                self.violate(f"{journal.member} took {close_ms} ms to leave")
        elif journal.status == 0:
            self.violate(f"{journal.member} ended without reporting how it left")

    def _check_sample(self, sample: CommittedSample) -> None:
        for partition, offset in sample.offsets.items():
            processed = self.processed_end(partition, sample.timestamp_ms)
            if offset > processed:
                self.violate(f"{partition} is committed up to {offset}, processed to {processed}")

    def _check_processed(self, acknowledged: Acknowledged, stall_ms_max: int) -> None:
        for partition, at_ms in acknowledged.items():
            first_ms = self._first_processed_ms[partition]
            lost = sorted(at_ms.keys() - first_ms.keys())
            self.lost_count += len(lost)
            if lost:
                self.violate(f"{partition}: {len(lost)} records were not processed, {lost[:5]}...")
            stalls = [(first_ms[at] - at_ms[at], at) for at in at_ms.keys() & first_ms.keys()]
            stall_ms, offset = max(stalls, default=(0, 0))
            self.stall_ms = max(self.stall_ms, stall_ms)
            if stall_ms > stall_ms_max:
                self.violate(f"{partition}: record {offset} was processed {stall_ms} ms late")


class _Walk:
    """Checks each event of a journal against its earlier events and the other journals."""

    def __init__(self, invariants: Invariants, journal: Journal) -> None:
        self._invariants = invariants
        self._journal = journal
        self._member = journal.member
        self._assigned_ms: dict[TopicPartition, int] = {}
        self._positions: dict[TopicPartition, int] = {}

    def check(self) -> None:
        for event in self._journal.events:
            match event["name"]:
                case "partitions_assigned":
                    self._assigned_ms |= dict.fromkeys(_partitions_in(event), event["timestamp"])
                case "partitions_revoked":
                    for place in _partitions_in(event):
                        self._assigned_ms.pop(place, None)
                        self._positions.pop(place, None)
                case "membership":
                    self._claim(event["generation"])
                case "records_consumed":
                    for part in event["partitions"]:
                        self._check_read(part, event["timestamp"])
                case "offsets_committed" if event["success"]:
                    for part in event["offsets"]:
                        self._check_commit(part)

    def _claim(self, generation: int) -> None:
        if generation == NO_GENERATION:  # it knows that it is no longer a member
            return
        self._invariants.generations.add(generation)
        for place in self._assigned_ms:
            self._invariants.claim(generation, place, self._member)

    def _check_read(self, part: Mapping[str, Any], timestamp_ms: int) -> None:
        place, first, end = _place(part), part["minOffset"], part["maxOffset"] + 1
        if place not in self._assigned_ms:
            self._violate(f"reads {place}, which it does not own")
            return
        if part["count"] != end - first:
            self._violate(f"reads {part['count']} records of {place} from {first} to {end}")
        position = self._positions.get(place)
        if position is None:
            self._check_beginning(place, first, timestamp_ms)
        elif first != position:
            self._violate(f"jumps from {position} to {first} in {place}")
        self._positions[place] = end

    def _check_beginning(self, place: TopicPartition, first: int, timestamp_ms: int) -> None:
        """Check the beginning of a new partition: after the committed offset, without a gap."""
        committed = self._invariants.committed_end(place, self._assigned_ms[place])
        processed = self._invariants.processed_end(place, timestamp_ms - 1)  # without this one
        if not committed <= first <= processed:
            self._violate(
                f"begins {place} at {first}; committed were {committed}, processed {processed}"
            )

    def _check_commit(self, part: Mapping[str, Any]) -> None:
        place, offset = _place(part), part["offset"]
        position = self._positions.get(place, FIRST_OFFSET)
        if offset > position:
            self._violate(f"commits {place} up to {offset} and has processed to {position}")

    def _violate(self, what: str) -> None:
        self._invariants.violate(f"{self._member} {what}")


def _place(part: Mapping[str, Any]) -> TopicPartition:
    return TopicPartition(part["topic"], part["partition"])
