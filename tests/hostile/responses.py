"""What hostile brokers send: the table, and the bytes.

Owner: none; peers are made anew for each client.
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

from pykclient.network.broker.connection import HANDSHAKE_BYTES_MAX
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from pykclient.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)
from pykclient.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from pykclient.protocol.messages.find_coordinator import FindCoordinatorResponse
from pykclient.protocol.messages.heartbeat import HeartbeatResponse
from pykclient.protocol.messages.init_producer_id import InitProducerIdResponse
from pykclient.protocol.messages.offset_fetch import OffsetFetchResponse
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
    HangUp,
    Received,
    Reply,
    ScriptedBroker,
    coordinator,
    joined,
    listed_offset,
    metadata,
    partition,
    stored_offset,
    synced,
    written,
)
from tests.records.batches import build, header_changed, resealed

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
        """How long the call may take; where it ends by itself, a busy machine is to have time."""
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
    """A broker; a keyword is an API's name, its value a response, or what makes one."""
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
    """A response of these bytes behind the header that is due."""
    return Prepared(_made(data), lambda received, made: received.frame(made))


def _made(data: bytes | Callable[[], bytes]) -> Callable[[], bytes]:
    return partial(bytes, data) if isinstance(data, bytes) else data


def hang_up(_: Received) -> Reply:
    raise HangUp


def changed(make: Callable[[Received], Any], **fields: Any) -> Callable[[Received], Any]:
    """A good response with some fields changed."""

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
    """The server's first message of SCRAM; to all that follow the same."""

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
    """A Fetch response with these records."""

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
    """A batch with any bytes for its records, and the right length and checksum."""
    data = bytearray(batch(1)[:HEADER_BYTES])
    data[ATTRIBUTES_AT : ATTRIBUTES_AT + 2] = INT16(codec)
    data[LAST_OFFSET_DELTA_AT : LAST_OFFSET_DELTA_AT + 4] = INT32(count - 1)
    data[RECORD_COUNT_AT:HEADER_BYTES] = INT32(count)
    return resealed(bytes(data) + records)


def record(content: bytes, size: int | None = None) -> bytes:
    return zigzag(len(content) if size is None else size) + content


@cache
def headers(count: int) -> bytes:
    """A record with so many headers, each of a name and a value, in zstd."""
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
    """A frame of blocks of 4 MiB, each a short literal and a match that goes on."""
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
    """A message of the old format, magic 1."""
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
    """A Fetch response of version 12 with so many aborted transactions."""
    each = many(count, lambda i: INT64(i) + INT64(0) + b"\0")
    found = INT32(0) + INT16(0) + INT64(9) * 2 + INT64(0) + varint(count + 1) + each
    found += INT32(-1) + varint(1) + b"\0"
    head = INT32(0) + INT16(0) + INT32(0) + varint(2) + compact(TOPIC) + varint(2)
    return head + found + b"\0" + b"\0"


# Groups.


@cache
def members(count: int) -> bytes:
    """A JoinGroup response of version 7 with so many members."""
    each = many(count, lambda i: b"\x08%07x" % i + b"\0" + varint(1) + b"\0")
    head = INT32(0) + INT16(0) + INT32(1) + compact("consumer") + compact("range")
    return head + compact("m") + compact("m") + varint(count + 1) + each + b"\0"


def assigned(data: bytes) -> Callable[[Received], Any]:
    return changed(synced, assignment=data)


def assignment(topic: str, *numbers: int, count: int | None = None) -> bytes:
    """The consumer protocol's assignment; `count` is what it says of its partitions."""
    said = len(numbers) if count is None else count
    name = topic.encode()
    head = INT16(0) + INT32(1) + INT16(len(name)) + name + INT32(said)
    return head + b"".join(map(INT32, numbers)) + INT32(-1)


def apis(count: int) -> bytes:
    """So many APIs, Metadata among them, in ApiVersions 3."""
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


TOPIC_ID: Final = b"i" * 16


def kip848(
    topic_count: int = 1, partitions: list[int] | None = None, **fields: Any
) -> Callable[[], Behaviour]:
    """A group of the consumer protocol; the keywords change its heartbeats."""
    listed = [
        ResponseTopicPartitions(TOPIC_ID if i == 0 else i.to_bytes(16), partitions or [0])
        for i in range(topic_count)
    ]
    heartbeat = ConsumerGroupHeartbeatResponse(
        **{
            "member_id": "m",
            "member_epoch": 1,
            "heartbeat_interval_ms": 5_000,
            "assignment": Assignment(topic_partitions=listed),
            **fields,
        }
    )

    def with_id(received: Received) -> MetadataResponse:
        response = metadata(received)
        response.topics[0].topic_id = TOPIC_ID
        return response

    return broker(
        (ApiKey.METADATA, 12),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0),
        metadata=with_id,
        consumer_group_heartbeat=heartbeat,
    )


HOSTILE: Final[tuple[Hostile, ...]] = (
    # Before a broker is known for one.
    Hostile(
        "2 GB announced before anything",
        "list_topics",
        sends(b"\x7f\xff\xff\xff"),
        "KafkaTimeoutError",
        "a frame of 2147483647 bytes was announced",
    ),
    Hostile(
        "a byte over the limit",
        "list_topics",
        sends(INT32(HANDSHAKE_BYTES_MAX + 1)),
        "KafkaTimeoutError",
        "and 524288 are the most that is taken",
    ),
    Hostile(
        "size -1",
        "list_topics",
        sends(b"\xff" * 4),
        "KafkaTimeoutError",
        "a frame of -1 bytes was announced",
    ),
    Hostile(
        "size -2^31",
        "list_topics",
        sends(b"\x80\0\0\0"),
        "KafkaTimeoutError",
        "a frame of -2147483648 bytes was announced",
    ),
    Hostile(
        "frames of nothing",
        "list_topics",
        floods(bytes(65_536)),
        "KafkaTimeoutError",
        "4 bytes expected at byte 0, but only 0 remain",
    ),
    Hostile(
        "zeros as large as may be",
        "list_topics",
        sends(INT32(HANDSHAKE_BYTES_MAX) + bytes(HANDSHAKE_BYTES_MAX)),
        "KafkaTimeoutError",
        "where null is not allowed",
    ),
    Hostile(
        "a byte a second",
        "list_topics",
        dripped(INT32(100) + bytes(100)),
        "KafkaTimeoutError",
        "did not respond to the Kafka handshake within",
    ),
    Hostile(
        "hangs up at once",
        "list_topics",
        hangs_up_at_once,
        "KafkaTimeoutError",
        "hung up during the Kafka handshake",
    ),
    Hostile(
        "100,000 APIs",
        "list_topics",
        broker(api_versions=body(lambda: apis(100_000))),
        "KafkaTimeoutError",
        "and 524288 are the most that is taken",
    ),
    Hostile(
        "60,000 APIs",
        "list_topics",
        broker(api_versions=body(lambda: apis(60_000))),
        None,
        "1",
    ),
    Hostile(
        "2^32-2 APIs",
        "list_topics",
        broker(api_versions=body(INT16(0) + b"\xff\xff\xff\xff\x0f")),
        "KafkaTimeoutError",
        "4294967294 elements of at least 7 bytes announced",
    ),
    Hostile(
        "a varint without end",
        "list_topics",
        broker(api_versions=body(INT16(0) + ENDLESS_VARINT)),
        "KafkaTimeoutError",
        "varint of more than 5 bytes",
    ),
    Hostile(
        "200,000 tags",
        "list_topics",
        broker(api_versions=body(lambda: INT16(0) + varint(1) + INT32(0) + tags(200_000))),
        "KafkaTimeoutError",
        "more than 100000 array elements",
    ),
    Hostile(
        "APIs of negative versions",
        "list_topics",
        broker(
            api_versions=ApiVersionsResponse(
                api_keys=[ApiVersion(ApiKey.METADATA, 9, 9), ApiVersion(ApiKey.METADATA, 5, -3)]
            )
        ),
        "UnsupportedVersionError",
        "speaks Metadata up to version -3",
    ),
    Hostile(
        "only versions that do not exist",
        "list_topics",
        broker(
            api_versions=ApiVersionsResponse(api_keys=[ApiVersion(ApiKey.METADATA, 30_000, 32_767)])
        ),
        "UnsupportedVersionError",
        "it speaks versions 30000 to 32767",
    ),
    Hostile(
        "ApiVersions is refused for ever",
        "list_topics",
        broker(api_versions=body(INT16(35) + INT32(0))),
        "UnsupportedVersionError",
        "refuses every version of ApiVersions",
    ),
    Hostile(
        "an error code that does not exist",
        "list_topics",
        broker(api_versions=ApiVersionsResponse(error_code=-9_999)),
        "KafkaTimeoutError",
        "error code -9999, which this client does not know",
    ),
    Hostile(
        "hangs up on ApiVersions",
        "list_topics",
        broker(api_versions=hang_up),
        "KafkaTimeoutError",
        "hung up during the Kafka handshake",
    ),
    # SASL.
    Hostile(
        "endless mechanisms",
        "list_topics",
        broker(
            sasl_handshake=body(lambda: INT16(33) + INT32(100_000) + (INT16(1) + b"m") * 100_000)
        ),
        "AuthenticationError",
        "and 99984 more: set sasl_mechanism to one",
        PLAIN,
    ),
    Hostile(
        "2^31-1 mechanisms",
        "list_topics",
        broker(sasl_handshake=body(INT16(0) + INT32(INT32_MAX))),
        "KafkaTimeoutError",
        "2147483647 elements of at least 2 bytes announced",
        PLAIN,
    ),
    Hostile(
        "hangs up on SaslHandshake",
        "list_topics",
        broker(sasl_handshake=hang_up),
        "KafkaTimeoutError",
        "hung up while the client authenticated",
        PLAIN,
    ),
    Hostile(
        "hangs up on SaslAuthenticate",
        "list_topics",
        sasl(hang_up),
        "KafkaTimeoutError",
        "hung up while the client authenticated",
        PLAIN,
    ),
    Hostile(
        "a reason of half a megabyte",
        "list_topics",
        sasl(
            body(lambda: INT16(58) + varint(500_001) + b"x" * 500_000 + b"\x01" + INT64(0) + b"\0")
        ),
        "AuthenticationError",
        "the broker refused the user 'alice': xxx",
        PLAIN,
    ),
    Hostile("PLAIN with a challenge", "list_topics", sasl(challenge(b"more")), None, "1", PLAIN),
    Hostile(
        "a session of a millisecond",
        "list_topics",
        sasl(challenge(session_lifetime_ms=1)),
        None,
        "1",
        PLAIN,
    ),
    Hostile(
        "a session of -2^63 ms",
        "list_topics",
        sasl(challenge(session_lifetime_ms=-(2**63))),
        None,
        "1",
        PLAIN,
    ),
    Hostile(
        "2^31-1 iterations of SCRAM",
        "list_topics",
        sasl(scram_first(INT32_MAX)),
        "AuthenticationError",
        "it requires '2147483647' iterations of SCRAM",
        SCRAM,
    ),
    Hostile(
        "iterations of 100,000 digits",
        "list_topics",
        sasl(scram_first("9" * 100_000)),
        "AuthenticationError",
        "its SCRAM message has 100",
        SCRAM,
    ),
    Hostile(
        "a nonce of 1 MB",
        "list_topics",
        sasl(scram_first(nonce="n" * MILLION)),
        "KafkaTimeoutError",
        "and 524288 are the most that is taken",
        SCRAM,
    ),
    Hostile(
        "a nonce of 20 KB",
        "list_topics",
        sasl(scram_first(nonce="n" * 20_000)),
        "AuthenticationError",
        "and 16384 are the most that is taken",
        SCRAM,
    ),
    Hostile(
        "a salt of 300 KB",
        "list_topics",
        sasl(scram_first(salt=bytes(300_000))),
        "AuthenticationError",
        "and 16384 are the most that is taken",
        SCRAM,
    ),
    Hostile(
        "a nonce that is not the client's",
        "list_topics",
        sasl(challenge(b"r=other,s=c2FsdA==,i=4096")),
        "AuthenticationError",
        "its nonce does not begin with the client's",
        SCRAM,
    ),
    Hostile(
        "no proof of the password",
        "list_topics",
        sasl(unproven()),
        "AuthenticationError",
        "without proving that it has it itself",
        SCRAM,
    ),
    # TLS.
    Hostile(
        "noise in the place of TLS",
        "list_topics",
        floods(b"noise"),
        "TlsError",
        "does not speak TLS",
        TLS,
    ),
    Hostile(
        "a TLS handshake without end",
        "list_topics",
        floods(b"\x16\x03\x03\x40\x00" + b"\x02\xff\xff\xff" + bytes(16_380)),
        "TlsError",
        "excessive message size",
        TLS,
    ),
    Hostile(
        "a storm of alerts before TLS",
        "list_topics",
        floods(ALERT),
        "TlsError",
        "too many warn alerts",
        TLS,
    ),
    Hostile(
        "noise after the TLS handshake",
        "list_topics",
        secured(below_tls(b"noise" * 1_000)),
        "KafkaTimeoutError",
        "the TLS connection broke",
        TLS,
    ),
    Hostile(
        "a storm of alerts after the TLS handshake",
        "list_topics",
        secured(below_tls(ALERT * 1_000), ssl.TLSVersion.TLSv1_2),
        "KafkaTimeoutError",
        "the TLS connection broke",
        TLS,
    ),
    Hostile(
        "empty TLS records without end",
        "list_topics",
        secured(below_tls(b"\x17\x03\x03\0\0" * 1_000), ssl.TLSVersion.TLSv1_2),
        "KafkaTimeoutError",
        "the TLS connection broke",
        TLS,
    ),
    Hostile(
        "a TLS handshake a byte a second",
        "list_topics",
        dripped(b"\x16\x03\x03\x40\x00" + bytes(99)),
        "KafkaTimeoutError",
        "has not accepted the connection yet",
        TLS,
    ),
    Hostile(
        "hangs up in the TLS handshake",
        "list_topics",
        hangs_up_at_once,
        "KafkaTimeoutError",
        "hung up during the TLS handshake",
        TLS,
    ),
    Hostile(
        "hangs up after the TLS handshake",
        "list_topics",
        secured(lambda _: None),
        "KafkaTimeoutError",
        "hung up during the Kafka handshake",
        TLS,
    ),
    # Frames and what is in them.
    Hostile(
        "2 GB announced",
        "list_topics",
        broker(metadata=b"\x7f\xff\xff\xff"),
        "KafkaTimeoutError",
        "a frame of 2147483647 bytes was announced",
    ),
    Hostile(
        "100 MB announced, none sent",
        "list_topics",
        broker(metadata=INT32(100_000_000)),
        "KafkaTimeoutError",
        "did not respond to METADATA within",
    ),
    Hostile(
        "size -1 of a response",
        "list_topics",
        broker(metadata=b"\xff" * 4),
        "KafkaTimeoutError",
        "a frame of -1 bytes was announced",
    ),
    Hostile(
        "a wrong correlation id",
        "list_topics",
        broker(metadata=lambda received: received.frame(nodes(1), 77)),
        "KafkaTimeoutError",
        "the response to correlation id 77 came while 1 is due",
    ),
    Hostile(
        "a response of nothing",
        "list_topics",
        broker(metadata=bytes(4)),
        "KafkaTimeoutError",
        "4 bytes expected at byte 0, but only 0 remain",
    ),
    Hostile(
        "a response a byte a second",
        "list_topics",
        broker(metadata=lambda _: partial(drips, INT32(100) + bytes(100))),
        "KafkaTimeoutError",
        "did not respond to METADATA within",
    ),
    Hostile(
        "a million tags",
        "list_topics",
        broker(metadata=body(lambda: nodes(1)[:-1] + tags(MILLION))),
        "KafkaTimeoutError",
        "more than 100000 array elements",
    ),
    Hostile(
        "2^32-1 tags",
        "list_topics",
        broker(metadata=body(nodes(1)[:-1] + b"\xff\xff\xff\xff\x0f")),
        "KafkaTimeoutError",
        "4294967295 elements of at least 2 bytes announced",
    ),
    Hostile(
        "a tag as long as may be",
        "list_topics",
        broker(metadata=body(nodes(1)[:-1] + b"\x01\x05\xff\xff\xff\xff\x0f")),
        "KafkaTimeoutError",
        "4294967295 bytes expected",
    ),
    Hostile(
        "2^31-1 brokers",
        "list_topics",
        broker(METADATA_8, metadata=body(INT32(0) + INT32(INT32_MAX))),
        "KafkaTimeoutError",
        "2147483647 elements of at least 10 bytes announced",
    ),
    Hostile(
        "-2 brokers",
        "list_topics",
        broker(METADATA_8, metadata=body(INT32(0) + INT32(-2))),
        "KafkaTimeoutError",
        "length -2 at byte 12",
    ),
    Hostile(
        "a million brokers",
        "list_topics",
        broker(metadata=body(lambda: nodes(MILLION))),
        "KafkaTimeoutError",
        "more than 100000 array elements",
        given_ms=1_500,
    ),
    Hostile(
        "brokers up to the limit",
        "list_topics",
        broker(metadata=body(lambda: nodes(ELEMENTS_MAX))),
        None,
        "0",
    ),
    Hostile(
        "a million topics",
        "list_topics",
        broker(metadata=body(lambda: topics(MILLION))),
        "KafkaTimeoutError",
        "more than 100000 array elements",
        given_ms=1_500,
    ),
    Hostile(
        "topics up to the limit",
        "list_topics",
        broker(metadata=body(lambda: topics(ELEMENTS_MAX))),
        None,
        str(ELEMENTS_MAX),
    ),
    Hostile(
        "a million partitions",
        "send",
        broker(metadata=body(lambda: partitions(MILLION))),
        "KafkaTimeoutError",
        "more than 100000 array elements",
        given_ms=1_500,
    ),
    Hostile(
        "partitions up to the limit",
        "list_topics",
        broker(metadata=body(lambda: partitions(ELEMENTS_MAX - 1))),
        None,
        "1",
    ),
    Hostile(
        "4 million replicas",
        "list_topics",
        broker(metadata=body(lambda: replicas(4 * MILLION // 3))),
        "KafkaTimeoutError",
        "more than 100000 array elements",
        given_ms=1_500,
    ),
    Hostile(
        "a host of 64 KB",
        "send",
        broker(
            metadata=body(
                INT32(0)
                + varint(2)
                + INT32(1)
                + compact("h" * 65_536)
                + INT32(9092)
                + b"\0\0"
                + b"\0"
                + INT32(0)
                + topics_named(TOPIC)
                + METADATA_END
            )
        ),
        "KafkaTimeoutError",
        "is at host 'hhh",
    ),
    Hostile(
        "a host that goes beyond the frame",
        "list_topics",
        broker(
            metadata=body(INT32(0) + varint(2) + INT32(1) + b"\xff\xff\xff\xff\x0f" + bytes(40))
        ),
        "KafkaTimeoutError",
        "4294967294 bytes expected",
    ),
    Hostile(
        "a string of length -2",
        "list_topics",
        broker(METADATA_8, metadata=body(INT32(0) + INT32(1) + INT32(1) + INT16(-2) + bytes(40))),
        "KafkaTimeoutError",
        "length -2 at byte 18",
    ),
    Hostile(
        "a host that is no UTF-8",
        "list_topics",
        broker(
            metadata=body(
                INT32(0)
                + varint(2)
                + INT32(1)
                + b"\x03\xff\xfe"
                + INT32(9092)
                + b"\0\0"
                + METADATA_END
            )
        ),
        "KafkaTimeoutError",
        "is not UTF-8",
    ),
    Hostile(
        "a host with a line of a log",
        "send",
        broker(metadata=at(host="h\nERROR forged")),
        "KafkaTimeoutError",
        "is at host 'h\\nERROR forged'",
    ),
    Hostile(
        "port 65536", "send", broker(metadata=at(port=65_536)), "KafkaTimeoutError", "port 65536"
    ),
    Hostile("port -1", "send", broker(metadata=at(port=-1)), "KafkaTimeoutError", "port -1"),
    Hostile(
        "broker -7",
        "send",
        broker(metadata=at(node_id=-7)),
        "KafkaTimeoutError",
        "says that broker -7 is at host",
    ),
    Hostile(
        "a leader that does not exist",
        "send",
        broker(metadata=with_partitions(partition(leader_id=77))),
        "DeliveryTimeoutError",
        "the partition has no leader that we know of",
    ),
    Hostile(
        "partition 2^31-1 alone",
        "send",
        broker(metadata=with_partitions(partition(INT32_MAX))),
        "KafkaTimeoutError",
        "lists partition 2147483647 of topic 't' where 0 must stand",
    ),
    Hostile(
        "another topic",
        "send",
        broker(metadata=body(topics(1))),
        "KafkaTimeoutError",
        "a Metadata response lacks topic 't'",
    ),
    Hostile(
        "a topic with an unknown error",
        "send",
        broker(metadata=topic_error(-7_777)),
        "BrokerError",
        "error code -7777, which this client does not know",
    ),
    Hostile(
        "hangs up on Metadata",
        "list_topics",
        broker(metadata=hang_up),
        "KafkaTimeoutError",
        "hung up on the first request",
    ),
    Hostile(
        "throttled for 2^31-1 ms",
        "send",
        broker(init_producer_id=InitProducerIdResponse(producer_id=1, throttle_time_ms=INT32_MAX)),
        None,
        "0",
    ),
    Hostile(
        "throttled for -2^31 ms",
        "send",
        broker(init_producer_id=InitProducerIdResponse(producer_id=1, throttle_time_ms=-(2**31))),
        None,
        "0",
    ),
    # Producers.
    Hostile(
        "producer id -5",
        "send",
        broker(init_producer_id=InitProducerIdResponse(producer_id=-5)),
        "DeliveryTimeoutError",
        "1 records were not delivered within",
    ),
    Hostile(
        "an unknown error of a batch",
        "send",
        broker(produce=written(error_code=12_345)),
        "BrokerError",
        "error code 12345, which this client does not know",
    ),
    Hostile("offset -7 of a batch", "send", broker(produce=written(-7)), None, "None"),
    Hostile(
        "nothing about the batch",
        "send",
        broker(produce=ProduceResponse()),
        "DeliveryTimeoutError",
        "the response to Produce lacks t-0",
    ),
    Hostile(
        "90,000 bad records in a batch of one",
        "send",
        broker(produce=bad_records()),
        "InvalidRecordError",
        "t-0: the record was refused: bad",
    ),
    Hostile(
        "hangs up on InitProducerId",
        "send",
        broker(init_producer_id=hang_up),
        "DeliveryTimeoutError",
        "1 records were not delivered within",
    ),
    Hostile(
        "hangs up on Produce",
        "send",
        broker(produce=hang_up),
        "DeliveryTimeoutError",
        "hung up on the first request",
    ),
    # Offsets and groups.
    Hostile(
        "offset -7 of a partition's end",
        "end_offsets",
        broker(list_offsets=listed_offset(-7)),
        "DecodeError",
        "gives t-0 the offset -7",
    ),
    Hostile(
        "hangs up on ListOffsets",
        "end_offsets",
        broker(list_offsets=hang_up),
        "KafkaTimeoutError",
        "hung up on the first request",
    ),
    Hostile(
        "a committed offset of -7",
        "committed",
        broker(offset_fetch=stored_offset(-7)),
        "KafkaTimeoutError",
        "gives t-0 the offset -7",
    ),
    Hostile(
        "a committed offset of -2^63",
        "committed",
        broker(offset_fetch=stored_offset(-(2**63))),
        "KafkaTimeoutError",
        "gives t-0 the offset -9223372036854775808",
    ),
    Hostile(
        "a committed offset of 2^63-1",
        "join",
        broker(offset_fetch=stored_offset(INT64_MAX)),
        None,
        "0",
    ),
    Hostile(
        "hangs up on OffsetFetch",
        "committed",
        broker(offset_fetch=hang_up),
        "KafkaTimeoutError",
        "hung up on the first request",
    ),
    Hostile(
        "a coordinator at no host",
        "committed",
        broker(find_coordinator=changed(coordinator, host=" \n")),
        "KafkaError",
        "is at host ' \\n'",
    ),
    Hostile(
        "a coordinator at an odd name of its own",
        "committed",
        broker(find_coordinator=changed(coordinator, host="127.0.0.1.")),
        "KafkaTimeoutError",
        "the host name '127.0.0.1.' cannot be resolved",
    ),
    Hostile(
        "a coordinator that is never there",
        "committed",
        broker(find_coordinator=FindCoordinatorResponse(error_code=15)),
        "KafkaTimeoutError",
        "COORDINATOR_NOT_AVAILABLE",
    ),
    Hostile(
        "a coordinator for ever elsewhere",
        "committed",
        broker(offset_fetch=lambda _: OffsetFetchResponse(error_code=16)),
        "KafkaTimeoutError",
        "NOT_COORDINATOR",
    ),
    Hostile(
        "hangs up on FindCoordinator",
        "committed",
        broker(find_coordinator=hang_up),
        "KafkaTimeoutError",
        "for the committed offsets of t-0",
    ),
    Hostile(
        "a million members", "join", broker(join_group=body(lambda: members(MILLION))), None, "0"
    ),
    Hostile(
        "members up to the limit",
        "join",
        broker(join_group=body(lambda: members(ELEMENTS_MAX))),
        "DecodeError",
        "the subscription of member '0000000' cannot be read",
    ),
    Hostile(
        "a leader of a group without itself",
        "join",
        broker(join_group=changed(joined, members=[])),
        None,
        "0",
    ),
    Hostile(
        "a protocol that nothing offered",
        "join",
        broker(join_group=changed(joined, protocol_name="none")),
        "InconsistentGroupProtocolError",
        "chose the assignor 'none'",
    ),
    Hostile(
        "generation -5", "join", broker(join_group=changed(joined, generation_id=-5)), None, "0"
    ),
    Hostile("hangs up on JoinGroup", "join", broker(join_group=hang_up), None, "0"),
    Hostile(
        "an assignment of noise",
        "join",
        broker(sync_group=assigned(b"\xff" * 50)),
        "DecodeError",
        "the assignment by the leader of group 'g' cannot be read",
    ),
    Hostile(
        "an assignment of 2^31-1 partitions",
        "join",
        broker(sync_group=assigned(assignment(TOPIC, count=INT32_MAX))),
        "DecodeError",
        "2147483647 elements of at least 4 bytes announced",
    ),
    Hostile(
        "an assignment of partition -5",
        "join",
        broker(sync_group=assigned(assignment(TOPIC, -5))),
        "DecodeError",
        "an assignment has a negative partition",
    ),
    Hostile(
        "an assignment of a partition twice",
        "join",
        broker(sync_group=assigned(assignment(TOPIC, 0, 0))),
        None,
        "0",
    ),
    Hostile(
        "an assignment of another topic",
        "join",
        broker(sync_group=assigned(assignment("other", 0))),
        "UsageError",
        "does not subscribe to: other-0",
    ),
    Hostile(
        "an assignment of a million partitions",
        "join",
        broker(sync_group=assigned(assignment(TOPIC, *range(MILLION)))),
        "DecodeError",
        "more than 100000 array elements",
    ),
    Hostile("hangs up on SyncGroup", "join", broker(sync_group=hang_up), None, "0"),
    Hostile(
        "a heartbeat with an unknown error",
        "join",
        broker(heartbeat=HeartbeatResponse(error_code=-300)),
        None,
        "0",
    ),
    Hostile(
        "KIP-848: heartbeats each -5 ms", "join_kip848", kip848(heartbeat_interval_ms=-5), None, "0"
    ),
    Hostile("KIP-848: epoch -77", "join_kip848", kip848(member_epoch=-77), None, "0"),
    Hostile(
        "KIP-848: topics that do not exist", "join_kip848", kip848(topic_count=10_000), None, "0"
    ),
    Hostile("KIP-848: partition -5", "join_kip848", kip848(partitions=[-5]), None, "0"),
    # Records.
    *(
        row
        for call in ("poll", "poll_arrow")
        for row in (
            Hostile(
                f"{call}: a bomb in gzip",
                call,
                bomb(Codec.GZIP, gzip_bomb),
                "CorruptRecordError",
                "its gzip records decompress to more than the limit",
            ),
            Hostile(
                f"{call}: a bomb in snappy",
                call,
                bomb(Codec.SNAPPY, snappy_bomb),
                "CorruptRecordError",
                "its snappy records decompress to more than the limit",
            ),
            Hostile(
                f"{call}: a bomb in lz4",
                call,
                bomb(Codec.LZ4, lz4_bomb),
                "CorruptRecordError",
                "its lz4 records decompress to more than the limit",
            ),
            Hostile(
                f"{call}: a bomb in zstd",
                call,
                bomb(Codec.ZSTD, zstd_bomb),
                "CorruptRecordError",
                "its zstd records decompress to more than the limit",
            ),
            Hostile(
                f"{call}: a snappy block of 4 GB",
                call,
                bomb(Codec.SNAPPY, lambda: b"\xff\xff\xff\xff\x0f" + bytes(9)),
                "CorruptRecordError",
                "its snappy records decompress to more than the limit",
            ),
            Hostile(
                f"{call}: batches in batches",
                call,
                broker(fetch=fetched(nested)),
                "CorruptRecordError",
                "does not have the size that it claims",
            ),
            Hostile(
                f"{call}: messages that wrap messages",
                call,
                broker(fetch=fetched(lambda: wrapped(5))),
                "CorruptRecordError",
                "has another magic, or is compressed again",
            ),
            Hostile(
                f"{call}: 2^31-1 records in a batch of two",
                call,
                broker(
                    fetch=fetched(lambda: header_changed(batch(), RECORD_COUNT_AT, INT32_MAX, 4))
                ),
                "CorruptRecordError",
                "it has 2147483647 records up to offset delta 1",
            ),
            Hostile(
                f"{call}: -1 records in a batch of two",
                call,
                broker(fetch=fetched(lambda: header_changed(batch(), RECORD_COUNT_AT, -1, 4))),
                "CorruptRecordError",
                "it has -1 records up to offset delta 1",
            ),
            Hostile(
                f"{call}: a record that goes beyond its batch",
                call,
                broker(fetch=fetched(lambda: around(record(b"\0\0\0\x01\x01\0", 9_999), 1))),
                "CorruptRecordError",
                "does not have the size that it claims, 9999 bytes",
            ),
            Hostile(
                f"{call}: a record of length -1",
                call,
                broker(fetch=fetched(lambda: around(record(b"\0\0\0\x01\x01\0", -1), 1))),
                "CorruptRecordError",
                "does not have the size that it claims, -1 bytes",
            ),
            Hostile(
                f"{call}: 2^31-1 headers",
                call,
                broker(
                    fetch=fetched(lambda: around(record(b"\0\0\0\x01\x01" + zigzag(INT32_MAX)), 1))
                ),
                "CorruptRecordError",
                "a record claims 2147483647 headers",
            ),
            Hostile(
                f"{call}: a varint without end in a record",
                call,
                broker(fetch=fetched(lambda: around(ENDLESS_VARINT, 1))),
                "CorruptRecordError",
                "a number is longer than 64 bits",
            ),
            Hostile(
                f"{call}: a batch that ends 2^31-1 offsets later",
                call,
                broker(
                    fetch=fetched(
                        lambda: header_changed(batch(), LAST_OFFSET_DELTA_AT, INT32_MAX, 4)
                    )
                ),
                None,
                "2",
            ),
            Hostile(
                f"{call}: a batch that ends before it begins",
                call,
                broker(fetch=fetched(lambda: header_changed(batch(), LAST_OFFSET_DELTA_AT, -5, 4))),
                "CorruptRecordError",
                "it has 2 records up to offset delta -5",
            ),
            Hostile(
                f"{call}: a batch at offset -5",
                call,
                broker(fetch=fetched(lambda: INT64(-5) + batch()[8:])),
                "CorruptRecordError",
                "its base offset is -5",
            ),
            Hostile(
                f"{call}: a batch of length -1",
                call,
                broker(fetch=fetched(lambda: batch()[:8] + INT32(-1) + batch()[12:])),
                "CorruptRecordError",
                "it claims to have 11 bytes",
            ),
            Hostile(
                f"{call}: a batch of length 2^31-1",
                call,
                broker(fetch=fetched(lambda: batch()[:8] + INT32(INT32_MAX) + batch()[12:])),
                "CorruptRecordError",
                "the broker sent 85 bytes of a batch of 2147483659",
            ),
            Hostile(
                f"{call}: a million headers",
                call,
                broker(fetch=fetched(lambda: around(headers(MILLION), 1, Codec.ZSTD))),
                None,
                "1",
            ),
            Hostile(
                f"{call}: a codec that does not exist",
                call,
                broker(fetch=fetched(lambda: header_changed(batch(), ATTRIBUTES_AT, 7, 2))),
                "CorruptRecordError",
                "its codec 7 is unknown",
            ),
            Hostile(
                f"{call}: a magic that does not exist",
                call,
                broker(fetch=fetched(lambda: batch()[:16] + b"\x77" + batch()[17:])),
                "CorruptRecordError",
                "its magic is 119, not 2",
            ),
            Hostile(
                f"{call}: batches without records for ever",
                call,
                broker(fetch=fetched(lambda: around(b"", 0))),
                "CorruptRecordError",
                "it has 0 records up to offset delta -1",
            ),
        )
    ),
    Hostile(
        "a wrong checksum",
        "poll",
        broker(fetch=fetched(lambda: batch()[:-1] + b"X")),
        "CorruptRecordError",
        "its checksum is",
    ),
    Hostile(
        "aborted transactions up to the limit",
        "poll",
        broker(fetch=body(lambda: aborted(ELEMENTS_MAX - 2))),
        None,
        "0",
    ),
    Hostile(
        "a million aborted transactions",
        "poll",
        broker(fetch=body(lambda: aborted(MILLION))),
        "DecodeError",
        "more than 100000 array elements",
    ),
    Hostile(
        "an unknown error of a fetch",
        "poll",
        broker(fetch=fetched(b"", error_code=4_321)),
        "BrokerError",
        "error code 4321, which this client does not know",
    ),
    Hostile(
        "a high watermark of -2^63",
        "poll",
        broker(fetch=fetched(b"", high_watermark=-(2**63))),
        None,
        "0",
    ),
    Hostile(
        "a replica to read from that does not exist",
        "poll",
        broker(fetch=fetched(b"", preferred_read_replica=77)),
        None,
        "0",
    ),
    Hostile("empty responses at full speed", "poll", broker(fetch=fetched(b"")), None, "0"),
    Hostile("hangs up on Fetch", "poll", broker(fetch=hang_up), None, "0"),
)
