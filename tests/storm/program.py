"""The program in the storm: it sends, flushes, polls, commits and closes, while interrupted.

    python -m tests.storm.program SERVERS READING SEED COUNT JOURNAL

READING is `classic` or `consumer`, the protocol of a group, or `assign`. After COUNT interruptions
it reads the rest, closes everything and writes its journal. If it makes no progress for `HANG_S`,
it exits with the stacks of all threads.

The result of a call is noted by the statement that makes the call: CPython runs no signal handler
between a Python function's return and the call of a C function that takes the result.

Owner: the main thread; destructors and log records make other threads call `_act`.
"""

from __future__ import annotations

import faulthandler
import gc
import itertools
import os
import random
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from pykclient import (
    Admin,
    Consumer,
    ConsumerRecords,
    Producer,
    RebalanceListener,
    TopicPartition,
)
from pykclient.errors import (
    ClosedError,
    CommitFailedError,
    ConcurrentModificationError,
    KafkaError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    WakeupError,
)
from tests.storm.interruptions import RAISED, Interruption, Interruptions
from tests.storm.judge import Event, Journal, Sending

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pykclient import Delivery, RecordMetadata

T = TypeVar("T")

TOPIC: Final = "storm"
GROUP: Final = "storm"
PARTITIONS: Final = [TopicPartition(TOPIC, number) for number in range(3)]

SESSION_TIMEOUT_MS: Final = 2_000
HEARTBEAT_INTERVAL_MS: Final = 100
CLASSIC_SETTINGS = {
    "session_timeout_ms": SESSION_TIMEOUT_MS,
    "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
}
UNCONNECTED = "laddr=('0.0.0.0', 0)>"
HANG_S = 60.0
CALM_S = 10.0
"""Time limit of a call that is not interrupted, and of any call in an interruption."""
CLOSE_S = 5.0
BETWEEN_LOOKS = 60
"""Number of interruptions between two checks."""
RENEWED_SHARE = 0.2
CLOSED_SHARE = 0.02

PASSING = (
    WakeupError,
    ConcurrentModificationError,
    CommitFailedError,
    RebalanceInProgressError,
)
"""Errors that interruptions may cause in the program's own calls."""


class Storm:
    """The clients, the calls on them, and the results."""

    def __init__(self, servers: str, reading: str, seed: int) -> None:
        self.journal = Journal()
        self._servers = servers
        self._reading = reading
        self._source = random.Random(seed)
        self._tick = itertools.count().__next__
        self._producer_number = -1
        self._begun: list[tuple[int, int]] = []
        self._open: dict[int, tuple[int, int, Delivery[RecordMetadata]]] = {}
        """Producer, tick of return, and delivery, by number."""
        self._noted: list[object] = []
        self._digested_count = 0
        self._interruptions = Interruptions(self._source, self._act)
        sys.unraisablehook = self._on_unraisable
        threading.excepthook = self._on_dead_thread

    def run(self, count: int) -> None:
        """Go through this many interruptions, check the state, and close."""
        threads, descriptors = threading.enumerate(), _descriptors()
        self._admin = Admin(bootstrap_servers=self._servers)
        self._open_producer()
        self._open_consumer()
        while self._interruptions.count < count:
            self._under_fire(min(count, self._interruptions.count + BETWEEN_LOOKS))
            self._look()
        self._read_all()
        self._end_producer()
        self._end_consumer()
        self._admin.close()
        gc.collect()
        if threading.enumerate() != threads:
            faulthandler.dump_traceback()
            self._fault(f"threads stay: {threading.enumerate()}")
        self._expect(_descriptors() == descriptors, f"{_descriptors()} descriptors stay")
        self._digest()
        returned = {sending.number for sending in self.journal.sendings}
        self.journal.sendings += [
            Sending(number, producer) for number, producer in self._begun if number not in returned
        ]
        self.journal.counts |= self._interruptions.counts

    # Under fire.

    def _under_fire(self, count: int) -> None:
        """Make random calls until the number of interruptions is reached."""
        calls: Sequence[Callable[[], None]] = (
            *[self._send] * 6, *[self._poll] * 6, self._flush, self._flush_a_moment,
            self._commit, self._commit, self._commit_async,
        )  # fmt: skip
        while self._interruptions.count < count:
            faulthandler.dump_traceback_later(HANG_S, exit=True)
            try:
                try:
                    self._interruptions.begin()
                    while self._interruptions.count < count:
                        self._interruptions.prepare()
                        self._source.choice(calls)()
                finally:
                    self._interruptions.end()  # in which the last one may come
            except (*RAISED, *PASSING):
                self._interruptions.end()
            except ClosedError:
                self._interruptions.await_quiet()
                self._replace_closed()
            except BaseException as error:  # noqa: BLE001  # any other error is a violation
                self._fault(_traced(error))

    def _send(self) -> None:
        for _ in range(self._source.randrange(1, 8)):
            self._send_one()

    def _send_one(self) -> None:
        number, producer = self._tick(), self._producer_number
        self._begun.append((number, producer))
        partition, key = self._source.choice(((None, None), (None, b"%d" % number), (1, None)))
        delivery = self._producer.send(TOPIC, b"%d" % number, key, partition=partition)
        self._open[number] = producer, self._tick(), delivery

    def _flush(self) -> None:
        before = [self._open[number] for number in list(self._open)]
        self._producer.flush()
        self._expect(all(open_[2].done() for open_ in before), "flush returned before the end")
        self._settle()

    def _flush_a_moment(self) -> None:
        with suppress(KafkaTimeoutError):
            self._producer.flush(0)

    def _poll(self) -> None:
        """Poll: everything returned so far is processed.

        This is noted before the call, which may commit it, and after any exception of the call:
        between the first note and the call an interruption may poll, too.
        """
        self._noted.append("finished")
        with suppress(KafkaTimeoutError):  # its cause is the interrupted calls
            try:
                self._noted.append(self._consumer.poll(self._source.choice((0, 0.001, 0.01))))
            except BaseException:
                self._noted.append("finished")
                raise

    def _commit(self) -> None:
        self._finish(self._consumer.commit)

    def _commit_async(self) -> None:
        self._finish(self._consumer.commit_async)

    def _finish(self, call: Callable[[], object]) -> None:
        """Make a call that commits everything returned, also what an interruption polls now."""
        self._noted.append("finished")
        try:
            call()
        finally:
            self._noted.append("finished")

    # In an interruption.

    def _act(self) -> None:
        """Call the clients from a handler, a destructor or the like, in any thread."""
        calls: Sequence[Callable[[], None]] = (
            *[self._send_one] * 4, *[self._flush_a_moment] * 4, self._flush_for_ever,
            self._poll, self._commit, self._commit_async, self._wake, self._wake,
            self._close_one,
        )  # fmt: skip
        call = self._source.choice(calls)
        started_s = time.monotonic()
        try:
            call()
        except RAISED:
            raise  # interrupted itself
        except KafkaError as error:
            self._interruptions_refused(error)
        except BaseException as error:  # noqa: BLE001  # any other error is a violation
            self._fault(f"{call.__name__} in an interruption: {_traced(error)}")
        taken_s = time.monotonic() - started_s
        self._expect(taken_s < CALM_S, f"{call.__name__} in an interruption took {taken_s:.1f} s")

    def _interruptions_refused(self, error: KafkaError) -> None:
        name = f"refused by {type(error).__name__}"
        self.journal.counts[name] = self.journal.counts.get(name, 0) + 1

    def _flush_for_ever(self) -> None:
        self._producer.flush()

    def _wake(self) -> None:
        self._consumer.wakeup()

    def _close_one(self) -> None:
        chance = self._source.random()
        if chance < CLOSED_SHARE:
            self._producer.request_close()
        elif chance < 2 * CLOSED_SHARE:
            self.journal.cut_producers.append(self._producer_number)
            self._producer.close(0)
        elif chance < 3 * CLOSED_SHARE:
            self._finish(partial(self._consumer.close, CLOSE_S))

    # Without interruptions.

    def _look(self) -> None:
        """Check that a record is delivered, and the committed offsets; replace clients."""
        self._interruptions.await_quiet()
        self._replace_closed()
        if self._source.random() < RENEWED_SHARE:
            self._end_producer()
            self._open_producer()
        self._expect_delivery()
        self._in_peace(partial(self._consumer.end_offsets, PARTITIONS))
        if self._source.random() < RENEWED_SHARE:
            self._end_consumer()
            self._open_consumer()
        self._note_committed()
        self._digest()

    def _expect_delivery(self) -> None:
        self._send_one()
        try:
            self._in_peace(partial(self._producer.flush, CALM_S))
        except KafkaTimeoutError as error:
            self._fault(f"in peace: {error!r}")
        self._settle()
        pool = self._producer._core.pool
        self._expect(pool.free_bytes == pool.size_bytes, f"{pool.free_bytes} bytes are free")

    def _read_all(self) -> None:
        """Read until nothing is left, which the judge checks."""
        ends = self._in_peace(partial(self._consumer.end_offsets, PARTITIONS))
        deadline_s = time.monotonic() + CALM_S
        while time.monotonic() < deadline_s:
            faulthandler.dump_traceback_later(HANG_S, exit=True)
            self._noted.append("finished")
            records = self._in_peace(partial(self._consumer.poll, 0.1))
            self._noted.append(records)
            if records:
                deadline_s = time.monotonic() + CALM_S
            elif set(self._consumer.assignment()) == set(PARTITIONS) and all(
                self._consumer.position(place) >= end for place, end in ends.items()
            ):
                return
        self._fault(f"nothing is read for {CALM_S} s; {ends=}")

    def _note_committed(self) -> None:
        self._digest()
        committed = self._admin.list_group_offsets(GROUP)
        self._noted.append(
            ["committed", [[place.partition, at.offset] for place, at in committed.items()]]
        )

    def _in_peace(self, call: Callable[[], T]) -> T:
        """Call, and repeat it after a wakeup that an interruption requested."""
        try:
            return call()
        except WakeupError:
            return call()

    # Clients.

    def _replace_closed(self) -> None:
        try:
            self._producer.partitions_for(TOPIC)
        except ClosedError:
            self._end_producer()
            self._open_producer()
        try:
            self._consumer.assignment()
        except ClosedError:
            self._end_consumer()
            self._open_consumer()

    def _open_producer(self) -> None:
        choice = self._source.choice
        self._producer_number += 1
        self._producer = Producer(
            bootstrap_servers=self._servers,
            batch_size=choice((200, 2_000, 16_384)),
            buffer_memory=choice((50_000, 33_554_432)),
            linger_ms=choice((0, 5)),
            max_block_ms=5_000,
            request_timeout_ms=15_000,
            delivery_timeout_ms=30_000,
            reconnect_backoff_ms=1,
            retry_backoff_ms=1,
        )

    def _end_producer(self) -> None:
        self._timed("producer", lambda: self._producer.close(CLOSE_S))
        self._settle()
        self._expect(not self._open, f"{len(self._open)} records have no end after close")
        self._open.clear()

    def _open_consumer(self) -> None:
        choice = self._source.choice
        is_classic = self._reading != "consumer"
        self._consumer = Consumer(
            CLASSIC_SETTINGS if is_classic else {"group_protocol": "consumer"},
            bootstrap_servers=self._servers,
            group_id=GROUP,
            auto_offset_reset="earliest",
            default_api_timeout_ms=int(CALM_S * 1_000),
            enable_auto_commit=choice((False, True)),
            auto_commit_interval_ms=5,
            max_poll_records=choice((3, 50, 500)),
            reconnect_backoff_ms=1,
            retry_backoff_ms=1,
        )
        self._noted.append(["opened"])
        if self._reading == "assign":
            self._consumer.assign(PARTITIONS)
        else:
            moved = self._noted.append
            self._consumer.subscribe([TOPIC], listener=RebalanceListener(moved, moved, moved))

    def _end_consumer(self) -> None:
        """Close in one of three ways, of which two do not mark everything as processed."""
        consumer = self._consumer
        way = self._source.randrange(3)
        if way == 0:
            self._noted.append("finished")
            self._timed("consumer", lambda: consumer.close(CLOSE_S))
            return
        try:
            if way == 1:
                with consumer:
                    raise Interruption
            try:
                raise Interruption
            finally:
                self._timed("consumer", lambda: consumer.close(CLOSE_S))
        except Interruption:
            pass

    def _timed(self, name: str, close: Callable[[], object]) -> None:
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        started_s = time.monotonic()
        close()
        taken_s = time.monotonic() - started_s
        if taken_s >= CLOSE_S:
            faulthandler.dump_traceback()
            self._fault(f"close of the {name} took {taken_s:.1f} s")

    # Notes.

    def _settle(self) -> None:
        """Store the results of records. It may be interrupted, and called again."""
        for number in list(self._open):  # a copy, because an interruption may add to it
            producer, returned, delivery = self._open[number]
            if not delivery.done():
                continue
            error = delivery.exception(0)
            metadata = None if error is not None else delivery.result(0)
            sending = Sending(
                number,
                producer,
                returned,
                None if metadata is None else metadata.partition,
                None if metadata is None else metadata.offset,
                "" if error is None else repr(error),
            )
            if self._open.pop(number, None) is not None:
                self.journal.sendings.append(sending)

    def _digest(self) -> None:
        """Turn the notes into events."""
        for noted in self._noted[self._digested_count :]:
            self.journal.events += _events(noted)
            self._digested_count += 1

    def _expect(self, is_so: bool, otherwise: str) -> None:
        if not is_so:
            self._fault(otherwise)

    def _fault(self, what: str) -> None:
        self.journal.faults.append(what)
        sys.stderr.write(f"{what}\n")

    def _on_unraisable(self, caught: sys.UnraisableHookArgs) -> None:
        # Python ends an interrupt in a destructor or a weak reference's callback there.
        if not isinstance(caught.exc_value, RAISED) and not _was_unborn(caught):
            self._fault(f"ignored in {caught.object!r}: {caught.exc_value!r}")

    def _on_dead_thread(self, caught: threading.ExceptHookArgs) -> None:
        self._fault(f"{caught.thread} died: {caught.exc_value!r}")


def _events(noted: object) -> list[Event]:
    if noted == "finished":
        return [["finished"]]
    if isinstance(noted, ConsumerRecords):
        parts = [
            [place.partition, [record.offset for record in records]]
            for place, records in noted.by_partition().items()
        ]
        return [["returned", parts]]
    assert isinstance(noted, list | tuple)
    if noted and isinstance(noted[0], str):
        return [list(noted)]
    return [["moved", [place.partition for place in noted]]]


def _traced(error: BaseException) -> str:
    import traceback

    return "".join(traceback.format_exception(error)[-12:])


def _was_unborn(caught: sys.UnraisableHookArgs) -> bool:
    """Return whether Python itself was interrupted while it created a socket."""
    source = repr(caught.object)
    is_socket = isinstance(caught.exc_value, ResourceWarning) and "socket" in source
    return is_socket and UNCONNECTED in source


def _descriptors() -> int:
    return len(os.listdir("/dev/fd"))


def main(servers: str, reading: str, seed: str, count: str, journal: str) -> None:
    faulthandler.enable()
    storm = Storm(servers, reading, int(seed))
    storm.run(int(count))
    storm.journal.write(Path(journal))


if __name__ == "__main__":
    main(*sys.argv[1:])
