"""FetchBuffer: fetched records that were not returned yet; takes them from partitions in turn.

Per partition it keeps a chain of completed fetches. Each begins where the one before ends; the
first one contains the position. A partition is *ready* or *parked*: paused, at its limit, or
stopped at a record that its deserializer could not read. Positions move when records are taken.

`Read` runs user code, after records are found and before the position moves past them. If that code
changes the partition, the change counts, and records are looked up again.

Owner: the core lock, as for `SubscriptionState`.
Source: Java classes ``FetchBuffer`` and ``FetchCollector``.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.errors import CorruptRecordError, KafkaError, RecordDeserializationError
from pykclient.errors.tracebacks import renewed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pykclient.consumer.fetch.completed_fetch import CompletedFetch, FetchedResponse
    from pykclient.consumer.record import RecordSpan
    from pykclient.consumer.subscription import AssignedPartition
    from pykclient.network.retry import Backoff

    Read = Callable[[AssignedPartition, RecordSpan], RecordSpan]
    """Converts records for the application: all of them, or the first ones.

    Raises:
        RecordDeserializationError: the first record cannot be read.
    """

TAKEN_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum bytes that one take decompresses; the next one continues.

With the batch that exceeds it, and copies of values, memory grows by four times as much. It is
below the maximum of an Arrow column; the limit of a batch keeps a single record below it, too.
"""


class Start(NamedTuple):
    """Position at which a take began in a partition, with its epochs."""

    epoch: int
    skip_count: int
    offset: int
    leader_epoch: int | None

    def is_of_now(self, assigned: AssignedPartition) -> bool:
        """Return True if the user has not moved the partition since."""
        return self.epoch == assigned.epoch and self.skip_count == assigned.skip_count


NOT_BEGUN: Final[Mapping[AssignedPartition, Start]] = MappingProxyType({})
"""Value of `begun` while no take is pending."""


class FetchBuffer:
    """See the module."""

    def __init__(self, retry_backoff: Backoff, *, parked_max_bytes: int) -> None:
        self.version = 0
        """Grows when a partition must be fetched from elsewhere than the end of its chain."""
        self.used_up_count = 0
        """Number of responses read to their end, or parked: room for further ones."""
        self._retry_backoff = retry_backoff
        self._chains: dict[AssignedPartition, deque[CompletedFetch]] = {}
        self._ready: OrderedDict[AssignedPartition, None] = OrderedDict()
        self._failed: dict[AssignedPartition, KafkaError] = {}
        self._response_counts: defaultdict[int, int] = defaultdict(int)
        self._parked_max_bytes = parked_max_bytes
        self.begun = NOT_BEGUN
        """Start of the take whose records have not reached the application yet. The call that
        returns them clears it last; a call that finds it set gives the records back."""
        self._parked: dict[FetchedResponse, None] = {}
        """Responses of which nothing may be read at present, the longest parked first."""
        self.parked_bytes = 0
        """Total size of the parked responses."""

    # For the fetcher.

    def response_count(self, node_id: int) -> int:
        """Return the number of a node's responses that are in use, without parked ones."""
        return self._response_counts[node_id]

    def has(self, assigned: AssignedPartition) -> bool:
        return assigned in self._chains

    @property
    def has_ready(self) -> bool:
        """True if there are records that may be taken, or an error."""
        return bool(self._ready or self._failed)

    def fetch_offset(self, assigned: AssignedPartition) -> int | None:
        """Return the offset to fetch next; None if nothing is to be fetched at present."""
        if assigned in self._failed:
            return None
        chain = self._chains.get(assigned)
        if chain is None:
            offset = assigned.offset
        elif chain[-1].is_damaged:
            return None
        else:
            offset = chain[-1].end_offset
        is_wanted = assigned.limit is None or offset < assigned.limit
        return offset if is_wanted else None

    def add(self, assigned: AssignedPartition, fetched: CompletedFetch) -> None:
        """Add data that was fetched from `fetch_offset(assigned)`."""
        self._chains.setdefault(assigned, deque()).append(fetched)
        fetched.response.owners.add(assigned)
        if assigned in self._ready:
            self._hold(fetched.response)
        self._note_parked(fetched.response)
        self.refresh(assigned)
        self._drop_what_is_too_much()

    # For the consumer.

    def refresh(self, assigned: AssignedPartition) -> None:
        """Park a partition or make it ready, depending on its state."""
        is_stopped = assigned.is_paused or assigned.is_held or assigned.has_reached_limit
        is_parked = is_stopped or assigned in self._failed
        if assigned in self._ready and is_parked:
            del self._ready[assigned]
            chain = self._chains[assigned]
            if is_stopped:  # after a bad record the same batch would be decompressed each time
                chain[0].fold()
            for fetched in chain:
                self._release(fetched.response)
            self._drop_what_is_too_much()
        elif assigned in self._chains and assigned not in self._ready and not is_parked:
            self._ready[assigned] = None
            for fetched in self._chains[assigned]:
                self._hold(fetched.response)

    def drop(self, assigned: AssignedPartition) -> None:
        self._forget(assigned)
        self._drop_what_is_too_much()

    def _forget(self, assigned: AssignedPartition) -> None:
        self.version += 1
        self._failed.pop(assigned, None)
        is_ready = assigned in self._ready
        self._ready.pop(assigned, None)
        for fetched in self._chains.pop(assigned, ()):
            fetched.response.owners.discard(assigned)
            if is_ready:
                self._release(fetched.response)
            self._note_parked(fetched.response)

    def can_skip_to(self, assigned: AssignedPartition, offset: int) -> bool:
        """Return True if buffered data can be read from `offset`, at or after the position."""
        chain = self._chains.get(assigned)
        return (
            chain is not None
            and assigned.offset <= offset < chain[-1].end_offset
            and assigned.is_fetching
        )

    def forgive(self, assigned: AssignedPartition) -> None:
        """Clear the error of a deserializer: the user has moved the position past the record."""
        self.version += 1
        self._failed.pop(assigned, None)
        self.refresh(assigned)

    # Taking records.

    def take(
        self,
        count_max: int,
        now_ms: int,
        read: Read | None = None,
        *,
        size_bytes_max: int | None = None,
    ) -> list[RecordSpan]:
        """Take up to `count_max` records and move the positions past them.

        Except for the first record, they take at most `size_bytes_max`; None is
        `TAKEN_SIZE_BYTES_MAX`, which is also the maximum. `read` converts a span; None leaves keys
        and values as they are. An error is raised only if no record could be taken before it; its
        partition's position stays.

        Raises:
            CorruptRecordError: the records are dropped, and fetched again after a back-off.
            RecordDeserializationError: later calls that find nothing else raise it again.
        """
        spans: list[RecordSpan] = []
        begun: dict[AssignedPartition, Start] = {}
        self.begun = begun
        room_bytes = min(TAKEN_SIZE_BYTES_MAX, size_bytes_max or TAKEN_SIZE_BYTES_MAX)
        try:
            while count_max > 0 and self._ready:
                assigned = next(iter(self._ready))
                start = begun.get(assigned)
                if start is None or not start.is_of_now(assigned):
                    begun[assigned] = Start(
                        assigned.epoch,
                        assigned.skip_count,
                        assigned.offset,
                        assigned.leader_epoch,
                    )
                span = self._peek(assigned, count_max, read, room_bytes)
                if span is not None:
                    room_bytes -= span.columns.size_bytes
                    if room_bytes < 0 and spans:
                        break
                    spans.append(span)
                    count_max -= span.record_count
                    self.advance(assigned, span)
        except (CorruptRecordError, RecordDeserializationError) as error:
            # If there are records, the error waits: the next call meets it first.
            if not spans:
                self._stop(assigned, error, now_ms)
                self.begun = NOT_BEGUN
                raise
        if not spans:
            self.begun = NOT_BEGUN
            self._raise_failure()
        gone = {assigned.partition for assigned in begun if not assigned.is_assigned}
        return [span for span in spans if span.partition not in gone] if gone else spans

    def next_span(
        self, count_max: int, now_ms: int, read: Read | None = None
    ) -> tuple[AssignedPartition, RecordSpan] | None:
        """Return the next records of one partition, None if there are none; the position stays.

        The caller moves `offset` record by record, and calls `advance` at the end. Raises as
        `take`.
        """
        while self._ready:
            assigned = next(iter(self._ready))
            try:
                span = self._peek(assigned, count_max, read)
            except (CorruptRecordError, RecordDeserializationError) as error:
                self._stop(assigned, error, now_ms)
                raise
            if span is not None:
                return assigned, span
        self._raise_failure()
        return None

    def advance(self, assigned: AssignedPartition, span: RecordSpan) -> None:
        """Move the position past a span, and past following offsets without records to return."""
        assigned.offset = span.columns.last_offset + 1
        assigned.leader_epoch = span.leader_epoch
        self._settle(assigned)

    def give_back(self) -> None:
        """Undo a take whose records did not reach the application.

        A partition that the user has moved since keeps its position. The call may be interrupted,
        and repeated.
        """
        for assigned, start in self.begun.items():
            if start.is_of_now(assigned):
                self.drop(assigned)
                assigned.offset = start.offset
                # A position under validation needs a leader epoch.
                if start.leader_epoch is not None or assigned.has_position:
                    assigned.leader_epoch = start.leader_epoch
        self.begun = NOT_BEGUN

    def restart(self) -> None:
        """Drop all fetched data, consistent or not, and undo a take as `give_back`."""
        self._chains.clear()
        self._ready.clear()
        self._failed.clear()
        self._response_counts.clear()
        self._parked.clear()
        self.parked_bytes = 0
        self.used_up_count += 1
        self.version += 1
        self.give_back()

    def _raise_failure(self) -> None:
        """Raise the error of a partition, if there are no records to take."""
        if self._failed:
            raise renewed(next(iter(self._failed.values())))

    def _peek(
        self,
        assigned: AssignedPartition,
        count_max: int,
        read: Read | None,
        size_bytes_max: int | None = None,
    ) -> RecordSpan | None:
        """Return the next records of a partition, converted; None if that must be repeated."""
        fetched = self._chains[assigned][0]
        span = fetched.peek(assigned.offset, count_max, assigned.limit, size_bytes_max)
        if span is None:
            if not fetched.is_exhausted:
                # The rest is beyond the limit, so there is no record left before the limit.
                assert assigned.limit is not None
                if assigned.offset < assigned.limit:
                    assigned.offset = assigned.limit
                    assigned.leader_epoch = None  # unknown
            self._settle(assigned)
            return None
        if read is None:
            return span
        offset = assigned.offset
        try:
            span = read(assigned, span)
        except RecordDeserializationError:
            if self._is_next(assigned, fetched, offset):
                raise
            return None
        return span if self._is_next(assigned, fetched, offset) else None

    def _is_next(self, assigned: AssignedPartition, fetched: CompletedFetch, offset: int) -> bool:
        """Return True if a partition may be read, and is still at the same position."""
        return (
            assigned in self._ready
            and self._chains[assigned][0] is fetched
            and assigned.offset == offset
        )

    def _settle(self, assigned: AssignedPartition) -> None:
        """Move to the next position that can be read, and let other partitions take turns."""
        chain = self._chains[assigned]
        fetched = chain[0]
        offset = fetched.settle(assigned.offset)
        if offset != assigned.offset:
            assigned.offset = offset
            assigned.leader_epoch = fetched.passed_leader_epoch
        if fetched.is_exhausted:
            chain.popleft()
            fetched.response.owners.discard(assigned)
            self._release(fetched.response)
            if chain:
                self._ready.move_to_end(assigned)
            else:
                del self._chains[assigned]
                del self._ready[assigned]
            self._drop_what_is_too_much()
            if not chain:
                return
        self.refresh(assigned)

    def _stop(self, assigned: AssignedPartition, error: KafkaError, now_ms: int) -> None:
        if isinstance(error, CorruptRecordError):
            # It may have been damaged in transit, so it is fetched again.
            self.drop(assigned)
            assigned.back_off(self._retry_backoff, now_ms)
        else:
            self._failed[assigned] = error
            self.refresh(assigned)

    # Counting the responses in use.

    def _hold(self, response: FetchedResponse) -> None:
        if response.ready_count == 0:
            self._response_counts[response.node_id] += 1
        response.ready_count += 1
        self._note_parked(response)

    def _release(self, response: FetchedResponse) -> None:
        response.ready_count -= 1
        if response.ready_count == 0:
            self._response_counts[response.node_id] -= 1
            self.used_up_count += 1
            self._note_parked(response)

    def _note_parked(self, response: FetchedResponse) -> None:
        """Add a response to the parked ones, or remove it."""
        is_parked = response.ready_count == 0 and bool(response.owners)
        if is_parked and response not in self._parked:
            self._parked[response] = None
            self.parked_bytes += response.size_bytes
        elif not is_parked and response in self._parked:
            del self._parked[response]
            self.parked_bytes -= response.size_bytes

    def _drop_what_is_too_much(self) -> None:
        # The last one is kept, whatever its size: otherwise each pause would cost a fetch.
        while self.parked_bytes > self._parked_max_bytes and len(self._parked) > 1:
            for assigned in tuple(next(iter(self._parked)).owners):
                self._forget(assigned)
