"""OldBroker: a real broker that says, as Kafka 2.1 would, that it speaks nothing newer.

It is a `LoopbackServer`'s behaviour that relays each request to a broker of today, which still
speaks all that 2.1 did. On the way back it cuts the ranges of ApiVersions down to those of 2.1 and
puts its own address into Metadata, so that the client stays with it. As 2.1 did, it refuses newer
versions of ApiVersions in version 0 without a list.

Owner: the server's threads; `asked` only grows, and is read when the client is done.
Source: Kafka 2.1's ``ApiKeys``; KIP-511 (what brokers before 2.4 answer); KIP-896 (what stays).
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.message import decode_request_header, decode_response, encode_response
from pykclient.protocol.messages.api_versions import ApiVersionsResponse
from pykclient.protocol.messages.metadata import MetadataResponse

if TYPE_CHECKING:
    from typing import BinaryIO

    from pykclient.protocol.message import RequestHeader

__all__ = ["VERSIONS_OF_2_1", "OldBroker"]

UNSUPPORTED_VERSION = 35
VERSIONS_OF_2_1: Final = {
    ApiKey.PRODUCE: 7,
    ApiKey.FETCH: 10,
    ApiKey.LIST_OFFSETS: 4,
    ApiKey.METADATA: 7,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.SASL_HANDSHAKE: 1,
    ApiKey.API_VERSIONS: 2,
    ApiKey.CREATE_TOPICS: 3,
    ApiKey.DELETE_TOPICS: 3,
    ApiKey.INIT_PRODUCER_ID: 1,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 2,
    ApiKey.SASL_AUTHENTICATE: 0,
}
"""The newest version that Kafka 2.1 spoke, of each API that the clients here use and it had."""


class OldBroker:
    """Relays to the broker at `address`. `asked` holds each (API key, version) that was used."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self.asked: set[tuple[int, int]] = set()

    def __call__(self, connection: socket.socket) -> None:
        """Serve one connection."""
        with socket.create_connection(self._address) as broker:
            requests, answers = connection.makefile("rb"), broker.makefile("rb")
            while frame := read_frame(requests):
                header = decode_request_header(frame[4:])
                if self._is_refused(header):
                    refusal = ApiVersionsResponse(error_code=UNSUPPORTED_VERSION)
                    connection.sendall(encode_response(refusal, 0, header.correlation_id))
                    continue
                self.asked.add((header.api_key, header.api_version))
                broker.sendall(frame)
                answer = aged(read_frame(answers), header, connection.getsockname())
                connection.sendall(answer)

    def _is_refused(self, header: RequestHeader) -> bool:
        newest = VERSIONS_OF_2_1[ApiKey(header.api_key)]
        return header.api_key == ApiKey.API_VERSIONS and header.api_version > newest


def read_frame(stream: BinaryIO) -> bytes:
    """The next frame with its size; empty at the end."""
    size = stream.read(4)
    return size + stream.read(int.from_bytes(size))


def aged(frame: bytes, header: RequestHeader, address: tuple[str, int]) -> bytes | bytearray:
    """An answer as the old broker at `address` would have given it."""
    version = header.api_version
    if header.api_key == ApiKey.API_VERSIONS:
        versions = decode_response(ApiVersionsResponse, version, frame[4:])
        known = [api for api in versions.api_keys if api.api_key in VERSIONS_OF_2_1]
        for api in known:
            api.max_version = VERSIONS_OF_2_1[ApiKey(api.api_key)]
        versions.api_keys = known
        return encode_response(versions, version, header.correlation_id)
    if header.api_key == ApiKey.METADATA:
        metadata = decode_response(MetadataResponse, version, frame[4:])
        for broker in metadata.brokers:
            broker.host, broker.port = address
        return encode_response(metadata, version, header.correlation_id)
    return frame
