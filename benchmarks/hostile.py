"""The cost of a received megabyte that means harm, beside confluent-kafka on the same bytes.

    python benchmarks/hostile.py [--kafka VERSION] [--megabytes N] [--rounds N] [--only TEXT]

A broker of this process serves the same Fetch responses, a megabyte each, to one client after the
other, each in a process of its own. A figure is the CPU of that process, all threads, for each
megabyte received, the least of the rounds; it counts from when the client has read a first record.
Both clients check checksums and look at each record. "times usual" is ours over ours for a usual
megabyte of the same codec, "times confluent" ours over confluent-kafka's. "error" stands beside a
client that refused a batch and went on behind it, or that never did and was ended. Memory is the
peak of the process over what it had before the first record, the largest of the rounds.

With --kafka a real broker serves, as far as it takes the batches from a producer; "refused" stands
beside those that it does not take. The first record is in a partition of its own then.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from pykclient import Admin, NewTopic
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.message import decode_response, encode_request
from pykclient.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from pykclient.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from pykclient.records.compression import Codec, compress
from pykclient.testing import KafkaCluster
from tests.hostile.client import TOPIC, memory_kb
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
MAGIC_AT: Final = 16
LEGACY_CODECS: Final = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
ZEROS_SIZE_BYTES: Final = 60_000_000
MESSAGES_INSIDE: Final = 3_000
PRODUCE_VERSION: Final = 9
IN_FLIGHT_MAX: Final = 50
NOT_YET: Final = (3, 6)
"""Errors of a topic that was created just now."""

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
            # A message of the old formats stands where the last one in it does.
            INT64(offset + index * self.step + (self.step - 1 if part[MAGIC_AT] < 2 else 0))
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
    """Return a batch of one record, and parts that hold nothing."""
    start = head or compress(codec, RECORD)
    count = (MEGABYTE - len(start)) // len(part)
    return Batches([around(start + part * count + end, 1, codec)])


def tiny(codec: Codec, **changes: bool) -> Batches:
    return many(build([(1, None, b"vv", ())], codec), **changes)


def zeros(codec: Codec) -> Batches:
    """Build records of almost as many bytes as a batch may decompress to."""
    return Batches([build([(1, None, bytes(ZEROS_SIZE_BYTES), ())], codec)] * 2)


def messages_inside(codec: Codec, count: int) -> Batches:
    """Compressed messages of magic 1, which hold `count` others each."""
    inner = b"".join(message(b"vv", offset=offset) for offset in range(count))
    return many(message(compress(codec, inner), codec), count)


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
    *(
        Case("60 MB of zeros a batch", codec, lambda codec=codec: zeros(codec))
        for codec in CODECS[1:]
    ),
    Case("messages of magic 1", Codec.NONE, lambda: many(message(b"vv"))),
    *(
        Case(
            "messages of magic 1 with one inside",
            codec,
            lambda codec=codec: messages_inside(codec, 1),
        )
        for codec in LEGACY_CODECS
    ),
    *(
        Case(
            f"messages of magic 1 with {MESSAGES_INSIDE:,} inside",
            codec,
            lambda codec=codec: messages_inside(codec, MESSAGES_INSIDE),
        )
        for codec in LEGACY_CODECS
    ),
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


def read_with_pykclient(address: str, topic: str, partitions: list[int]) -> Iterator[bytes | None]:
    """Yield values; None for an error."""
    from pykclient import Consumer, TopicPartition
    from pykclient.errors import CorruptRecordError

    with Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        place = TopicPartition(topic, partitions.pop())
        consumer.assign([place])
        while True:
            try:
                value = None
                for record in consumer.poll(timeout=1):
                    value = record.value
                    yield value or b""
                yield NOTHING
                if value == BEGIN and partitions:
                    place = TopicPartition(topic, partitions.pop())
                    consumer.assign([place])
            except CorruptRecordError as error:
                yield None
                if error.next_offset is None:
                    raise
                consumer.seek(place, error.next_offset)


def read_with_confluent_kafka(
    address: str, topic: str, partitions: list[int]
) -> Iterator[bytes | None]:
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
    consumer.assign([TopicPartition(topic, partitions.pop(), 0)])
    while True:
        value = None
        for record in consumer.consume(500, 1):
            value = record.value()
            yield None if record.error() else value or b""
        yield NOTHING
        if value == BEGIN and partitions:
            consumer.assign([TopicPartition(topic, partitions.pop(), 0)])


def client(name: str, address: str, topic: str, partitions: list[int]) -> None:
    """Read partitions, the last one first, up to the end; print CPU seconds, errors and memory."""
    read = {"pykclient": read_with_pykclient, "confluent-kafka": read_with_confluent_kafka}[name]
    begun_kb = 0
    begun_s, error_count, until_s = 0.0, 0, time.monotonic() + SILENCE_S
    for value in read(address, topic, partitions):
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
            print(flush=True)
            Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from now on
            begun_s, begun_kb = time.process_time(), memory_kb("VmRSS")
        elif value == END:
            break
    figures = {
        "cpu_s": time.process_time() - begun_s,
        "errors": error_count,
        "memory_kb": memory_kb("VmHWM") - begun_kb,
    }
    print(json.dumps(figures), flush=True)
    os._exit(0)  # closing is not measured, and takes librdkafka seconds


class Measured(NamedTuple):
    """The cost of reading everything with one client."""

    cpu_ms: float
    """CPU of one megabyte."""
    error_count: int
    memory_mb: float


def run_client(
    name: str, address: str, topic: str, *extra: str, on_begun: Callable[[], object] = int
) -> dict[str, Any]:
    """Read all of a topic with a client."""
    command = [sys.executable, __file__, "--client", name, "--address", address, "--topic", topic]
    with subprocess.Popen([*command, *extra], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        on_begun()
        found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


class ScriptedKafka:
    """Brokers of this process, one for each client."""

    def measured(self, found: Batches, count: int, name: str) -> Measured:
        server = Server(found, count)
        with LoopbackServer(ScriptedBroker({ApiKey.FETCH: server})) as broker:
            ended = run_client(name, broker.address, TOPIC, on_begun=server.is_begun.set)
        cpu_ms = ended["cpu_s"] * 1_000 / (server.size_bytes / MEGABYTE)
        return Measured(cpu_ms, ended["errors"], ended["memory_kb"] / 1_000)


class RefusedError(Exception):
    """The broker does not take a batch from a producer."""


class RealKafka:
    """A real broker, to which batches are written as they are."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._numbers = itertools.count()
        self._topics: dict[int, tuple[str, int, Batches]] = {}
        """Topics by the identity of their contents, with the size."""

    def measured(self, found: Batches, count: int, name: str) -> Measured:
        topic, size_bytes, _ = self._topics.get(id(found)) or self._written(found, count)
        ended = run_client(name, self._address, topic, "--partitions", "0", "1")
        cpu_ms = ended["cpu_s"] * 1_000 / (size_bytes / MEGABYTE)
        return Measured(cpu_ms, ended["errors"], ended["memory_kb"] / 1_000)

    def _written(self, found: Batches, count: int) -> tuple[str, int, Batches]:
        """Write batches to a new topic, between the two records that clients wait for."""
        topic = f"t{next(self._numbers)}"
        settings = {"retention.ms": "-1", "max.message.bytes": "4000000"}
        with Admin(bootstrap_servers=self._address) as admin:
            admin.create_topics([NewTopic(topic, num_partitions=2, config=settings)])
        parts = [*plain(BEGIN).parts, *[*found.parts] * count, *plain(END).parts]
        host, _, port = self._address.rpartition(":")
        with socket.create_connection((host, int(port))) as connection:
            stream = connection.makefile("rb")
            begin, first, *rest = parts
            for partition, part in ((1, begin), (0, first)):
                request = encode_request(produce(topic, partition, part), PRODUCE_VERSION, 0, "")
                connection.sendall(request)
                while self._error(stream) in NOT_YET:
                    connection.sendall(request)
            for number, part in enumerate(rest):
                request = encode_request(produce(topic, 0, part), PRODUCE_VERSION, number, "")
                connection.sendall(request)
                if number >= IN_FLIGHT_MAX:
                    self._error(stream)
            for _ in rest[-IN_FLIGHT_MAX:]:
                self._error(stream)
        self._topics[id(found)] = topic, sum(map(len, parts)), found
        return self._topics[id(found)]

    def _error(self, stream: Any) -> int:
        """Return the code of an error that passes; 0 is none."""
        frame = stream.read(int.from_bytes(stream.read(4)))
        response = decode_response(ProduceResponse, PRODUCE_VERSION, frame)
        result = response.responses[0].partition_responses[0]
        if result.error_code and result.error_code not in NOT_YET:
            raise RefusedError(result.error_code)
        return result.error_code


def produce(topic: str, partition: int, part: bytes) -> ProduceRequest:
    data = PartitionProduceData(partition, INT64(0) + part[8:])
    return ProduceRequest(
        acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(topic, partition_data=[data])]
    )


def row(kafka: ScriptedKafka | RealKafka, case: Case, given: argparse.Namespace) -> list[Measured]:
    """Measure a case with both clients."""
    found = case.make()
    count = 1 if found.step == 1 and "zeros" in case.name else given.megabytes
    measured = []
    for name in CLIENTS:
        rounds = [kafka.measured(found, count, name) for _ in range(given.rounds)]
        least = min(rounds)
        measured.append(least._replace(memory_mb=max(each.memory_mb for each in rounds)))
    return measured


def print_table(kafka: ScriptedKafka | RealKafka, given: argparse.Namespace) -> None:
    print("| codec | a megabyte of | pykclient, ms | confluent-kafka, ms | times usual | ", end="")
    print("times confluent | pykclient, MB | confluent-kafka, MB |\n| ", end="")
    print(" | ".join(["---"] * 8), "|", flush=True)
    usual_ms: dict[Codec, float] = {}
    for case in CASES:
        if given.only not in f"{case.codec.name.lower()} {case.name}" and case.name != "usual":
            continue
        codec = case.codec.name.lower()
        try:
            measured = row(kafka, case, given)
        except RefusedError as error:
            print(f"| {codec} | {case.name} | refused, error code {error.args[0]} |", flush=True)
            continue
        ours, theirs = measured
        usual_ms.setdefault(case.codec, ours.cpu_ms)
        shown = [f"{each.cpu_ms:.1f}{' error' if each.error_count else ''}" for each in measured]
        ratios = [
            f"{ours.cpu_ms / usual_ms[case.codec]:.1f}",
            f"{ours.cpu_ms / max(theirs.cpu_ms, 0.1):.1f}",
        ]
        memory = [f"{each.memory_mb:.0f}" for each in measured]
        print(f"| {' | '.join([codec, case.name, *shown, *ratios, *memory])} |", flush=True)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", metavar="VERSION", help="a real broker of this version")
    parser.add_argument("--megabytes", type=int, default=10, help="for each figure")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="rows whose name or codec has this text")
    parser.add_argument("--client", choices=CLIENTS, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--topic", help=argparse.SUPPRESS)
    parser.add_argument("--partitions", type=int, nargs="+", default=[0], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.client:
        client(given.client, given.address, given.topic, given.partitions)
    if given.kafka is None:
        print_table(ScriptedKafka(), given)
    else:
        with KafkaCluster(version=given.kafka) as cluster:
            print_table(RealKafka(cluster.bootstrap_servers), given)


if __name__ == "__main__":
    main()
