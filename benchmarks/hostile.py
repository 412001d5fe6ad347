"""The cost of a received megabyte that means harm, beside confluent-kafka on the same bytes.

    python benchmarks/hostile.py [--megabytes N] [--rounds N] [--only TEXT]

A broker of this process serves the same Fetch responses, a megabyte each, to one client after the
other, each in a process of its own. A figure is the CPU of that process, all threads, for each
megabyte received, the least of the rounds; it counts from when the client has read a first record.
Both clients check checksums and look at each record. "times usual" is ours over ours for a usual
megabyte of the same codec, "times confluent" ours over confluent-kafka's. "error" stands beside a
client that refused a batch and went on behind it, or that never did and was ended.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from pykclient.records.compression import Codec, compress
from tests.hostile.client import TOPIC
from tests.hostile.payloads import ATTRIBUTES_AT, INT32, INT64, around, message
from tests.hostile.peer import Received, ScriptedBroker
from tests.integration.loopback_server import LoopbackServer
from tests.records.batches import build, header_changed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MEGABYTE: Final = 1_000_000
CLIENTS: Final = ("pykclient", "confluent-kafka")
NOTHING: Final = b"nothing"
"""A call returned, with records or without."""
BEGIN: Final = b"begin"
END: Final = b"end"
SILENCE_S: Final = 10
MANY_OFFSETS: Final = 10**12
EPOCH_AT: Final = 12

RECORD: Final = bytes.fromhex("10000000010476760000")[:-1]
"""One record without a key, with a value of two bytes."""


ERRORS_MAX: Final = 100
"""A client with more does not get on."""


class Batches(NamedTuple):
    """The contents of a response: batches, and by how many offsets each goes on."""

    parts: Sequence[bytes]
    step: int = 1
    is_numbered: bool = False
    """True if each has a leader epoch of its own."""

    def at(self, offset: int) -> bytes:
        """Return them from `offset` on; no checksum covers where a batch stands."""
        return b"".join(
            INT64(offset + index * self.step)
            + part[8:EPOCH_AT]
            + (INT32(index) if self.is_numbered else part[EPOCH_AT : EPOCH_AT + 4])
            + part[EPOCH_AT + 4 :]
            for index, part in enumerate(self.parts)
        )

    @property
    def offset_count(self) -> int:
        return len(self.parts) * self.step


class Case(NamedTuple):
    """One row."""

    name: str
    codec: Codec
    make: Callable[[], Batches]


def many(part: bytes, step: int = 1, *, is_numbered: bool = False) -> Batches:
    return Batches([part] * (MEGABYTE // len(part)), step, is_numbered)


def usual(codec: Codec) -> Batches:
    """Batches of 100 kB to 1 MB of JSON, as many as make a megabyte."""
    chance = random.Random(1)
    values = [
        json.dumps(
            {
                "flight": chance.randrange(9999),
                "carrier": chance.choice(["AA", "UA", "DL", "B6"]),
                "delay": chance.randrange(-20, 200),
            }
        ).encode()
        for _ in range(5_000)
    ]
    batch = build([(1, None, value, ()) for value in values], codec)
    return Batches([batch] * max(1, MEGABYTE // len(batch)), len(values))


def stuffed(codec: Codec, part: bytes, head: bytes = b"", end: bytes = b"") -> Batches:
    """A batch of one record, and parts that hold nothing."""
    start = head or compress(codec, RECORD)
    count = (MEGABYTE - len(start)) // len(part)
    return Batches([around(start + part * count + end, 1, codec)])


def tiny(codec: Codec, **changes: bool) -> Batches:
    return many(build([(1, None, b"vv", ())], codec), **changes)


LZ4_HEAD: Final = bytes.fromhex("04224d18604082")
LZ4_RECORD: Final = LZ4_HEAD + len(RECORD).to_bytes(3, "little") + b"\x80" + RECORD
ZSTD_RECORD: Final = (
    bytes.fromhex("28b52ffd0058") + (len(RECORD) << 3).to_bytes(3, "little") + RECORD
)

CODECS: Final = tuple(Codec)
CASES: Final = (
    *(Case("usual", codec, lambda codec=codec: usual(codec)) for codec in CODECS),
    Case("empty members", Codec.GZIP, lambda: stuffed(Codec.GZIP, gzip.compress(b"", mtime=0))),
    Case("empty blocks", Codec.SNAPPY, lambda: stuffed(Codec.SNAPPY, b"\0\0\0\x01\0")),
    Case(
        "empty blocks", Codec.LZ4, lambda: stuffed(Codec.LZ4, b"\0\0\0\x80", LZ4_RECORD, bytes(4))
    ),
    Case("empty frames", Codec.LZ4, lambda: stuffed(Codec.LZ4, LZ4_HEAD + bytes(4))),
    Case("empty frames", Codec.ZSTD, lambda: stuffed(Codec.ZSTD, compress(Codec.ZSTD, b""))),
    Case(
        "empty blocks",
        Codec.ZSTD,
        lambda: stuffed(Codec.ZSTD, bytes(3), ZSTD_RECORD, b"\1\0\0"),
    ),
    *(Case("tiny batches", codec, lambda codec=codec: tiny(codec)) for codec in CODECS),
    Case("tiny batches, holes between", Codec.NONE, lambda: tiny(Codec.NONE, step=2)),
    Case("tiny batches, an epoch each", Codec.NONE, lambda: tiny(Codec.NONE, is_numbered=True)),
    Case(
        "control batches",
        Codec.NONE,
        lambda: many(header_changed(build([(1, bytes(4), bytes(6), ())]), ATTRIBUTES_AT, 0x30, 2)),
    ),
    Case("messages of magic 1", Codec.NONE, lambda: many(message(b"vv"))),
    Case(
        "records of 7 bytes",
        Codec.NONE,
        lambda: Batches([build([(1, None, None, ())] * 10_000)] * 10, 10_000),
    ),
    Case(
        "headers without names",
        Codec.NONE,
        lambda: Batches([build([(1, None, b"", [("", b"")] * 9_000)])] * 55),
    ),
)


def plain(value: bytes) -> Batches:
    return Batches([build([(1, None, value, ())])])


class Server:
    """Responds with a record, then with the bytes of a case, then with another record."""

    def __init__(self, found: Batches, count: int) -> None:
        self._script = [plain(BEGIN), *[found] * count, plain(END)]
        self._starts = [0]
        for each in self._script:
            self._starts.append(self._starts[-1] + each.offset_count)
        self._ready = {
            start: each.at(start) for start, each in zip(self._starts, self._script, strict=False)
        }
        self.size_bytes = sum(map(len, self._ready.values()))
        self.is_begun = threading.Event()
        """Set once the client has the first record; it gets no others before."""

    def __call__(self, received: Received) -> Any:
        request = received.request
        assert isinstance(request, FetchRequest)
        asked = [part for topic in request.topics for part in topic.partitions]
        offset = asked[0].fetch_offset if asked else -1
        if offset > 0:
            self.is_begun.wait(SILENCE_S)
        # A position stands before the hole that the next response begins with.
        start = min((start for start in self._ready if start >= offset), default=-1)
        records = self._ready.get(start) if asked else None
        if records is None:
            time.sleep(0.02)  # as a broker that waits for records
        data = PartitionData(
            partition_index=0,
            high_watermark=MANY_OFFSETS,
            last_stable_offset=MANY_OFFSETS,
            log_start_offset=0,
            records=records or b"",
        )
        topic = FetchableTopicResponse(topic=TOPIC, partitions=[data])
        return FetchResponse(responses=[topic])


def read_with_pykclient(address: str) -> Iterator[bytes | None]:
    """Yield values; None for an error."""
    from pykclient import Consumer, TopicPartition
    from pykclient.errors import CorruptRecordError

    place = TopicPartition(TOPIC, 0)
    with Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.assign([place])
        while True:
            try:
                for record in consumer.poll(timeout=1):
                    yield record.value or b""
                yield NOTHING
            except CorruptRecordError as error:
                yield None
                if error.next_offset is None:
                    raise
                consumer.seek(place, error.next_offset)


def read_with_confluent_kafka(address: str) -> Iterator[bytes | None]:
    """Yield values; None for an error."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "g",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    while True:
        for record in consumer.consume(500, 1):
            yield None if record.error() else record.value() or b""
        yield NOTHING


def client(name: str, address: str) -> None:
    """Read up to the end; print CPU seconds and errors."""
    read = {"pykclient": read_with_pykclient, "confluent-kafka": read_with_confluent_kafka}[name]
    begun_s, error_count, until_s = 0.0, 0, time.monotonic() + SILENCE_S
    for value in read(address):
        if value == NOTHING:
            if time.monotonic() < until_s:
                continue
            error_count += 1
            break
        error_count += value is None
        if error_count > ERRORS_MAX:
            break
        if value is not None:
            until_s = time.monotonic() + SILENCE_S
        if value == BEGIN:
            begun_s = time.process_time()
            print(flush=True)
        elif value == END:
            break
    figures = {"cpu_s": time.process_time() - begun_s, "errors": error_count}
    print(json.dumps(figures), flush=True)
    os._exit(0)  # closing is not measured, and takes librdkafka seconds


class Measured(NamedTuple):
    """The cost of reading everything with one client."""

    cpu_ms: float
    """CPU of one megabyte."""
    error_count: int


def measured(found: Batches, count: int, name: str) -> Measured:
    """Read all of it with a client."""
    server = Server(found, count)
    with LoopbackServer(ScriptedBroker({ApiKey.FETCH: server})) as broker:
        command = [sys.executable, __file__, "--client", name, "--address", broker.address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            server.is_begun.set()
            ended = json.loads(process.stdout.readline())
    return Measured(ended["cpu_s"] * 1_000 / (server.size_bytes / MEGABYTE), ended["errors"])


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=10, help="for each figure")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="rows whose name or codec has this text")
    parser.add_argument("--client", choices=CLIENTS, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.client:
        client(given.client, given.address)
    print("| codec | a megabyte of | pykclient, ms | confluent-kafka, ms | times usual | ", end="")
    print("times confluent |\n| --- | --- | --- | --- | --- | --- |", flush=True)
    usual_ms: dict[Codec, float] = {}
    for case in CASES:
        if given.only not in f"{case.codec.name.lower()} {case.name}" and case.name != "usual":
            continue
        found = case.make()
        shown, all_ms = [], []
        for name in CLIENTS:
            least = min(measured(found, given.megabytes, name) for _ in range(given.rounds))
            all_ms.append(least.cpu_ms)
            shown.append(f"{least.cpu_ms:.1f}{' error' if least.error_count else ''}")
        ours, theirs = all_ms
        usual_ms.setdefault(case.codec, ours)
        ratios = [f"{ours / usual_ms[case.codec]:.1f}", f"{ours / max(theirs, 0.1):.1f}"]
        row = [case.codec.name.lower(), case.name, *shown, *ratios]
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
