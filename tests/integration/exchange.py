"""One broker, real or fake, that is sent requests one by one, so that their responses compare."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Protocol, TypeVar

from pykclient.protocol.message import Message, decode_response, encode_request

if TYPE_CHECKING:
    from pykclient.protocol.message import Request
    from pykclient.testing import FakeCluster

M = TypeVar("M", bound=Message)
TIMEOUT_S = 30.0
_SIZE_BYTES = 4


class Exchange(Protocol):
    """A broker that coordinates everything."""

    def send(self, request: Request, response_type: type[M], version: int | None = None) -> M:
        """Its response; `version` None means the newest."""
        ...


class RealExchange:
    """A broker behind a socket; a connection of its own for each request, for they are few."""

    def __init__(self, servers: str) -> None:
        host, _, port = servers.partition(":")
        self._address = host, int(port)

    def send(self, request: Request, response_type: type[M], version: int | None = None) -> M:
        """Its response."""
        api_version = request.max_version if version is None else version
        with socket.create_connection(self._address, TIMEOUT_S) as stream:
            stream.sendall(encode_request(request, api_version, 0, "test"))
            with stream.makefile("rb") as file:
                size_bytes = int.from_bytes(file.read(_SIZE_BYTES), "big")
                return decode_response(response_type, api_version, file.read(size_bytes))


class FakeExchange:
    """A fake broker, without a socket; each request comes a millisecond after the last."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster

    def send(self, request: Request, response_type: type[M], version: int | None = None) -> M:
        """Its response."""
        now_ms = self.cluster.now_ms + 1
        response = self.cluster.handle_request(
            0, request, now_ms, version=version
        ).require_response()
        assert isinstance(response, response_type)
        return response
