"""A real or fake broker that gets requests one by one, so that responses can be compared."""

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
_AT_A_TIME = 100


class Exchange(Protocol):
    """A broker that coordinates everything."""

    def send(self, request: Request, response_type: type[M], version: int | None = None) -> M:
        """Return the response; `version` None is the newest."""
        ...

    def send_often(
        self, request: Request, response_type: type[M], count: int, version: int | None = None
    ) -> M:
        """Send a request `count` times; return the last response. `count` is not 0."""
        ...


class RealExchange:
    """A broker behind a socket, with a new connection for each call."""

    def __init__(self, servers: str) -> None:
        host, _, port = servers.partition(":")
        self._address = host, int(port)

    def send(self, request: Request, response_type: type[M], version: int | None = None) -> M:
        """Return the response."""
        return self.send_often(request, response_type, 1, version)

    def send_often(
        self, request: Request, response_type: type[M], count: int, version: int | None = None
    ) -> M:
        """Return the last response; several requests are in flight at a time, in order."""
        api_version = request.max_version if version is None else version
        data = bytes(encode_request(request, api_version, 0, "test"))
        response = b""
        with (
            socket.create_connection(self._address, TIMEOUT_S) as stream,
            stream.makefile("rb") as file,
        ):
            for sent_count in range(0, count, _AT_A_TIME):
                due_count = min(_AT_A_TIME, count - sent_count)
                stream.sendall(data * due_count)
                for _ in range(due_count):
                    response = file.read(int.from_bytes(file.read(_SIZE_BYTES), "big"))
        return decode_response(response_type, api_version, response)


class FakeExchange:
    """A fake broker without a socket; each request comes a millisecond after the previous one."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster

    def send(self, request: Request, response_type: type[M], version: int | None = None) -> M:
        """Return the response."""
        now_ms = self.cluster.now_ms + 1
        response = self.cluster.handle_request(
            0, request, now_ms, version=version
        ).require_response()
        assert isinstance(response, response_type)
        return response

    def send_often(
        self, request: Request, response_type: type[M], count: int, version: int | None = None
    ) -> M:
        """Return the last response."""
        for _ in range(count):
            response = self.send(request, response_type, version)
        return response
