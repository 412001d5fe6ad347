"""Type checkers find nothing in correct programs and every mistake in wrong ones.

Both check all programs at once: mypy with this project's strict options, pyright (as basedpyright,
which brings its own node) with its standard ones, and strictly for the correct program of this
file. The other programs are those of README and docs. A comment behind each wrong line has a part
of mypy's message; pyright has to find the line, too.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
MYPY_ERROR = re.compile(r"^.*?(\w+\.py):(\d+): error: (.*)$", re.MULTILINE)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# (\w+\.py)\n")
IMPORT = re.compile(r"^(?:from|import) pykclient\b", re.MULTILINE)

BEFORE_FRAGMENTS = {
    "docs/consumer.md": """
from pykclient import Consumer, RebalanceListener

consumer = Consumer(bootstrap_servers="localhost:9092", group_id="g")
""",
    "docs/spark.md": """
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
servers, folder = "localhost:9092", "checkpoints"
""",
}
"""Code that goes before a page's blocks that do not import `pykclient`.

They are checked as one program.
"""

RIGHT = """# pyright: strict
import json
from collections.abc import Mapping
from typing import Any, assert_type
from uuid import UUID

from pykclient import (
    Admin,
    Consumer,
    ConsumerRecord,
    ConsumerRecords,
    ConsumerSettings,
    Delivery,
    OffsetAndMetadata,
    Producer,
    ProducerRecord,
    RecordMetadata,
    TopicPartition,
)
from pykclient.errors import CorruptRecordError, KafkaError, RecordDeserializationError
from pykclient.serialization import (
    JsonDeserializer,
    JsonSerializer,
    LongDeserializer,
    LongSerializer,
    StringDeserializer,
    StringSerializer,
    UUIDDeserializer,
)


class Order:
    pass


Pairs = tuple[tuple[str, bytes | None], ...]


def read_order(data: bytes) -> Order:
    raise NotImplementedError


def read_order_of(topic: str, data: bytes) -> Order | None:
    raise NotImplementedError


class ReadsHeaders:
    def deserialize(self, topic: str, headers: Pairs, data: bytes) -> Order:
        raise NotImplementedError


class WritesOrders:
    def serialize(self, topic: str, order: Order) -> bytes:
        raise NotImplementedError


class WritesHeaders:
    def serialize(self, topic: str, order: Order, headers: list[tuple[str, bytes | None]]) -> bytes:
        raise NotImplementedError


def on_delivery(metadata: RecordMetadata, error: KafkaError | None) -> None:
    if error is not None and not error.retriable:
        print(metadata.partition, error)


def on_commit(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], error: KafkaError | None
) -> None: ...


def keep(error: CorruptRecordError | RecordDeserializationError) -> None:
    print(error.topic, error.offset)


def count(records: ConsumerRecords[object, object]) -> int:
    return len(records)


def work(record: ConsumerRecord) -> None:
    print(record.value.decode() if record.value is not None else "null")


# Settings.
with Producer(bootstrap_servers="kafka:9092", acks="all", compression_type="zstd") as raw:
    delivery = raw.send("t", b"v", key=b"k", headers=[("h", b"1")], on_delivery=on_delivery)
    assert_type(delivery, Delivery[RecordMetadata])
    assert_type(delivery.exception(), KafkaError | None)
    raw.send("t", bytearray(b"v"), headers={"h": None}).result(timeout=10)
    raw.send(ProducerRecord("t", b"v", key=b"k"), on_delivery=lambda metadata, error: print(error))
    raw.send_batch("t", [b"1", None], keys=[b"k", b"l"]).result()
with Producer({"bootstrap.servers": "kafka:9092", "acks": "all"}, linger_ms=5):
    pass
with Admin(bootstrap_servers=("kafka", 9092), request_timeout_ms=1_000):
    pass
with Consumer(
    bootstrap_servers=["kafka:9092", ("other", 9092)],
    group_id="g",
    auto_offset_reset="by_duration:PT12H",
    partition_assignment_strategy=["cooperative-sticky"],
    consumer_timeout_ms=None,
    on_record_error=keep,
) as bytes_consumer:
    bytes_consumer.subscribe(["t"])
    for record in bytes_consumer:
        assert_type(record.key, bytes | None)
        assert_type(record.value, bytes | None)
        work(record)
    bytes_consumer.commit_async(bytes_consumer.poll(), on_commit)
settings: ConsumerSettings = {"bootstrap_servers": "kafka:9092", "group_id": "g"}
Consumer(**settings).close()

# Keys and values, as deserializers make them.
texts = Consumer(
    bootstrap_servers="kafka:9092",
    key_deserializer=StringDeserializer(),
    value_deserializer=JsonDeserializer(),
)
assert_type(texts, Consumer[str, Any])
records = texts.poll()
assert_type(records, ConsumerRecords[str, Any])
assert_type(records[0], ConsumerRecord[str, Any])
assert_type(records[:9], list[ConsumerRecord[str, Any]])
assert_type(next(iter(texts)).key, str | None)
count(records)
texts.store_offset(records[0])
texts.commit(records)
assert_type(
    Consumer(value_deserializer=read_order, key_deserializer=UUIDDeserializer),
    Consumer[UUID, Order],
)
assert_type(Consumer(value_deserializer=read_order_of), Consumer[bytes, Order])
assert_type(Consumer(value_deserializer=ReadsHeaders()), Consumer[bytes, Order])
assert_type(Consumer(value_deserializer=json.loads), Consumer[bytes, Any])
assert_type(Consumer(key_deserializer=bytes.decode), Consumer[str, bytes])
assert_type(Consumer({"group.id": "g"}), Consumer[bytes, bytes])
named = Consumer[str, Order](value_deserializer="orders:read")
inferred: Consumer[str, int] = Consumer(
    key_deserializer=StringDeserializer("latin-1"), value_deserializer=LongDeserializer()
)

# And as serializers take them.
with Producer(key_serializer=StringSerializer(), value_serializer=JsonSerializer()) as producer:
    assert_type(producer, Producer[str, object])
    producer.send("t", {"item": "lamp"}, key="k")
    producer.send("t", key="k")
    producer.send_batch("t", [1, "two"], keys=["k", None])
Producer(value_serializer=WritesOrders()).send("t", Order(), key=b"k")
Producer(value_serializer=WritesHeaders()).send(ProducerRecord("t", Order()))
Producer(value_serializer=str.encode, key_serializer=LongSerializer).send("t", "text", key=5)
Producer[bytes, list[int]](value_serializer=lambda value: json.dumps(value).encode()).send("t", [1])
"""
WRONG = """
from pykclient import Admin, Consumer, ConsumerRecord, Producer, ProducerRecord, RecordMetadata
from pykclient.serialization import JsonSerializer, LongDeserializer, StringSerializer
from pykclient.serialization import UUIDDeserializer


def one_argument(metadata: RecordMetadata) -> None: ...
def of_text(metadata: RecordMetadata, error: str) -> None: ...
def of_two(one: int, two: int) -> None: ...
def work(record: ConsumerRecord) -> None: ...


Producer(bootstrap_server="kafka:9092")  # Unexpected keyword argument "bootstrap_server"
Producer(bootstrap_servers="kafka:9092", linger_ms="5")  # "str"; expected "int"
Producer(bootstrap_servers="kafka:9092", compression_type="brotli")  # expected "Literal['none',
Producer(bootstrap_servers="kafka:9092", acks=2)  # expected "Literal['all',
Producer(bootstrap_servers="kafka:9092", enable_idempotence="yes")  # expected "bool"
Producer(bootstrap_servers="kafka:9092", group_id="g")  # Unexpected keyword argument "group_id"
Consumer(bootstrap_servers=9092)  # "bootstrap_servers" to "Consumer" has incompatible type "int"
Consumer(bootstrap_servers="kafka:9092", isolation_level="committed")  # 'read_committed'
Consumer(bootstrap_servers="kafka:9092", fetch_min_bytes=None)  # expected "int"
Consumer(bootstrap_servers="kafka:9092", acks="all")  # Unexpected keyword argument "acks"
Admin(bootstrap_servers="kafka:9092", linger_ms=5)  # Unexpected keyword argument "linger_ms"
Consumer(on_record_error=of_two)  # "on_record_error" to "Consumer"
Consumer(value_deserializer=5)  # "value_deserializer" to "Consumer"
Producer(value_serializer=str.upper)  # "value_serializer" to "Producer"

raw = Producer(bootstrap_servers="kafka:9092")
raw.send("t", "text")  # No overload variant of "send"
raw.send("t", b"v", key=5)  # No overload variant of "send"
raw.send("t", b"v", headers={"h": "text"})  # "headers" to "send"
raw.send("t", b"v", timestamp_ms="now")  # No overload variant of "send"
raw.send("t", b"v", on_delivery=one_argument)  # "on_delivery" to "send"
raw.send("t", b"v", on_delivery=of_text)  # "on_delivery" to "send"
raw.send(ProducerRecord("t", "text"))  # Argument 2 to "ProducerRecord"
raw.send("t", b"v").result(10).ofset  # has no attribute "ofset"
raw.send("t", b"v", lambda metadata: None)  # No overload variant of "send"
typed = Producer(key_serializer=StringSerializer(), value_serializer=JsonSerializer())
typed.send("t", {}, key=b"k")  # No overload variant of "send"
typed.send_batch("t", [{}], keys=[b"k"])  # "bytes"; expected "str | None"

consumer = Consumer(key_deserializer=UUIDDeserializer(), value_deserializer=LongDeserializer())
for record in consumer:
    record.value.upper()  # "int" of "int | None" has no attribute "upper"
    record.value + 1  # Unsupported operand types for + ("None" and "int")
    text: str = record.key  # expression has type "UUID | None", variable has type "str"
    record.headers["h"]  # "__getitem__" of "tuple" matches argument type "str"
    record.offset = 5  # read-only
    work(record)  # expected "ConsumerRecord[bytes, bytes]"
for record_of_bytes in Consumer(bootstrap_servers="kafka:9092"):
    record_of_bytes.value.decode()  # "None" of "bytes | None" has no attribute "decode"
consumer.commit_async(callback=one_argument)  # "callback" to "commit_async"
consumer.commit("t")  # Argument 1 to "commit" of "Consumer"
consumer.subscribe("t", listener=print)  # "listener"
other: Consumer[str, bytes] = Consumer(key_deserializer=LongDeserializer())  # "key_deserializer"
"""


MISTAKES = {
    number: line.partition("  # ")[2]
    for number, line in enumerate(WRONG.splitlines(), 1)
    if "  # " in line
}


class Finding(NamedTuple):
    """An error that a checker has found."""

    program: str
    line: int
    message: str


def programs() -> dict[str, str]:
    """Return the programs in README and docs, by the names of their files."""
    found: dict[str, str] = {}
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        path = page.relative_to(ROOT).as_posix()
        name = re.sub(r"\W", "_", path.removesuffix(".md"))
        fragments = BEFORE_FRAGMENTS.get(path, "")
        for number, block in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")), 1):
            if path not in BEFORE_FRAGMENTS or IMPORT.search(block):
                named = FILE_NAME.match(block)  # another program may import it
                file = named[1] if named else f"{name}_{number}.py"
                assert file not in found, f"{path}: {file} stands in two places"
                found[file] = block
            else:
                fragments += block
        if fragments:
            found[f"{name}_fragments.py"] = fragments
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All programs, each in a file."""
    folder = tmp_path_factory.mktemp("programs")
    for name, text in {**programs(), "right.py": RIGHT, "wrong.py": WRONG}.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def output_of(*command: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


@cache
def mypy_findings(folder: Path) -> list[Finding]:
    output = output_of("mypy", "--no-error-summary", *sorted(folder.glob("*.py")))
    return [Finding(name, int(line), text) for name, line, text in MYPY_ERROR.findall(output)]


def pyright_findings(folder: Path) -> list[Finding]:
    config = {
        "typeCheckingMode": "standard",
        "pythonVersion": "3.11",
        "extraPaths": [str(ROOT)],
        "reportPrivateImportUsage": False,  # pyspark's and pyarrow's
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    output = output_of(
        *("basedpyright", "--outputjson", "--pythonpath", sys.executable, "-p", folder)
    )
    return [
        Finding(Path(each["file"]).name, each["range"]["start"]["line"] + 1, each["message"])
        for each in json.loads(output)["generalDiagnostics"]
        if each["severity"] == "error"
    ]


@pytest.fixture(scope="module", params=[mypy_findings, pyright_findings], ids=["mypy", "pyright"])
def findings(request: pytest.FixtureRequest, folder: Path) -> list[Finding]:
    """Run a checker over all of them."""
    found: list[Finding] = request.param(folder)
    return found


def test_the_programs_of_the_documents_have_no_error(findings: list[Finding]) -> None:
    assert len(programs()) > 10
    assert [each for each in findings if each.program not in ("wrong.py", "right.py")] == []


def test_a_program_that_is_right_has_no_error(findings: list[Finding]) -> None:
    assert [each for each in findings if each.program == "right.py"] == []


def test_every_planted_mistake_is_found_in_its_line(findings: list[Finding]) -> None:
    assert lines_of_wrong(findings).keys() == MISTAKES.keys()


def test_what_mypy_says_of_a_mistake_names_it(folder: Path) -> None:
    said = lines_of_wrong(mypy_findings(folder))
    assert [(line, part) for line, part in MISTAKES.items() if part not in said[line]] == []


def lines_of_wrong(findings: list[Finding]) -> dict[int, str]:
    """Return the lines of the wrong program in which something was found, and what."""
    found: dict[int, str] = {}
    for each in findings:
        if each.program == "wrong.py":
            found[each.line] = found.get(each.line, "") + each.message + "\n"
    return found
