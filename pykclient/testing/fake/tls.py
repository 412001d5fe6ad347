"""TLS in front of a fake broker's connection, and the certificates of its listeners.

A `TlsConnection` is *securing*, then *secured*, then *closed*. Its socket uses it like the
connection behind it. A client without TLS, or with a certificate that is not accepted, gets an
alert with the reason and is closed, as in Kafka.

Owner: the thread of `FakeKafka`; certificates may be replaced while that holds the lock.
Source: ``ssl.MemoryBIO``; Java class ``SslTransportLayer``.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from pykclient.errors.base import UsageError
from pykclient.testing.cluster.certificates import HOSTNAMES, CertificateAuthority
from pykclient.testing.cluster.security import MUTUAL_TLS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pykclient.testing.cluster.certificates import Certificate
    from pykclient.testing.cluster.security import Listener
    from pykclient.testing.fake.connection import FakeConnection

RECEIVE_BYTES: Final = 64 * 1024

INTERNAL_ERROR: Final = b"\x15\x03\x03\x00\x02\x02\x50"
"""Alert for a client that does not speak TLS: Java sends it, OpenSSL does not."""

log = logging.getLogger("pykclient.testing")


class TlsConnection:
    """TLS between a socket and a connection."""

    def __init__(self, context: ssl.SSLContext, connection: FakeConnection) -> None:
        self._connection = connection
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._engine = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._is_secured = False
        self._has_ended = False
        self._has_sent = False

    @property
    def is_closed(self) -> bool:
        """True if either side has closed it."""
        return self._connection.is_closed

    @property
    def has_output(self) -> bool:
        """True if there are bytes to send."""
        return bool(self._outgoing.pending) or self._connection.has_output or self._is_to_end

    @property
    def wants_input(self) -> bool:
        """True if the connection should read more bytes now."""
        return self._connection.wants_input

    @property
    def _is_to_end(self) -> bool:
        """True until a closed connection has sent its close_notify."""
        return self._is_secured and self.is_closed and not self._has_ended

    def get_buffer(self) -> memoryview:
        """Return the buffer for the next received bytes."""
        return self._buffer

    def buffer_updated(self, count: int, now_ms: int) -> None:
        """Decrypt received bytes and pass them to the connection."""
        self._incoming.write(self._buffer[:count])
        engine, connection = self._engine, self._connection
        try:
            if not self._is_secured:
                engine.do_handshake()
                self._is_secured = True
            while not connection.is_closed:
                buffer = connection.get_buffer()
                size_bytes = engine.read(len(buffer), buffer)
                if not size_bytes:
                    raise ssl.SSLZeroReturnError
                connection.buffer_updated(int(size_bytes), now_ms)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            connection.close()
        except ssl.SSLError as error:
            log.debug("a client of a fake broker failed in TLS: %s", error)
            self._has_ended = True  # by the alert
            if not self._is_secured and not self._has_sent and not self._outgoing.pending:
                self._outgoing.write(INTERNAL_ERROR)
            connection.close()

    def take_output(self) -> list[bytes | bytearray]:
        """Return the bytes to send, in order."""
        if self._is_secured:
            for part in self._connection.take_output():
                rest = memoryview(part)
                while rest:
                    rest = rest[self._engine.write(rest) :]
        if self._is_to_end and not self._connection.has_output:
            self._has_ended = True
            with contextlib.suppress(ssl.SSLError):  # do not wait for the client's close_notify
                self._engine.unwrap()
        if not self._outgoing.pending:
            return []
        self._has_sent = True
        return [self._outgoing.read()]

    def close(self) -> None:
        """Close the connection; pending output may still be sent."""
        self._connection.close()


class ListenerCertificates:
    """The TLS contexts of the listeners: their certificates, and which clients they accept.

    For `authority`, None creates one in a temporary folder that `close` removes. `hosts` are the
    brokers' names and addresses besides those of this machine.

    Raises:
        MissingPrerequisiteError: the package trustme is not installed.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        hosts: Iterable[str],
        authority: CertificateAuthority | None,
    ) -> None:
        self._folder: TemporaryDirectory[str] | None = None
        if authority is None:
            self._folder = TemporaryDirectory(prefix="pykclient-fake-")
            authority = CertificateAuthority(Path(self._folder.name))
        self.authority = authority
        hostnames = dict.fromkeys((*HOSTNAMES, *hosts))
        certificate = authority.issue("broker", hostnames=hostnames)
        self._contexts: dict[str, ssl.SSLContext] = {}
        for listener in listeners:
            self._contexts[listener.name] = self._context(listener, certificate)

    def replace(self, listener: Listener, certificate: Certificate) -> None:
        """Present another certificate to new clients of a listener. Raises `UsageError`."""
        if listener.name not in self._contexts:
            raise UsageError(
                f"listener {listener.name} has protocol {listener.protocol}, without TLS"
            )
        self._contexts[listener.name] = self._context(listener, certificate)

    def secured(self, listener: str, connection: FakeConnection) -> TlsConnection | FakeConnection:
        """Wrap a connection of a listener in TLS if the listener uses it."""
        context = self._contexts.get(listener)
        return connection if context is None else TlsConnection(context, connection)

    def close(self) -> None:
        """Remove the temporary authority's files. Idempotent."""
        if self._folder is not None:
            self._folder.cleanup()

    def _context(self, listener: Listener, certificate: Certificate) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(certificate.path, password=certificate.key_password)
        if listener.name == MUTUAL_TLS:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.authority.path)
        return context
