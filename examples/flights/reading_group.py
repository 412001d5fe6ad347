"""ReadingGroup: two members of a consumer group read the flights, and one of them leaves half way.

Both join before either reads, so that each has partitions. What they read comes out of one queue,
in which a partition's records stay in order even when it changes hands: a member that gives it up
has put in all it read of it, and the other one goes on behind that. The queue is short, so no
member runs far ahead of the thread that takes the records out.

Owner: the thread that made it; each member has a thread and a consumer of its own. They share the
queue, the events, and `_shares`, which each writes under its own name alone.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Self

from pykclient import Consumer, RebalanceListener

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from pykclient import ConsumerRecord, TopicPartition

GROUP = "flight-readers"
STAYS, LEAVES = "stays", "leaves"
POLL_S = 0.1
QUEUE_POLLS_MAX = 8
"""Maximum number of polls whose records may wait to be processed."""
CLOSE_TIMEOUT_S = 60.0


class ReadingGroup:
    """A context manager; at its end both members have left.

    `counts` has how many records each member read, by its name.
    """

    def __init__(self, bootstrap_servers: str, topic: str, partition_count: int) -> None:
        self.counts = {STAYS: 0, LEAVES: 0}
        self.history: tuple[str, ...] = ()
        """Reports of the staying member about the group, a line for each rebalance."""
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._partition_count = partition_count
        self._polled: queue.Queue[tuple[str, Sequence[ConsumerRecord]] | Exception] = queue.Queue(
            QUEUE_POLLS_MAX
        )
        self._shares: dict[str, int] = {STAYS: 0, LEAVES: 0}
        self._is_complete = threading.Event()
        self._may_stop = {STAYS: threading.Event(), LEAVES: threading.Event()}
        self._is_closing = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(name,), name=name, daemon=True)
            for name in self.counts
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_closing.set()
        for thread in self._threads:
            thread.join(CLOSE_TIMEOUT_S)

    def records(self, count: int, silence_s: float) -> Iterator[ConsumerRecord]:
        """Give `count` records; after half of them one member leaves. Raises what a member raised.

        Raises:
            TimeoutError: no record came for `silence_s` seconds.
        """
        while sum(self.counts.values()) < count:
            try:
                polled = self._polled.get(timeout=silence_s)
            except queue.Empty:
                raise TimeoutError(f"no record came for {silence_s} s") from None
            if isinstance(polled, Exception):
                raise polled
            name, records = polled
            yield from records
            self.counts[name] += len(records)
            if sum(self.counts.values()) * 2 >= count:
                self._may_stop[LEAVES].set()

    def _run(self, name: str) -> None:
        try:
            self._read(name)
        except Exception as error:  # noqa: BLE001  # raised by whoever takes the records
            self._put(error)

    def _read(self, name: str) -> None:
        with Consumer(
            bootstrap_servers=self._bootstrap_servers,
            client_id=name,
            group_id=GROUP,
            auto_offset_reset="earliest",
        ) as consumer:

            def on_assigned(partitions: Sequence[TopicPartition]) -> None:
                self._shares[name] = len(consumer.assignment())
                if not self._is_complete.is_set():
                    consumer.pause(partitions)

            consumer.subscribe([self._topic], listener=RebalanceListener(on_assigned=on_assigned))
            while not (self._may_stop[name].is_set() or self._is_closing.is_set()):
                records = consumer.poll(timeout=POLL_S)
                if records:
                    self._put((name, list(records)))
                elif self._is_everybody_there():
                    consumer.resume(consumer.paused())
            if name == STAYS:
                self.history = tuple(map(str, consumer.group_history()))

    def _is_everybody_there(self) -> bool:
        """Return whether the members share all partitions, each with at least one."""
        shares = tuple(self._shares.values())
        if all(shares) and sum(shares) == self._partition_count:
            self._is_complete.set()
        return self._is_complete.is_set()

    def _put(self, polled: tuple[str, Sequence[ConsumerRecord]] | Exception) -> None:
        while not self._is_closing.is_set():
            try:
                self._polled.put(polled, timeout=POLL_S)
            except queue.Full:
                continue
            return
