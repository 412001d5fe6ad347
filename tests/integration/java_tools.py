"""Kafka's own tools and its Java client, for comparison with this package.

What Java reads comes through its console consumer, which is binary safe with separators that no
record holds. What Java writes comes from its producer itself, driven over py4j: the console
producer reads lines of text, so it could not write most of what has to be tested. What needs no
process of its own runs in a JVM of the cluster's version that the whole run shares.

Owner: the run, of the JVMs; the calling thread, which is one at a time, for the length of a call.
Source: Java classes ``ConsoleConsumer``, ``ConsumerGroupCommand``, ``DefaultMessageFormatter``,
``DumpLogSegments``, ``KafkaProducer`` and ``BuiltInPartitioner``.
"""

from __future__ import annotations

import atexit
import re
import subprocess
import tempfile
import uuid
from functools import cache, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.java_gateway import GatewayParameters, JavaGateway, find_jar_path, launch_gateway
from py4j.protocol import Py4JJavaError

from pykclient.testing.cluster.jars import kafka_jars
from pykclient.testing.cluster.java import find_java
from pykclient.testing.cluster.properties import dump_properties
from pykclient.testing.spark_cluster.home import QUICK_JVM

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pykclient.testing import KafkaCluster
    from pykclient.testing.cluster.properties import PropertyValue

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SILENCE_TIMEOUT_MS = 20_000
TOOL_TIMEOUT_S = 120.0
SHARE_POLLS = 60

_QUIET = ("-Xmx512m", *QUICK_JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
_LINGER_MS = 200
"""Long enough that consecutive records share a batch, so that a codec has data to compress."""


class Record(NamedTuple):
    """A record to write, or one that was read or acknowledged; None = null or unknown."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None
    offset: int | None = None

    def placed(self, partition: int, offset: int, timestamp_ms: int) -> Record:
        """Return the record with the position that the broker gave it."""
        return self._replace(partition=partition, offset=offset, timestamp_ms=timestamp_ms)


def java_consume(
    cluster: KafkaCluster,
    topic: str,
    count: int,
    *,
    settings: Mapping[str, str] | None = None,
    is_from_beginning: bool = True,
) -> list[Record]:
    """Read `count` records of a topic from its start with the console consumer.

    They come in the order in which it printed them, fewer when no more came for 20 s. `settings`
    are the consumer's, with dotted names. Where its group has committed, it goes on there.
    """
    formatter = _Formatter()
    with tempfile.TemporaryDirectory() as name:
        formatter_file, consumer_file = Path(name, "formatter"), Path(name, "consumer")
        formatter_file.write_text(dump_properties(formatter.properties()))
        consumer_file.write_text(dump_properties({"enable.auto.commit": False, **(settings or {})}))
        config = "--consumer.config" if cluster.version < "4" else "--command-config"
        output, _ = _run_in_jvm(
            cluster.version,
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic),
            *(("--from-beginning",) if is_from_beginning else ()),
            *("--max-messages", str(count)),
            *("--timeout-ms", str(SILENCE_TIMEOUT_MS), config, str(consumer_file)),
            *("--formatter-config", str(formatter_file)),
        )
    return formatter.parse(output)


def java_produce(
    cluster: KafkaCluster,
    topic: str,
    records: Iterable[Record],
    codec: str = "none",
    *,
    settings: Mapping[str, str] | None = None,
) -> list[Record]:
    """Write records with Java's producer; return them as acknowledged, in order.

    A record without a partition goes where Java's partitioner sends it. `settings` are the
    producer's, with dotted names.
    """
    java = _gateway(cluster.version).jvm
    properties = java.java.util.Properties()
    for name, value in {
        "bootstrap.servers": cluster.bootstrap_servers,
        "compression.type": codec,
        "linger.ms": str(_LINGER_MS),
        "max.request.size": str(2**21),
        **(settings or {}),
    }.items():
        properties.setProperty(name, value)
    clients = java.org.apache.kafka.clients
    serializer = java.org.apache.kafka.common.serialization.ByteArraySerializer
    producer = clients.producer.KafkaProducer(properties, serializer(), serializer())
    sent = [(record, producer.send(_java_record(java, topic, record))) for record in records]
    producer.close()  # Waits until all are sent.
    return [_placed(record, future.get()) for record, future in sent]


def java_share_read(cluster: KafkaCluster, topic: str, group: str) -> int:
    """Read and acknowledge records of a topic as a member of a share group; return the count.

    What it has not acknowledged when it joins stays unread, so the topic gets records meanwhile.
    """
    java = _gateway(cluster.version).jvm
    properties = java.java.util.Properties()
    properties.setProperty("bootstrap.servers", cluster.bootstrap_servers)
    properties.setProperty("group.id", group)
    deserializer = java.org.apache.kafka.common.serialization.ByteArrayDeserializer
    consumer = java.org.apache.kafka.clients.consumer.KafkaShareConsumer(
        properties, deserializer(), deserializer()
    )
    consumer.subscribe(java.java.util.Collections.singletonList(topic))
    read_count = 0
    try:
        for _ in range(SHARE_POLLS):
            java_produce(cluster, topic, [Record(b"shared")])
            read_count += consumer.poll(java.java.time.Duration.ofMillis(500)).count()
            if read_count:
                consumer.commitSync()
                break
    finally:
        consumer.close()
    return read_count


def java_list_topics(
    version: str, settings: Mapping[str, str], *, system: Mapping[str, str] | None = None
) -> set[str]:
    """Return the topics that Java's admin client of a Kafka version finds.

    `settings` are the client's, with dotted names; `system` are properties of the JVM, which stay.

    Raises:
        JavaError: the client cannot be made, or its call failed; says the causes, innermost last.
    """
    java = _gateway(version).jvm
    for name, value in (system or {}).items():
        java.java.lang.System.setProperty(name, value)
    properties = java.java.util.Properties()
    for name, value in settings.items():
        properties.setProperty(name, value)
    try:
        admin = java.org.apache.kafka.clients.admin.Admin.create(properties)
        try:
            return set(admin.listTopics().names().get())
        finally:
            admin.close()
    except Py4JJavaError as error:
        raise JavaError(" <- ".join(_causes(error.java_exception))) from None


class JavaError(Exception):
    """An exception of Java, with its causes."""


def _causes(exception: Any) -> Iterator[str]:
    while exception is not None:
        yield exception.toString()
        exception = exception.getCause()


def java_write_lines(version: str, servers: str, topic: str, lines: Iterable[bytes]) -> None:
    """Write each line as a record's value with the console producer of a Kafka version."""
    package = "kafka.tools" if version < "4" else "org.apache.kafka.tools"
    options = ("--bootstrap-server", servers, "--topic", topic)
    given = b"".join(line + b"\n" for line in lines)
    run_tool(version, f"{package}.ConsoleProducer", *options, given=given)


def java_groups(version: str, servers: str, *arguments: str) -> list[list[str]]:
    """Return the words of each line that the tool for consumer groups of a Kafka version prints."""
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    # It would give up after 5 s, which a busy machine may take to start it.
    timeout_ms = str(int(TOOL_TIMEOUT_S * 1000))
    options = ("--bootstrap-server", servers, "--timeout", timeout_ms)
    output, _ = _run_in_jvm(version, tool, *options, *arguments)
    return [line.split() for line in output.decode().splitlines() if line.strip()]


def java_group_rows(cluster: KafkaCluster, *options: str) -> list[dict[str, str]]:
    """Each row that the tool prints, by its table's headings."""
    lines = java_groups(cluster.version, cluster.bootstrap_servers, *options)
    heading, *rows = [words for words in lines if len(words) > 1]
    return [dict(zip(heading, row, strict=True)) for row in rows]


def java_partitions(version: str, keys: Sequence[bytes], partition_count: int) -> list[int]:
    """Return the partitions that Java's producer of a Kafka version chooses for these keys."""
    partitioner = _gateway(version).jvm.org.apache.kafka.clients.producer.internals
    partition_for_key = partitioner.BuiltInPartitioner.partitionForKey
    return [partition_for_key(key, partition_count) for key in keys]


def dump_log(
    cluster: KafkaCluster, topic: str, partition: int = 0, *, broker: int = 1
) -> list[dict[str, str]]:
    """Return the batches in a broker's files, each as the fields that ``DumpLogSegments`` names.

    Among them ``baseOffset, lastOffset, count, producerId, producerEpoch, baseSequence, magic,
    compresscodec, crc, isvalid``.
    """
    segments = sorted((cluster.data_folder(broker) / f"{topic}-{partition}").glob("*.log"))
    output, _ = dump_segments(cluster.version, *segments)
    lines = output.decode().splitlines()
    return [dict(re.findall(r"(\w+): (\S+)", line)) for line in lines if "baseOffset: " in line]


def dump_segments(version: str, *paths: Path, options: Sequence[str] = ()) -> tuple[bytes, bytes]:
    """Run ``DumpLogSegments`` on files; return its output and its complaints."""
    files = ("--files", ",".join(map(str, paths)))
    if version < "4":  # In Scala, whose output cannot be taken within a JVM.
        return _run_process(version, "kafka.tools.DumpLogSegments", *files, *options)
    return _run_in_jvm(version, "org.apache.kafka.tools.DumpLogSegments", *files, *options)


def format_standalone_controller(version: str, folder: Path) -> Path:
    """Format the data folder of a controller, node 7, whose quorum can change; where it is."""
    data, properties = folder / "data", folder / "server.properties"
    address = "127.0.0.1:9099"
    settings: dict[str, PropertyValue] = {
        "process.roles": "controller",
        "node.id": 7,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CONTROLLER://{address}",
        "controller.quorum.bootstrap.servers": address,
        "log.dirs": str(data),
    }
    properties.write_text(dump_properties(settings))
    options = ("--standalone", f"--cluster-id={uuid.UUID(int=1).hex[:22]}")
    run_tool(version, "kafka.tools.StorageTool", "format", *options, f"--config={properties}")
    return data


def run_tool(version: str, tool: str, *arguments: str, given: bytes = b"") -> bytes:
    """Run a Kafka version's tool as a process; return its output. `given` is its input."""
    return _run_process(version, tool, *arguments, given=given)[0]


def _run_process(
    version: str, tool: str, *arguments: str, given: bytes = b""
) -> tuple[bytes, bytes]:
    java = find_java()
    completed = subprocess.run(
        [java.executable, *_QUIET, *kafka_jars(version).java_options(java), tool, *arguments],
        input=given,
        capture_output=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )
    if completed.returncode != 0:
        raise RuntimeError(f"{tool} failed:\n{completed.stderr.decode(errors='replace')[-4000:]}")
    return completed.stdout, completed.stderr


def _run_in_jvm(version: str, tool: str, *arguments: str) -> tuple[bytes, bytes]:
    """Run a tool that neither reads input nor exits; return its output and its complaints.

    What it raises is raised here; where it does end the process the gateway is gone.
    """
    gateway = _gateway(version)
    java = gateway.jvm.java
    words = gateway.new_array(java.lang.String, len(arguments))
    for index, argument in enumerate(arguments):
        words[index] = argument
    streams = [java.io.ByteArrayOutputStream() for _ in range(2)]
    before = (java.lang.System.out, java.lang.System.err)
    put = (java.lang.System.setOut, java.lang.System.setErr)
    for put_stream, stream in zip(put, streams, strict=True):
        put_stream(java.io.PrintStream(stream, True, "UTF-8"))
    try:
        reduce(getattr, tool.split("."), gateway.jvm).main(words)
    finally:
        for put_stream, stream in zip(put, before, strict=True):
            put_stream(stream)
    output, complaint = (bytes(stream.toByteArray()) for stream in streams)
    return output, complaint


class _Formatter:
    """Format in which the console consumer prints a record, and its parser.

    The separators are random, so that no record holds one, and a null differs from any value.
    """

    def __init__(self) -> None:
        self._field, self._line, self._header, self._null = (
            f"<{uuid.uuid4().hex}>" for _ in range(4)
        )

    def properties(self) -> dict[str, str]:
        shown = ("timestamp", "partition", "offset", "headers", "key", "value")
        return {
            **{f"print.{name}": "true" for name in shown},
            "key.separator": self._field,
            "line.separator": self._line,
            "headers.separator": self._header,
            "null.literal": self._null,
        }

    def parse(self, output: bytes) -> list[Record]:
        *lines, rest = output.split(self._line.encode())
        assert rest == b"", f"after the last record: {rest!r}"
        return [self._record(line) for line in lines]

    def _record(self, line: bytes) -> Record:
        timestamp, partition, offset, headers, key, value = line.split(self._field.encode())
        return Record(
            self._nullable(value),
            self._nullable(key),
            tuple(self._headers(headers)),
            *(int(number.partition(b":")[2]) for number in (partition, timestamp, offset)),
        )

    def _headers(self, text: bytes) -> Iterator[tuple[str, bytes | None]]:
        if text != b"NO_HEADERS":
            for header in text.split(self._header.encode()):
                name, _, value = header.partition(b":")
                yield name.decode(), self._nullable(value)

    def _nullable(self, text: bytes) -> bytes | None:
        return None if text == self._null.encode() else text


def _placed(record: Record, metadata: Any) -> Record:
    return record.placed(metadata.partition(), metadata.offset(), metadata.timestamp())


def _java_record(java: Any, topic: str, record: Record) -> Any:
    header = java.org.apache.kafka.common.header.internals.RecordHeader
    headers = java.java.util.ArrayList()
    for name, value in record.headers:
        headers.add(header(name, value))
    timestamp = None
    if record.timestamp_ms is not None:
        timestamp = java.java.lang.Long.valueOf(str(record.timestamp_ms))
    return java.org.apache.kafka.clients.producer.ProducerRecord(
        topic, record.partition, timestamp, record.key, record.value, headers
    )


@cache
def _gateway(version: str) -> JavaGateway:
    """Start a JVM with the classes of a Kafka version, seen through py4j; it ends with us."""
    java = find_java()
    *options, classpath = kafka_jars(version).java_options(java)
    # Kafka's jars first, as in their archive; the last class path that is given counts.
    gateway_jar = find_jar_path()
    port, token, process = launch_gateway(
        jarpath=gateway_jar,
        javaopts=[*_QUIET, "-Dfile.encoding=UTF-8", *options, f"{classpath}:{gateway_jar}"],
        java_path=str(java.executable),
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    parameters = GatewayParameters(port=port, auth_token=token, auto_field=True)
    gateway = JavaGateway(gateway_parameters=parameters)

    def end() -> None:
        gateway.shutdown()
        # py4j's own threads read its output to the end and close it, once it has ended.
        process.stdin.close()
        process.wait(TOOL_TIMEOUT_S)

    atexit.register(end)
    return gateway
