"""FetchBuffer: fetched but not yet handed out; takes records from it in fair turns.

Per partition it keeps a chain of answers, each beginning where the one before it ends, the first
one at the position. A partition is *ready*, or *put aside*: paused, at its limit, or stopped by a
record that its deserializer could not read. Positions move when records are taken, not before.

Owner: the core lock, as `SubscriptionState`.
Source: Java classes ``FetchBuffer`` and ``FetchCollector``.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.consumer.record import RecordRun
from pykclient.errors import CorruptRecordError, KafkaError, RecordDeserializationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient.consumer.deserialization import RecordDeserializer
    from pykclient.consumer.fetched_partition import FetchedPartition
    from pykclient.consumer.subscription import AssignedPartition
    from pykclient.network.backoff import Backoff

__all__ = ["TAKEN_SIZE_BYTES_MAX", "FetchBuffer", "FetchedResponse"]

TAKEN_SIZE_BYTES_MAX: Final = 256 * 1024 * 1024
"""How much one take unfolds; the next one goes on. A single batch is bounded by its own limit, and
both are below what a column of Arrow's can hold."""


class FetchedResponse:
    """One answer of one broker. `ready_count` is how many of its parts are ready to be taken."""

    __slots__ = ("node_id", "ready_count")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.ready_count = 0


class _Link(NamedTuple):
    """One part of a chain, and the answer that it came in."""

    fetched: FetchedPartition
    response: FetchedResponse


class FetchBuffer:
    """What is fetched, by partition. `deserializer` None leaves keys and values as they are."""

    def __init__(self, deserializer: RecordDeserializer | None, retry_backoff: Backoff) -> None:
        self.version = 0
        """Grows when a partition is to be fetched from elsewhere than where its chain ends."""
        self.used_up_count = 0
        """How many answers were read to their end, or put aside: room for the next ones."""
        self._deserializer = deserializer
        self._retry_backoff = retry_backoff
        self._chains: dict[AssignedPartition, deque[_Link]] = {}
        self._ready: OrderedDict[AssignedPartition, None] = OrderedDict()
        self._failed: dict[AssignedPartition, KafkaError] = {}
        self._response_counts: defaultdict[int, int] = defaultdict(int)

    # What the fetcher asks and brings.

    def response_count(self, node_id: int) -> int:
        """Return how many answers of a node are not used up, those put aside not counted."""
        return self._response_counts[node_id]

    def has(self, assigned: AssignedPartition) -> bool:
        """Return whether anything fetched of a partition is left."""
        return assigned in self._chains

    def fetch_offset(self, assigned: AssignedPartition) -> int | None:
        """Return from where a partition is to be fetched next; None if not at present."""
        if assigned in self._failed:
            return None
        chain = self._chains.get(assigned)
        if chain is None:
            offset = assigned.offset
        elif chain[-1].fetched.is_damaged:
            return None
        else:
            offset = chain[-1].fetched.end_offset
        is_wanted = assigned.limit is None or offset < assigned.limit
        return offset if is_wanted else None

    def add(
        self, assigned: AssignedPartition, fetched: FetchedPartition, response: FetchedResponse
    ) -> None:
        """Keep what was fetched from `fetch_offset(assigned)`."""
        link = _Link(fetched, response)
        self._chains.setdefault(assigned, deque()).append(link)
        if assigned in self._ready:
            self._hold(link)
        self.refresh(assigned)

    # What the consumer does with a partition.

    def refresh(self, assigned: AssignedPartition) -> None:
        """Put a partition aside, or take it back, as its state says by now."""
        is_stopped = assigned.is_paused or assigned.is_held or assigned.has_reached_limit
        is_aside = is_stopped or assigned in self._failed
        if assigned in self._ready and is_aside:
            del self._ready[assigned]
            for link in self._chains[assigned]:
                self._release(link)
        elif assigned in self._chains and assigned not in self._ready and not is_aside:
            self._ready[assigned] = None
            for link in self._chains[assigned]:
                self._hold(link)

    def drop(self, assigned: AssignedPartition) -> None:
        """Forget everything fetched of a partition."""
        self.version += 1
        self._failed.pop(assigned, None)
        chain = self._chains.pop(assigned, None)
        if assigned in self._ready:
            del self._ready[assigned]
            assert chain is not None
            for link in chain:
                self._release(link)

    def can_skip_to(self, assigned: AssignedPartition, offset: int) -> bool:
        """Return whether what is buffered can be read from `offset` on, further ahead."""
        chain = self._chains.get(assigned)
        return (
            chain is not None
            and assigned.offset <= offset < chain[-1].fetched.end_offset
            and assigned.is_fetching
        )

    def forgive(self, assigned: AssignedPartition) -> None:
        """Read on where a deserializer failed: the user moved the position past it."""
        self.version += 1
        self._failed.pop(assigned, None)
        self.refresh(assigned)

    # Taking records.

    def take(self, count_max: int, now_ms: int, *, is_raw: bool = False) -> list[RecordRun]:
        """Take up to `count_max` records and move the positions past them.

        Fewer are taken where they would be more than `TAKEN_SIZE_BYTES_MAX`, but for the first run.
        Deserializers are not applied to what is taken raw. An error is raised when nothing could be
        taken before it; the position of its partition stays.

        Raises:
            CorruptRecordError: the records are dropped, to be fetched anew after a back-off.
            RecordDeserializationError: raised again by later calls that have nothing else.
        """
        runs: list[RecordRun] = []
        positions: dict[AssignedPartition, int] = {}
        room_bytes = TAKEN_SIZE_BYTES_MAX
        try:
            while count_max > 0 and self._ready:
                assigned = next(iter(self._ready))
                positions.setdefault(assigned, assigned.offset)
                run = self._peek(assigned, count_max, is_raw=is_raw)
                if run is not None:
                    room_bytes -= run.columns.size_bytes
                    if room_bytes < 0 and runs:
                        break
                    runs.append(run)
                    count_max -= run.record_count
                    self.advance(assigned, run)
        except (CorruptRecordError, RecordDeserializationError) as error:
            # Behind records, it waits: the next call finds it first, and nothing before it.
            if not runs:
                self._stop(assigned, error, now_ms)
                raise
        except BaseException:
            self.give_back(positions)
            raise
        if not runs and self._failed:
            raise next(iter(self._failed.values())).with_traceback(None)
        return runs

    def next_run(self, count_max: int, now_ms: int) -> tuple[AssignedPartition, RecordRun] | None:
        """Return the next records of one partition without moving its position; None if none.

        The caller moves `offset` record by record, and calls `advance` at the end.

        Raises: as `take`.
        """
        while self._ready:
            assigned = next(iter(self._ready))
            try:
                run = self._peek(assigned, count_max, is_raw=False)
            except (CorruptRecordError, RecordDeserializationError) as error:
                self._stop(assigned, error, now_ms)
                raise
            except BaseException:
                self.give_back({assigned: assigned.offset})
                raise
            if run is not None:
                return assigned, run
        if self._failed:
            raise next(iter(self._failed.values())).with_traceback(None)
        return None

    def advance(self, assigned: AssignedPartition, run: RecordRun) -> None:
        """Move the position past a run, and past what follows it that nobody gets to see."""
        assigned.offset = run.columns.last_offset + 1
        assigned.leader_epoch = run.leader_epoch
        self._settle(assigned)

    def give_back(self, positions: Mapping[AssignedPartition, int]) -> None:
        """Undo a take that did not reach the application: read from these offsets again."""
        for assigned, offset in positions.items():
            self.drop(assigned)
            assigned.offset = offset

    def _peek(
        self, assigned: AssignedPartition, count_max: int, *, is_raw: bool
    ) -> RecordRun | None:
        fetched = self._chains[assigned][0].fetched
        rows = fetched.peek(assigned.offset, count_max, assigned.limit)
        if rows is None:
            if not fetched.is_exhausted:
                # All that is left lies beyond the limit, so nothing before it is left to come.
                assert assigned.limit is not None
                assigned.offset = max(assigned.offset, assigned.limit)
            self._settle(assigned)
            return None
        run = RecordRun(assigned.partition, *rows)
        if is_raw or self._deserializer is None:
            return run
        return self._deserializer.apply(run)

    def _settle(self, assigned: AssignedPartition) -> None:
        """Move on to what can be read next, and let the other partitions have their turn."""
        chain = self._chains[assigned]
        fetched = chain[0].fetched
        assigned.offset = fetched.settle(assigned.offset)
        if fetched.is_exhausted:
            self._release(chain.popleft())
            if chain:
                self._ready.move_to_end(assigned)
            else:
                del self._chains[assigned]
                del self._ready[assigned]
                return
        self.refresh(assigned)

    def _stop(self, assigned: AssignedPartition, error: KafkaError, now_ms: int) -> None:
        if isinstance(error, CorruptRecordError):
            # It may have been damaged on its way: what is read next comes from the broker again.
            self.drop(assigned)
            assigned.retry_at_ms = now_ms + self._retry_backoff.delay_ms(assigned.failure_count)
            assigned.failure_count += 1
        else:
            self._failed[assigned] = error
            self.refresh(assigned)

    # Counting the answers in use.

    def _hold(self, link: _Link) -> None:
        response = link.response
        if response.ready_count == 0:
            self._response_counts[response.node_id] += 1
        response.ready_count += 1

    def _release(self, link: _Link) -> None:
        response = link.response
        response.ready_count -= 1
        if response.ready_count == 0:
            self._response_counts[response.node_id] -= 1
            self.used_up_count += 1
