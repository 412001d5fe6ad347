"""HttpEndpoint: requests to one address over http or https, for identity servers and metadata.

One deadline covers the whole request: connecting, TLS, and every byte received. Headers and body
are limited in size. Redirects are not followed, since requests carry secrets. Through a proxy,
https uses a tunnel (CONNECT): the proxy learns only the host's name.

Owner: the background thread that calls `post` or `get`; no state is kept between two requests.
Source: RFC 9110, RFC 9112; Java class ``HttpJwtRetriever``.
"""

from __future__ import annotations

import io
import socket
import ssl
import time
from base64 import b64encode
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, RemoteDisconnected
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import urlsplit, urlunsplit

from pykclient.errors import ConnectionFailedError, DecodeError, KafkaError, TlsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pykclient.network.io.http_proxy import Proxy

BODY_BYTES_MAX: Final = 512 * 1024
"""Maximum size of a body, like that of a SASL response. Brokers accept tokens of half that size."""

RESPONSE_BYTES_MAX: Final = 1024 * 1024
"""Maximum bytes of a response, including headers, interim responses and chunk headers, which each
cost a few lines of Python."""

_PORTS: Final = {"http": 80, "https": 443}

_NO_AUTHORITY: Final = frozenset({2, 18, 19, 20, 21})
"""OpenSSL's ``X509_V_ERR_...`` codes for a chain that ends in no trusted authority."""

_OTHER_HOST: Final = frozenset({62, 64})


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """The body and headers of a request. They hold secrets, so no log or error shows them."""

    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """The response of a server. Its body may hold secrets and is never shown."""

    status: int
    content_type: str
    """The content type in lower case, without parameters; empty if missing."""
    body: bytes = field(repr=False)


class HttpEndpoint:
    """One address, reached directly or through a proxy.

    `context` returns the TLS context for each request; None for http.
    """

    def __init__(
        self,
        url: str,
        context: Callable[[], ssl.SSLContext] | None,
        *,
        proxy: Proxy | None = None,
    ) -> None:
        parts = urlsplit(url)
        assert parts.hostname, "the config has checked it"
        self.name = shown_url(url)
        self._host = parts.hostname
        self._port = parts.port or _PORTS[parts.scheme]
        self._target = urlunsplit(("", "", parts.path or "/", parts.query, ""))
        self._context = context if parts.scheme == "https" else None
        self._authority = parts.netloc.rpartition("@")[2]
        self._proxy = proxy

    def post(
        self, request: HttpRequest, *, connect_timeout_ms: int, timeout_ms: int
    ) -> HttpResponse:
        """Send a POST request and return the response, whatever its status. Blocks.

        `timeout_ms` covers the whole request, `connect_timeout_ms` the connection without TLS.

        Raises:
            ConnectionFailedError: the server cannot be reached, is too slow, or hung up.
            TlsError: its certificate is not trusted, or it does not speak TLS.
            DecodeError: the response is not HTTP, or too long.
        """
        return self._request("POST", request, connect_timeout_ms, timeout_ms)

    def get(
        self, request: HttpRequest, *, connect_timeout_ms: int, timeout_ms: int
    ) -> HttpResponse:
        """Send a GET request without a body and return the response, as `post` does."""
        return self._request("GET", request, connect_timeout_ms, timeout_ms)

    def _request(
        self, method: str, request: HttpRequest, connect_timeout_ms: int, timeout_ms: int
    ) -> HttpResponse:
        deadline_s = time.monotonic() + timeout_ms / 1000
        try:
            connect_timeout_s = min(connect_timeout_ms, timeout_ms) / 1000
            return self._send(method, request, connect_timeout_s, deadline_s)
        except TimeoutError as error:
            is_over = time.monotonic() >= deadline_s
            failure: KafkaError = ConnectionFailedError(
                f"the server did not respond within {timeout_ms} ms"
                if is_over
                else f"the server could not be connected to within {connect_timeout_ms} ms"
            )
            cause: Exception = error
        except (OSError, HTTPException, UnicodeError, KafkaError) as error:
            failure, cause = self._failure(error), error
        if failure is not cause:
            # Local variables in the standard library's frames hold the request.
            cause.__context__ = None
            failure.__cause__ = cause.with_traceback(None)
        raise failure.with_traceback(None)

    def _send(
        self, method: str, request: HttpRequest, connect_timeout_s: float, deadline_s: float
    ) -> HttpResponse:
        proxy = self._proxy
        place = (self._host, self._port) if proxy is None else (proxy.host, proxy.port)
        with (
            socket.create_connection(place, connect_timeout_s) as plain,
            self._secured(plain, deadline_s) as connection,
        ):
            client = HTTPConnection(self._host, self._port)
            # It connects only if it has no socket.
            client.sock = cast("socket.socket", _TimedSocket(connection, deadline_s))
            is_forwarded = proxy is not None and self._context is None
            # Keep this in one expression: tracebacks may show variables.
            client.request(
                method,
                f"http://{self._authority}{self._target}" if is_forwarded else self._target,
                request.body if method == "POST" else None,
                {
                    "Connection": "close",
                    **(_proxy_headers(proxy) if is_forwarded else {}),
                    **request.headers,
                },
            )
            with client.getresponse() as response:
                return _read(response)

    def _secured(self, plain: socket.socket, deadline_s: float) -> socket.socket:
        if self._context is None:
            return plain
        if self._proxy is not None:
            self._open_tunnel(_TimedSocket(plain, deadline_s), self._proxy)
        plain.settimeout(_left_s(deadline_s))
        return self._context().wrap_socket(plain, server_hostname=self._host)

    def _open_tunnel(self, plain: _TimedSocket, proxy: Proxy) -> None:
        """Ask the proxy to connect to the server (RFC 9110, section 9.3.6)."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        client = HTTPConnection(self._host, self._port)
        client.sock = cast("socket.socket", plain)
        place = f"{host}:{self._port}"
        client.putrequest("CONNECT", place, skip_host=True, skip_accept_encoding=True)
        client.putheader("Host", place)
        for name, value in _proxy_headers(proxy).items():
            client.putheader(name, value)
        client.endheaders()
        response = HTTPResponse(cast("socket.socket", plain), method="CONNECT")
        with response:
            response.begin()
            status = response.status
        if not 200 <= status < 300:
            cure = "; give user and password in HTTPS_PROXY" if status == 407 else ""
            raise ConnectionFailedError(
                f"the proxy {proxy} responded with status {status} to the request to connect to "
                f"{place}{cure}"
            )

    def _failure(self, error: Exception) -> KafkaError:
        if isinstance(error, KafkaError):
            return error
        if isinstance(error, ssl.SSLError):
            return self._tls_error(error)
        if isinstance(error, RemoteDisconnected):
            return ConnectionFailedError("the server hung up without a response")
        if isinstance(error, HTTPException):
            # Its text may contain the server's bytes.
            return DecodeError(f"the server's response is not HTTP: {type(error).__name__}")
        reason = str(error)
        if isinstance(error, OSError):
            reason = (error.strerror or reason).lower()
        proxy = "" if self._proxy is None else f" through the proxy {self._proxy}"
        return ConnectionFailedError(
            f"the server {self._host}:{self._port} cannot be reached{proxy}: {reason}"
        )

    def _tls_error(self, error: ssl.SSLError) -> KafkaError:
        if isinstance(error, ssl.SSLCertVerificationError):
            cure = "check https_ca_location"
            if error.verify_code in _NO_AUTHORITY:
                cure = "give its authority in https_ca_location"
            elif error.verify_code in _OTHER_HOST:
                cure = "use a host name in the URL that the certificate has"
            return TlsError(f"the certificate was not accepted: {error.verify_message}; {cure}")
        if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return ConnectionFailedError("the server hung up during TLS")
        reason = (error.reason or str(error)).replace("_", " ").lower()
        return TlsError(f"TLS with {self._host}:{self._port} failed: {reason}; is it https?")


class _TimedSocket:
    """The parts of a socket that `HTTPConnection` needs, with one deadline for all operations."""

    def __init__(self, connection: socket.socket, deadline_s: float) -> None:
        self._connection = connection
        self._deadline_s = deadline_s

    def sendall(self, data: bytes) -> None:
        self._connection.settimeout(_left_s(self._deadline_s))
        self._connection.sendall(data)

    def makefile(self, *_: object) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self._connection, self._deadline_s))

    def close(self) -> None:
        """Do nothing: the owner closes the socket after the response was read."""


class _TimedReader(io.RawIOBase):
    def __init__(self, connection: socket.socket, deadline_s: float) -> None:
        self._connection = connection
        self._deadline_s = deadline_s
        self._left_bytes = RESPONSE_BYTES_MAX

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        # A server that sends single bytes must not get the full time for each.
        self._connection.settimeout(_left_s(self._deadline_s))
        if self._left_bytes == 0:
            raise DecodeError(f"the server's response has more than {RESPONSE_BYTES_MAX} bytes")
        size_bytes = self._connection.recv_into(buffer[: self._left_bytes])
        self._left_bytes -= size_bytes
        return size_bytes


def _proxy_headers(proxy: Proxy | None) -> dict[str, str]:
    if proxy is None or proxy.credentials is None:
        return {}
    return {"Proxy-Authorization": f"Basic {b64encode(proxy.credentials.encoded()).decode()}"}


def shown_url(url: str) -> str:
    """Return a URL without its user, password and query, which may be secret."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, place, parts.path, "", ""))


def _left_s(deadline_s: float) -> float:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _read(response: HTTPResponse) -> HttpResponse:
    body = response.read(BODY_BYTES_MAX + 1)
    if len(body) > BODY_BYTES_MAX:
        raise DecodeError(f"the server's response has more than {BODY_BYTES_MAX} bytes")
    if response.length:
        raise ConnectionFailedError("the server hung up in the middle of its response")
    return HttpResponse(response.status, _content_type(response), body)


def _content_type(response: HTTPResponse) -> str:
    return (response.getheader("Content-Type") or "").partition(";")[0].strip().lower()
