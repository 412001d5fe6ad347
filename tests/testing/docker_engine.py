"""A stand-in for a Docker engine, which records the requests it receives.

It implements as much of the engine's HTTP API as docker-py and testcontainers use for
`DockerCluster`. Its containers run nothing: one that publishes a port responds there as a broker of
a fake cluster, which is enough to be found ready. It therefore shows what we request, and not what
an engine does.

Owner: the test that created it.
Source: Docker Engine API 1.45.
"""

from __future__ import annotations

import itertools
import json
import re
import socket
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, urlsplit

from pykclient.testing.fake.cluster import FakeCluster
from tests.integration.loopback_server import HOST

SIZE_BYTES = 4
STATUS_OF = {"start": "running", "unpause": "running", "pause": "paused"}


class HttpRequest(NamedTuple):
    """A request with a side effect: method, path without API version, query."""

    method: str
    path: str
    query: dict[str, list[str]]


class Container:
    """A requested container and its state."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.status = "created"
        self.exit_code = 0
        self._listener: socket.socket | None = None

    @property
    def environment(self) -> dict[str, str]:
        return dict(entry.split("=", 1) for entry in self.spec["Env"])

    @property
    def properties(self) -> dict[str, str]:
        """The server's settings, without the escapes of a properties file."""
        lines = self.environment["PYKCLIENT_SERVER_PROPERTIES"].splitlines()
        return dict(re.sub(r"\\(.)", r"\1", line).split("=", 1) for line in lines)

    @property
    def host_port(self) -> int | None:
        bindings = self.spec["HostConfig"].get("PortBindings") or {}
        ports = [int(binding["HostPort"]) for found in bindings.values() for binding in found]
        return ports[0] if ports else None

    @property
    def aliases(self) -> list[str]:
        (endpoint,) = self.spec["NetworkingConfig"].values()
        return [alias for network in endpoint.values() for alias in network["Aliases"]]

    def to(self, status: str, brokers: FakeCluster) -> None:
        """Change the state; only a running container listens."""
        self.status = status
        if status == "running" and self._listener is None and self.host_port is not None:
            self._listener = socket.create_server((HOST, self.host_port))
            broker_id = int(self.properties["node.id"])
            threading.Thread(
                target=_serve, args=(self._listener, brokers, broker_id), daemon=True
            ).start()
        if status == "exited" and self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)  # ends the accept
            self._listener.close()
            self._listener = None


class DockerEngine:
    """An engine on a loopback port; a context manager."""

    def __init__(self, broker_count: int) -> None:
        self.requests: list[HttpRequest] = []
        self.containers: dict[str, Container] = {}
        self.all_containers: list[Container] = []
        self.networks: set[str] = set()
        self.refused_path = "(?!)"
        """Pattern of paths that get an error response."""
        self.stop_exit_code = 143
        self._brokers = FakeCluster(broker_count + 1)  # its ids begin with 0
        self._numbers = itertools.count(1)
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
                """Log nothing."""

            def _respond(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size) or b"null")
                status, content = engine.respond(self.command, self.path, body)
                is_raw = isinstance(content, bytes)
                data = content if is_raw else json.dumps(content).encode()
                if status == HTTPStatus.NO_CONTENT:
                    data = b""
                self.send_response(status)
                kind = "application/vnd.docker.raw-stream" if is_raw else "application/json"
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = _respond

        self._server = ThreadingHTTPServer((HOST, 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.address = f"tcp://{HOST}:{self._server.server_port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def respond(self, method: str, target: str, body: Any) -> tuple[int, Any]:
        """Return the status and body of a response."""
        parts = urlsplit(target)
        path = re.sub(r"^/v[\d.]+", "", parts.path)
        if method != "GET":
            self.requests.append(HttpRequest(method, path, parse_qs(parts.query)))
        if re.search(self.refused_path, path):
            return 500, {"message": "refused by the test"}
        what, *rest = path.strip("/").split("/")
        if what == "networks":
            return self._network(method, rest, body)
        if what == "containers":
            return self._container(method, rest, body)
        if what == "version":
            return 200, {"ApiVersion": "1.45", "MinAPIVersion": "1.24", "Version": "26.0"}
        return 200, {"Id": "sha256:1"}  # an image, or the response to a ping

    def _network(self, method: str, rest: list[str], body: Any) -> tuple[int, Any]:
        if method == "POST":
            self.networks.add(body["Name"])
            return 201, {"Id": body["Name"]}
        if method == "DELETE":
            self.networks.remove(rest[0])
            return HTTPStatus.NO_CONTENT, None
        return 200, {"Id": rest[0], "Name": rest[0]}

    def _container(self, method: str, rest: list[str], body: Any) -> tuple[int, Any]:
        if rest == ["create"]:
            number = f"{next(self._numbers):064}"
            self.containers[number] = Container(body)
            self.all_containers.append(self.containers[number])
            return 201, {"Id": number, "Warnings": []}
        container = self.containers[rest[0]]
        action = rest[1] if len(rest) > 1 else ""
        if method == "DELETE":
            container.to("exited", self._brokers)
            del self.containers[rest[0]]
            return HTTPStatus.NO_CONTENT, None
        if action == "wait":
            return 200, {"StatusCode": container.exit_code}
        if action == "logs":
            return 200, _log_frame(b"the last words\n")
        if action == "json":
            return 200, {
                "Id": rest[0],
                "State": {"Status": container.status},
                "Config": {"Tty": False},
            }
        container.exit_code = 137 if action == "kill" else self.stop_exit_code
        container.to(STATUS_OF.get(action, "exited"), self._brokers)
        return HTTPStatus.NO_CONTENT, None


def _log_frame(text: bytes) -> bytes:
    """Return a container's output as the engine sends it: stream, size, text."""
    return b"\x01\0\0\0" + len(text).to_bytes(SIZE_BYTES, "big") + text


def _serve(listener: socket.socket, brokers: FakeCluster, broker_id: int) -> None:
    """Serve one connection after another until the listener is closed."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection, connection.makefile("rb") as reader:
            while len(size := reader.read(SIZE_BYTES)) == SIZE_BYTES:
                frame = reader.read(int.from_bytes(size, "big"))
                call = brokers.handle(broker_id, frame, time.monotonic_ns() // 1_000_000)
                connection.sendall(call.frame)
