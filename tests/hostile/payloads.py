"""Payloads of hostile brokers, and the peers that send them.

Owner: none; each client has new peers.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import struct
import zlib
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import cramjam
import trustme

from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.messages.consumer_group_heartbeat import (
    ResponseTopicPartitions,
)
from pykclient.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from pykclient.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from pykclient.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from pykclient.protocol.messages.sasl_handshake import SaslHandshakeResponse
from pykclient.protocol.reader import ELEMENTS_MAX
from pykclient.records.compression import Codec
from tests.hostile.client import TIMEOUT_MS, TOPIC
from tests.hostile.peer import (
    KIP848_VERSIONS,
    TOPIC_ID,
    HangUp,
    Received,
    Reply,
    ScriptedBroker,
    assigned_by_kip848,
    metadata,
    synced,
)
from tests.records.batches import build, resealed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pykclient.protocol.messages.metadata import MetadataResponse
    from tests.integration.loopback_server import Behaviour

INT16 = struct.Struct(">h").pack
INT32 = struct.Struct(">i").pack
INT64 = struct.Struct(">q").pack
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
MILLION: Final = 1_000_000
PATIENCE_MS: Final = 5_000
ENDLESS_VARINT: Final = b"\xff" * 12

PLAIN: Final = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": "alice-secret",
}
SCRAM: Final = {**PLAIN, "sasl_mechanism": "SCRAM-SHA-256"}


class Hostile(NamedTuple):
    """A broker, and how the call of a client ends that meets it.

    `error` is the name of the error, or of one above it; None: the call goes on, and returns
    `text`. Otherwise `text` is a part of what the error says.
    """

    name: str
    call: str
    peer: Callable[[], Behaviour]
    error: str | None
    text: str
    settings: Mapping[str, Any] = {}
    given_ms: int = 0

    @property
    def timeout_ms(self) -> int:
        """The timeout of the call; one that ends by itself has time enough on a busy machine."""
        is_to_wait = (self.error or "").endswith("TimeoutError") or (
            self.error is None and self.call.startswith(("poll", "join")) and self.text == "0"
        )
        return self.given_ms or (TIMEOUT_MS if is_to_wait else PATIENCE_MS)


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def zigzag(number: int) -> bytes:
    return varint((number << 1) ^ (number >> 63))


def compact(text: str) -> bytes:
    data = text.encode()
    return varint(len(data) + 1) + data


# Bytes in the place of the first response.


def sends(data: bytes) -> Callable[[], Behaviour]:
    """Respond to whatever comes with these bytes, and to more with nothing."""

    def serve(connection: Any) -> None:
        if connection.recv(4096):
            connection.sendall(data)
            while connection.recv(65_536):
                pass

    return lambda: serve


def floods(data: bytes) -> Callable[[], Behaviour]:
    """Send these bytes again and again."""

    def serve(connection: Any) -> None:
        while True:
            connection.sendall(data)

    return lambda: serve


def hangs_up_at_once() -> Behaviour:
    return lambda connection: None


def drips(data: bytes, connection: socket.socket) -> None:
    """Send a byte a second, until the client has gone."""
    connection.settimeout(1.0)
    for byte in data:
        connection.sendall(bytes([byte]))
        with contextlib.suppress(TimeoutError):
            if not connection.recv(65_536):
                return


def dripped(data: bytes) -> Callable[[], Behaviour]:
    return lambda: partial(drips, data)


# TLS.

TLS: Final = {"security_protocol": "SSL", "enable_ssl_certificate_verification": False}
ALERT: Final = b"\x15\x03\x03\x00\x02\x01\x5a"
"""A warning, which ends nothing: *user canceled*."""


@cache
def server_context(version: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = version
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    return context


def secured(
    behaviour: Callable[[ssl.SSLSocket], object], version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> Callable[[], Behaviour]:
    """Do the handshake of TLS, and then whatever follows."""

    def serve(connection: socket.socket) -> None:
        with (
            contextlib.suppress(ssl.SSLError),
            server_context(version).wrap_socket(connection, server_side=True) as end,
        ):
            behaviour(end)

    return lambda: serve


def below_tls(data: bytes) -> Callable[[ssl.SSLSocket], object]:
    """Send bytes on the stream below TLS, again and again, once the client has sent something."""

    def serve(connection: ssl.SSLSocket) -> None:
        connection.recv(4096)
        with socket.socket(fileno=connection.detach()) as plain:
            while True:
                plain.sendall(data)

    return serve


# Responses of a broker.


def broker(*versions: tuple[ApiKey, int], **instead: Any) -> Callable[[], Behaviour]:
    """Make a broker; each keyword is an API with its response, or a function that makes one."""
    responders = {
        ApiKey[name.upper()]: value if callable(value) else partial(_constant, value)
        for name, value in instead.items()
    }

    def peer() -> Behaviour:
        for respond in responders.values():
            if isinstance(respond, Prepared):
                respond.prepare()
        return ScriptedBroker(responders, dict(versions))

    return peer


class Prepared:
    """A response whose bytes take a while to make, so they are made before a client waits."""

    def __init__(self, make: Callable[[], bytes], respond: Callable[[Received, bytes], Reply]):
        self._make = make
        self._respond = respond
        self._data = b""

    def prepare(self) -> None:
        self._data = self._make()

    def __call__(self, received: Received) -> Reply:
        return self._respond(received, self._data)


def _constant(value: Reply, _: Received) -> Reply:
    return value


def body(data: bytes | Callable[[], bytes]) -> Prepared:
    """Return a response of these bytes behind the header that is due."""
    return Prepared(_made(data), lambda received, made: received.frame(made))


def _made(data: bytes | Callable[[], bytes]) -> Callable[[], bytes]:
    return partial(bytes, data) if isinstance(data, bytes) else data


def hang_up(_: Received) -> Reply:
    raise HangUp


def changed(make: Callable[[Received], Any], **fields: Any) -> Callable[[Received], Any]:
    """Return a good response with some fields changed."""

    def respond(received: Received) -> Any:
        response = make(received)
        for name, value in fields.items():
            setattr(response, name, value)
        return response

    return respond


# Metadata, version 9: throttle time, brokers, cluster id, controller, topics, operations, tags.

NO_BROKERS: Final = INT32(0) + varint(1) + b"\0" + INT32(0)
ONE_NODE: Final = INT32(1) + compact("h") + INT32(9092) + b"\0\0"
METADATA_END: Final = INT32(0) + b"\0"
METADATA_8: Final = (ApiKey.METADATA, 8)
"""The last version with counts of four bytes."""


def many(count: int, make: Callable[[int], bytes]) -> bytes:
    """Elements of a number of their own up to the limit; beyond, the same again."""
    distinct = b"".join(map(make, range(min(count, ELEMENTS_MAX))))
    return distinct * max(1, count // ELEMENTS_MAX)


@cache
def nodes(count: int) -> bytes:
    each = many(count, lambda i: INT32(i) + b"\x02h" + INT32(9092) + b"\0\0")
    return INT32(0) + varint(count + 1) + each + b"\0" + INT32(0) + varint(1) + METADATA_END


@cache
def topics(count: int) -> bytes:
    end = b"\0" + varint(1) + INT32(0) + b"\0"
    each = many(count, lambda i: INT16(0) + b"\x08%07x" % i + end)
    return NO_BROKERS + varint(count + 1) + each + METADATA_END


def topics_named(name: str) -> bytes:
    return varint(2) + INT16(0) + compact(name) + b"\0" + varint(1) + INT32(0) + b"\0"


@cache
def partitions(count: int) -> bytes:
    end = INT32(1) + INT32(1) + varint(1) * 3 + b"\0"
    each = many(count, lambda i: INT16(0) + INT32(i) + end)
    topic = INT16(0) + compact(TOPIC) + b"\0" + varint(count + 1) + each + INT32(0) + b"\0"
    return NO_BROKERS + varint(2) + topic + METADATA_END


@cache
def replicas(count: int) -> bytes:
    numbers = varint(count + 1) + bytes(4 * count)
    one = INT16(0) + INT32(0) + INT32(1) + INT32(1) + numbers * 3 + b"\0"
    topic = INT16(0) + compact(TOPIC) + b"\0" + varint(2) + one + INT32(0) + b"\0"
    return NO_BROKERS + varint(2) + topic + METADATA_END


def tags(count: int) -> bytes:
    return varint(count) + b"\x05\0" * count


def at(host: str | None = None, port: int | None = None, node_id: int = 1) -> Any:
    """Metadata with the broker at another address."""

    def respond(received: Received) -> MetadataResponse:
        response = metadata(received)
        node = response.brokers[0]
        node.host = node.host if host is None else host
        node.port = node.port if port is None else port
        node.node_id = node_id
        return response

    return respond


def with_partitions(*listed: Any) -> Any:
    def respond(received: Received) -> MetadataResponse:
        response = metadata(received)
        response.topics[0].partitions = list(listed)
        return response

    return respond


def topic_error(code: int) -> Any:
    def respond(received: Received) -> MetadataResponse:
        response = metadata(received)
        response.topics[0].error_code = code
        return response

    return respond


# SASL.


def challenge(data: bytes = b"", **fields: Any) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(auth_bytes=data, **fields)


def scram_first(
    iterations: object = 4_096, nonce: str = "server", salt: bytes = b"salt"
) -> Callable[[Received], Reply]:
    """Return the server's first message of SCRAM; to all that follow the same."""

    def respond(received: Received) -> Reply:
        first = cast("SaslAuthenticateRequest", received.request).auth_bytes.decode()
        client_nonce = first.rpartition("r=")[2].partition(",")[0]
        salt_text = base64.b64encode(salt).decode()
        return challenge(f"r={client_nonce}{nonce},s={salt_text},i={iterations}".encode())

    return respond


def sasl(response: Any, **others: Any) -> Callable[[], Behaviour]:
    offered = SaslHandshakeResponse(mechanisms=["PLAIN", "SCRAM-SHA-256"])
    return broker(sasl_handshake=offered, sasl_authenticate=response, **others)


# Records.

RECORD_COUNT_AT: Final = 57
LAST_OFFSET_DELTA_AT: Final = 23
ATTRIBUTES_AT: Final = 21
HEADER_BYTES: Final = 61


def fetched(records: bytes | Callable[[], bytes], **fields: Any) -> Prepared:
    """Return a Fetch response with these records."""

    def respond(_: Received, made: bytes) -> FetchResponse:
        data = PartitionData(
            partition_index=0,
            high_watermark=1_000,
            last_stable_offset=1_000,
            log_start_offset=0,
            records=made,
        )
        for name, value in fields.items():
            setattr(data, name, value)
        return FetchResponse(responses=[FetchableTopicResponse(topic=TOPIC, partitions=[data])])

    return Prepared(_made(records), respond)


def batch(count: int = 2) -> bytes:
    return build([(1, None, b"value", ())] * count)


def around(records: bytes, count: int = 2, codec: Codec = Codec.NONE) -> bytes:
    """Return a batch with any bytes for its records, and the right length and checksum."""
    data = bytearray(batch(1)[:HEADER_BYTES])
    data[ATTRIBUTES_AT : ATTRIBUTES_AT + 2] = INT16(codec)
    data[LAST_OFFSET_DELTA_AT : LAST_OFFSET_DELTA_AT + 4] = INT32(count - 1)
    data[RECORD_COUNT_AT:HEADER_BYTES] = INT32(count)
    return resealed(bytes(data) + records)


def record(content: bytes, size: int | None = None) -> bytes:
    return zigzag(len(content) if size is None else size) + content


@cache
def headers(count: int) -> bytes:
    """Return a record with this many headers, each of a name and a value, in zstd."""
    each = many(count, lambda i: b"\x0a%05x" % i + b"\x02v")
    content = b"\0\0\0\x01\x01" + zigzag(count) + each
    return bytes(cramjam.zstd.compress(record(content), 3))


@cache
def gzip_bomb(mebibytes: int = 512) -> bytes:
    """One stream that goes on with the same zeros; it ends beyond every limit, without an end."""
    compressor = zlib.compressobj(9, wbits=31)
    zeros = bytes(1 << 20)
    head = compressor.compress(zeros) + compressor.flush(zlib.Z_FULL_FLUSH)
    again = compressor.compress(zeros) + compressor.flush(zlib.Z_FULL_FLUSH)
    return head + again * mebibytes


@cache
def zstd_bomb(mebibytes: int = 512) -> bytes:
    return bytes(cramjam.zstd.compress(bytes(4 << 20), 3)) * (mebibytes // 4)


@cache
def lz4_bomb(mebibytes: int = 512) -> bytes:
    """Return a frame of blocks of 4 MiB, each a short literal and a match that goes on."""
    block = bytes(cramjam.lz4.compress_block(bytes(4 << 20), store_size=False))
    header = b"\x04\x22\x4d\x18\x60\x70\x73"
    return header + (len(block).to_bytes(4, "little") + block) * (mebibytes // 4) + bytes(4)


@cache
def snappy_bomb(mebibytes: int = 512) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(bytes(1 << 20)))
    head = b"\x82SNAPPY\0" + INT32(1) + INT32(1)
    return head + (INT32(len(block)) + block) * mebibytes


def bomb(codec: Codec, data: Callable[[], bytes]) -> Callable[[], Behaviour]:
    return broker(fetch=fetched(lambda: around(data(), 1_000, codec)))


def nested() -> bytes:
    """Batches in the records of a batch, eight deep, each compressed."""
    data = gzip_bomb(64)
    for _ in range(8):
        data = around(zlib.compress(data, wbits=31), 2, Codec.GZIP)
    return data


def message(value: bytes, attributes: int = 0, offset: int = 0) -> bytes:
    """Return a message of the old format, magic 1."""
    content = b"\x01" + bytes([attributes]) + INT64(1) + INT32(-1) + INT32(len(value)) + value
    checked = zlib.crc32(content).to_bytes(4) + content
    return INT64(offset) + INT32(len(checked)) + checked


def wrapped(depth: int) -> bytes:
    """Messages that wrap compressed messages, `depth` deep."""
    data = message(b"value")
    for _ in range(depth):
        data = message(zlib.compress(data, wbits=31), attributes=1)
    return data


@cache
def aborted(count: int) -> bytes:
    """Return a Fetch response of version 12 with this many aborted transactions."""
    each = many(count, lambda i: INT64(i) + INT64(0) + b"\0")
    found = INT32(0) + INT16(0) + INT64(9) * 2 + INT64(0) + varint(count + 1) + each
    found += INT32(-1) + varint(1) + b"\0"
    head = INT32(0) + INT16(0) + INT32(0) + varint(2) + compact(TOPIC) + varint(2)
    return head + found + b"\0" + b"\0"


# Groups.


@cache
def members(count: int) -> bytes:
    """Return a JoinGroup response of version 7 with this many members."""
    each = many(count, lambda i: b"\x08%07x" % i + b"\0" + varint(1) + b"\0")
    head = INT32(0) + INT16(0) + INT32(1) + compact("consumer") + compact("range")
    return head + compact("m") + compact("m") + varint(count + 1) + each + b"\0"


def cluster_named(size_bytes: int) -> bytes:
    """Encode a Metadata response of version 9 with only a cluster id of this many bytes."""
    name = varint(size_bytes + 1) + b"c" * size_bytes
    return INT32(0) + varint(1) + name + INT32(-1) + varint(1) + INT32(0) + b"\0"


def member_named(size_bytes: int) -> bytes:
    """Return a JoinGroup response of version 7 with a member id of this many bytes."""
    head = INT32(0) + INT16(0) + INT32(1) + compact("consumer") + compact("range")
    return head + compact("m") + varint(size_bytes + 1) + b"m" * size_bytes + varint(1) + b"\0"


def assigned(data: bytes) -> Callable[[Received], Any]:
    return changed(synced, assignment=data)


def assignment(topic: str, *numbers: int, count: int | None = None) -> bytes:
    """Encode an assignment of the consumer protocol that claims `count` partitions."""
    said = len(numbers) if count is None else count
    name = topic.encode()
    head = INT16(0) + INT32(1) + INT16(len(name)) + name + INT32(said)
    return head + b"".join(map(INT32, numbers)) + INT32(-1)


def apis(count: int) -> bytes:
    """Encode ApiVersions 3 with this many APIs, Metadata among them."""
    each = b"".join(
        struct.pack(">Hhh", key % 65_536, 0, 9) + b"\0" for key in range(1_000, count + 999)
    )
    known = INT16(ApiKey.METADATA) + INT16(0) + INT16(9) + b"\0"
    return INT16(0) + varint(count + 1) + known + each + INT32(0) + b"\0"


def unproven() -> Callable[[Received], Reply]:
    """SCRAM whose last message is empty."""
    first = scram_first()

    def respond(received: Received) -> Reply:
        token = cast("SaslAuthenticateRequest", received.request).auth_bytes
        return challenge() if b"p=" in token else first(received)

    return respond


def bad_records() -> ProduceResponse:
    bad = [BatchIndexAndErrorMessage(i, "bad") for i in range(90_000)]
    result = PartitionProduceResponse(error_code=87, record_errors=bad, error_message="m" * 30_000)
    return ProduceResponse(
        responses=[TopicProduceResponse(name=TOPIC, partition_responses=[result])]
    )


def kip848(
    topic_count: int = 1, partitions: list[int] | None = None, **fields: Any
) -> Callable[[], Behaviour]:
    """Return a group of the consumer protocol; the keywords change its heartbeats."""
    listed = [
        ResponseTopicPartitions(TOPIC_ID if i == 0 else i.to_bytes(16), partitions or [0])
        for i in range(topic_count)
    ]
    return broker(
        *KIP848_VERSIONS.items(),
        consumer_group_heartbeat=assigned_by_kip848(listed, **fields),
    )
