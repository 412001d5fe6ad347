"""HttpProxy: a proxy that treats every host as this machine, and records its requests.

A tunnel (CONNECT) is passed on as it is; a request with a whole URL is sent on to its host. It is
*serving* from the start until it is closed.

Owner: the test that made it; each connection has a thread.
"""

from __future__ import annotations

import contextlib
import http.client
import select
import socket
import threading
from base64 import b64decode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Self
from urllib.parse import urlsplit

PIECE_BYTES: Final = 65_536
END_TIMEOUT_S: Final = 10.0


class HttpProxy:
    """A proxy at `url`; with `credentials` (user and password) it rejects others.

    `requests` are the methods and targets in order, `status` is what it responds instead of 200.
    """

    def __init__(self, credentials: tuple[str, str] | None = None) -> None:
        self.credentials = credentials
        self.status = 200
        self.requests: list[tuple[str, str]] = []
        self._server = _Server(self)
        user = "" if credentials is None else f"{credentials[0]}:{credentials[1]}@"
        self.url = f"http://{user}127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(END_TIMEOUT_S)

    def refusal(self, header: str) -> int:
        """Return the status with which a request is rejected; 0 if it is not."""
        if self.credentials is not None:
            given = b64decode(header.partition(" ")[2]).decode()
            if given != ":".join(self.credentials):
                return 407
        return 0 if self.status == 200 else self.status


class _Server(ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self, proxy: HttpProxy) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy = proxy

    def handle_error(self, *_: object) -> None:
        """Ignore clients that disconnect, as some tests make them do."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_CONNECT(self) -> None:
        if not self._is_taken():
            return
        port = int(self.path.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as far:
            self.send_response(200)
            self.end_headers()
            self._join(far)
        self.close_connection = True

    def do_POST(self) -> None:
        if not self._is_taken():
            return
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        client = http.client.HTTPConnection("127.0.0.1", parts.port or 80)
        headers = {name: value for name, value in self.headers.items() if "Proxy" not in name}
        client.request("POST", parts.path, body, headers)
        with client.getresponse() as response:
            self.send_response(response.status)
            found = response.read()
            self.send_header("Content-Type", response.headers["Content-Type"])
            self.send_header("Content-Length", str(len(found)))
            self.end_headers()
            self.wfile.write(found)
        client.close()
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Do not log."""

    def _is_taken(self) -> bool:
        self.server.proxy.requests.append((self.command, self.path))
        status = self.server.proxy.refusal(self.headers.get("Proxy-Authorization", ""))
        if status:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()
            self.close_connection = True
        return not status

    def _join(self, far: socket.socket) -> None:
        """Forward bytes until one side has closed."""
        other = {self.connection: far, far: self.connection}
        with contextlib.suppress(OSError):
            while True:
                readable, _, _ = select.select([*other], [], [])
                for side in readable:
                    piece = side.recv(PIECE_BYTES)
                    if not piece:
                        return
                    other[side].sendall(piece)
