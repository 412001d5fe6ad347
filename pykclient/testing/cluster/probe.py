"""A request to a broker over a separate plaintext connection.

A test cluster uses it to find out whether it is ready, and where a leader is. It shares only the
messages with the clients under test, so that a fault in their network code cannot hide here.

Owner: the calling thread, for the length of a call.
Source: the Kafka protocol guide, APIs ApiVersions (always sent in version 0, which every broker
supports), Metadata, and DescribeQuorum, which a broker sends on to the controller.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, TypeVar

from pykclient.errors.base import (
    ConnectionFailedError,
    DisconnectedError,
    FrameTooLargeError,
    UnsupportedVersionError,
)
from pykclient.protocol.message import Message, decode_response, encode_request
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from pykclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from pykclient.testing.clock import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.protocol.message import Request
    from pykclient.testing.port import Address

FRAME_SIZE_BYTES_MAX = 16 * 1024 * 1024
RESPONSE_TIMEOUT_S_MAX = 5.0
RESPONSE_TIMEOUT_S_MIN = 0.5
CLIENT_ID = "pykclient-testing"
METADATA_VERSION_MIN = 4
"""First version whose request can disable the creation of unknown topics."""

_METADATA_TOPIC = "__cluster_metadata"
_SIZE_BYTES = 4

M = TypeVar("M", bound=Message)


def response_timeout_s(deadline: Deadline) -> float:
    """Return the timeout for one of several brokers; never too short for a response."""
    return min(RESPONSE_TIMEOUT_S_MAX, max(RESPONSE_TIMEOUT_S_MIN, deadline.remaining_s()))


def fetch_metadata(
    address: Address, topics: Iterable[str] = (), *, timeout: float
) -> MetadataResponse:
    """Return metadata of the brokers and of `topics`, which are not created.

    Raises:
        ConnectionFailedError: nothing listens there, or no complete response arrived in time.
        DecodeError: the response is not one of Kafka's.
        UnsupportedVersionError: there is no common version of Metadata.
    """
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic) for topic in topics],
        allow_auto_topic_creation=False,
    )
    return exchange(
        address, request, MetadataResponse, timeout=timeout, version_min=METADATA_VERSION_MIN
    )


def is_controller_reached(address: Address, deadline: Deadline) -> bool:
    """Return True if the controller answers a request that the broker at `address` sends on."""
    partitions = [RequestPartitionData(partition_index=0)]
    request = DescribeQuorumRequest([RequestTopicData(_METADATA_TOPIC, partitions)])
    timeout = response_timeout_s(deadline)
    try:
        response = exchange(address, request, DescribeQuorumResponse, timeout=timeout)
    except ConnectionFailedError:
        return False
    return response.error_code == 0


def exchange(
    address: Address, request: Request, kind: type[M], *, timeout: float, version_min: int = 0
) -> M:
    """Send a request in the newest common version, and return the response of type `kind`.

    Raises:
        ConnectionFailedError: nothing listens there, or no complete response arrived in time.
        DecodeError: the response is not one of Kafka's.
        UnsupportedVersionError: there is no common version from `version_min` on.
    """
    deadline = Deadline(timeout)
    try:
        with socket.create_connection(address, timeout=timeout) as connection:
            exchanged = _Exchange(connection, deadline)
            versions = exchanged.request(ApiVersionsRequest(), 0, ApiVersionsResponse)
            version_min = max(version_min, request.min_version)
            version = _version(address, versions, request, version_min)
            return exchanged.request(request, version, kind)
    except OSError as error:
        raise ConnectionFailedError(f"no response from the broker at {address}: {error}") from error


def _version(
    address: Address, versions: ApiVersionsResponse, request: Request, version_min: int
) -> int:
    for api in versions.api_keys:
        if api.api_key == request.api_key:
            version = min(api.max_version, request.max_version)
            if version >= max(api.min_version, version_min):
                return version
    raise UnsupportedVersionError(
        f"the broker at {address} supports no version of {request.api_key.name} between "
        f"{version_min} and {request.max_version}"
    )


class _Exchange:
    """Requests on a connection, one after another, before a common deadline."""

    def __init__(self, connection: socket.socket, deadline: Deadline) -> None:
        self._connection = connection
        self._deadline = deadline

    def request(self, request: Request, version: int, kind: type[M]) -> M:
        self._arm()
        self._connection.sendall(encode_request(request, version, 0, CLIENT_ID))
        size = int.from_bytes(self._read(_SIZE_BYTES), "big", signed=True)
        if not 0 <= size <= FRAME_SIZE_BYTES_MAX:
            raise FrameTooLargeError(
                f"the broker announced a frame of {size} bytes, as no Kafka broker would here; "
                f"the limit is {FRAME_SIZE_BYTES_MAX}"
            )
        return decode_response(kind, version, self._read(size))

    def _read(self, size_bytes: int) -> bytes:
        data = bytearray()
        while len(data) < size_bytes:
            self._arm()
            piece = self._connection.recv(size_bytes - len(data))
            if not piece:
                raise DisconnectedError(
                    f"the broker closed the connection after {len(data)} of {size_bytes} bytes"
                )
            data += piece
        return bytes(data)

    def _arm(self) -> None:
        remaining_s = self._deadline.remaining_s()
        if remaining_s == 0.0:  # a socket would take this as non-blocking
            raise TimeoutError(f"none within {self._deadline.timeout_ms} ms")
        self._connection.settimeout(remaining_s)
