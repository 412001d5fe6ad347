"""A connection to a broker, real or fake, for requests of SASL one by one; and a client of SCRAM.

Owner: the test that made it.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import socket
import ssl
import time
from typing import TYPE_CHECKING, Final, Self, TypeVar

from pykclient.protocol.message import Message, decode_response, encode_request
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from pykclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient.protocol.message import Request

M = TypeVar("M", bound=Message)
TIMEOUT_S: Final = 20.0
CLOSED: Final = "closed"
"""Result of a request for which the broker closes the connection."""


class Line:
    """A connection to the listener that a client's settings are for; a context manager."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        host, _, port = settings["bootstrap_servers"].split(",")[0].rpartition(":")
        self._socket: socket.socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        if settings["security_protocol"] in ("SSL", "SASL_SSL"):
            context = ssl.create_default_context(cafile=settings["ssl_truststore_location"])
            self._socket = context.wrap_socket(self._socket, server_hostname=host)
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def send(self, request: Request, kind: type[M], version: int) -> M | None:
        """Return the response; None when the connection was closed."""
        frame = self._exchange(bytes(encode_request(request, version, 0, "test")))
        return None if frame is None else decode_response(kind, version, frame)

    def send_bare(self, token: bytes) -> bytes | None:
        """Return the response to a token without a header; None if the connection was closed."""
        return self._exchange(len(token).to_bytes(4, "big") + token)

    def versions(self) -> object:
        response = self.send(ApiVersionsRequest(), ApiVersionsResponse, 0)
        return CLOSED if response is None else response.error_code

    def handshake(self, mechanism: str, version: int = 1) -> object:
        """Return the error, and which mechanisms there are."""
        request = SaslHandshakeRequest(mechanism=mechanism)
        response = self.send(request, SaslHandshakeResponse, version)
        return CLOSED if response is None else (response.error_code, sorted(response.mechanisms))

    def authenticate(self, token: bytes, version: int = 2) -> SaslAuthenticateResponse | None:
        return self.send(
            SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, version
        )

    def plain(self, user: str, password: str, *, authorization: str = "") -> object:
        """Return the result of PLAIN: the error and its message, or the session's lifetime."""
        return result(self.authenticate("\0".join((authorization, user, password)).encode()))

    def scram(self, mechanism: str, user: str, password: str) -> object:
        """Return the result of SCRAM, and whether the broker has proved its knowledge."""
        hash_name = "sha" + mechanism[-3:]
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        bare = f"n={escaped},r=nonce-of-the-client"
        first = self.authenticate(f"n,,{bare}".encode())
        if first is None or first.error_code:
            return result(first)
        fields = dict(part.split("=", 1) for part in first.auth_bytes.decode().split(","))
        salt, count = base64.b64decode(fields["s"]), int(fields["i"])
        salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, count)
        without_proof = f"c=biws,r={fields['r']}"
        message = f"{bare},{first.auth_bytes.decode()},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", hash_name)
        signature = hmac.digest(hashlib.new(hash_name, client_key).digest(), message, hash_name)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        text = f"{without_proof},p={base64.b64encode(proof).decode()}"
        final = self.authenticate(text.encode())
        if final is None or final.error_code:
            return result(final)
        server_key = hmac.digest(salted, b"Server Key", hash_name)
        expected = base64.b64encode(hmac.digest(server_key, message, hash_name))
        return result(final), final.auth_bytes == b"v=" + expected

    def _exchange(self, data: bytes) -> bytes | None:
        # A broker may have closed the connection with our bytes unread.
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            self._socket.sendall(data)
            head = self._file.read(4)
            if len(head) == 4:
                return self._file.read(int.from_bytes(head, "big"))
        return None


def result(response: SaslAuthenticateResponse | None) -> object:
    """Return the result of a response to a token."""
    if response is None:
        return CLOSED
    if response.error_code:
        return response.error_code, response.error_message
    return response.session_lifetime_ms


def bearer(claims: Mapping[str, object], *, algorithm: str = "none") -> bytes:
    """Return the first message of OAUTHBEARER, with a token that has no signature."""
    parts = ({"alg": algorithm}, claims)
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()) for part in parts]
    token = b".".join(part.rstrip(b"=") for part in encoded) + b"."
    return b"n,,\x01auth=Bearer " + token + b"\x01\x01"


def claims_of(user: str, *, lasts_s: int = 3600) -> dict[str, object]:
    now_s = int(time.time())
    return {"sub": user, "iat": now_s - 60, "exp": now_s + lasts_s}
