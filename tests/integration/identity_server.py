"""IdentityServer: a token endpoint that issues signed JWTs, and fails as tests choose.

It grants by client credentials (RFC 6749), with a secret or an assertion that the client has signed
(RFC 7523, section 2.2), and by an assertion as the grant itself (section 2.1), over http or https.
Its keys are in a JWKS file, and at an address of its own. It is *serving* from the start until it
is closed; what it responds may be changed at any time.

Owner: the test that made it; each connection has a thread, which reads what the test has set.
"""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import threading
import time
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import parse_qs, unquote_plus, urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pykclient.testing.cluster.certificates import CertificateAuthority

TOKEN_PATH: Final = "/oauth2/token"
JWKS_PATH: Final = "/oauth2/jwks"
GCP_PATH: Final = "/computeMetadata/v1/instance/service-accounts/default"
IMDS_PATH: Final = "/metadata/identity/oauth2/token"
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
CLIENT_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
LIFETIME_S: Final = 3600
END_TIMEOUT_S: Final = 10.0
_PIECE: Final = b"x" * 65_536
_COORDINATE_BYTES: Final = 32


class Signer:
    """An identity server's key, its JWKS in a `file`, and the tokens that it signs."""

    def __init__(self, file: Path) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        public = self._key.public_key().public_numbers()
        numbers = {"n": public.n.to_bytes(256, "big"), "e": public.e.to_bytes(3, "big")}
        key = {name: encoded(value) for name, value in numbers.items()}
        self.jwks = json.dumps({"keys": [{"kty": "RSA", "kid": "one", "use": "sig", **key}]})
        file.write_text(self.jwks)
        self.url = file.as_uri()

    def token(self, subject: str, *, lifetime_s: int = 60, **claims: object) -> str:
        """Return a token that expires in a minute, or after its lifetime."""
        now = int(time.time())
        return self.signed({"sub": subject, "iat": now, "exp": now + lifetime_s, **claims})

    def signed(self, claims: Mapping[str, object]) -> str:
        """Return a token with only these claims."""
        head = {"alg": "RS256", "kid": "one"}
        text = ".".join(encoded(json.dumps(part).encode()) for part in (head, claims))
        signature = self._key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{text}.{encoded(signature)}"


class Fault(Enum):
    """Faults that replace a response."""

    NO_RESPONSE = "the request is read, and nothing comes"
    HANG_UP = "the connection is closed"
    GARBAGE = "bytes come that are no HTTP"
    ENDLESS_BODY = "a body comes that has no end"
    ENDLESS_HEADER = "a header comes that has no end"
    ENDLESS_CONTINUES = "interim responses come, and no other"
    TINY_CHUNKS = "a body comes in chunks of one byte"
    DRIP = "a byte comes, and later another one, without end"


_REPEATED: Final = {
    Fault.ENDLESS_CONTINUES: (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    Fault.TINY_CHUNKS: (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
}
"""First bytes of a response, and bytes that repeat without end."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A response that the test defines."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})

    @classmethod
    def of(cls, content: object, status: int = 200) -> Reply:
        """Return a response with JSON."""
        return cls(status, json.dumps(content).encode())


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A request for a token as received."""

    form: Mapping[str, str]
    headers: Mapping[str, str]
    path: str

    @property
    def credentials(self) -> tuple[str, str] | None:
        """Client id and secret of Basic authentication, as received."""
        kind, _, value = self.headers.get("authorization", "").partition(" ")
        if kind != "Basic":
            return None
        name, _, secret = base64.b64decode(value).decode().partition(":")
        return name, secret


class IdentityServer:
    """Issues tokens at `token_url`, over https with an `authority` that signs its certificate.

    `requests` are those for tokens, in order. `reply` is what follows instead of a token, None for
    a token. A context manager.
    """

    def __init__(
        self,
        folder: Path,
        authority: CertificateAuthority | None = None,
        *,
        hostname: str = "localhost",
    ) -> None:
        self.signer = Signer(folder / "jwks.json")
        self.clients: dict[str, str] = {"client": "client-secret"}
        self.assertion_keys: dict[str, rsa.RSAPublicKey | ec.EllipticCurvePublicKey] = {}
        """Keys of clients that sign assertions, by the assertion's ``iss``."""
        self.refresh_tokens: dict[str, str] = {}
        """Users of refresh tokens."""
        self.managed_identity = "managed"
        """User of tokens from the machine's metadata service, as in Azure."""
        self.is_opaque = False
        """True issues opaque access tokens instead of JWTs, as Google does."""
        self.lifetime_s = LIFETIME_S
        self.is_signing = True
        """False issues tokens without a signature, which fake brokers accept."""
        self.reply: Reply | Fault | None = None
        self.requests: list[TokenRequest] = []
        self.is_ending = threading.Event()
        self._server = _Server(self)
        scheme = "http"
        self._context: ssl.SSLContext | None = None
        if authority is not None:
            scheme = "https"
            context = self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            path = authority.issue("identity", hostnames=(hostname,)).path
            context.load_cert_chain(path)
            # The handshake is done by the connection's own thread, at its first read.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.origin = f"{scheme}://localhost:{self._server.server_port}"
        self.token_url = f"{self.origin}{TOKEN_PATH}"
        self.imds_url = f"{self.origin}{IMDS_PATH}"
        self.jwks_url = f"{self.origin}{JWKS_PATH}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name="identity-server", daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def demand_certificates(self, authority: CertificateAuthority) -> None:
        """Require client certificates of an authority."""
        assert self._context is not None, "only https has certificates"
        self._context.load_verify_locations(authority.path)
        self._context.verify_mode = ssl.CERT_REQUIRED

    def close(self) -> None:
        """Stop the server, and close connections that hang."""
        self.is_ending.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(END_TIMEOUT_S)

    def respond(self, request: TokenRequest) -> Reply | Fault:
        """Issue a token, reject the request, or do what the test has set."""
        self.requests.append(request)
        if self.reply is not None:
            return self.reply
        grant = request.form.get("grant_type")
        if urlsplit(request.path).path == IMDS_PATH:
            return self._of_the_machine(request)
        if urlsplit(request.path).path == f"{GCP_PATH}/token":
            return self._issued(self.managed_identity, {})
        if grant == "client_credentials":
            subject = self._client(request)
        elif grant == "refresh_token":
            subject = self._refreshed(request)
        elif grant == JWT_BEARER:
            subject = self._asserted(request.form.get("assertion", ""))
        else:
            return _refusal(400, "unsupported_grant_type", f"there is no grant {grant!r}")
        if subject is None and grant == JWT_BEARER:
            return _refusal(400, "invalid_grant", "the assertion is not valid")
        if subject is None:
            return _refusal(401, "invalid_client", "client or secret is wrong")
        scope = {name: request.form[name] for name in ("scope",) if name in request.form}
        if "audience" in request.form:
            scope["aud"] = request.form["audience"]
        return self._issued(subject, scope)

    def _of_the_machine(self, request: TokenRequest) -> Reply:
        """Issue a token without credentials, for requests that no browser can be made to send."""
        fields = request.form
        if request.headers.get("metadata") != "true":
            return _refusal(400, "invalid_request", "Required metadata header not specified")
        if "api-version" not in fields or "resource" not in fields:
            return _refusal(400, "invalid_request", "api-version or resource is missing")
        return self._issued(self.managed_identity, {"aud": fields["resource"]})

    def _issued(self, subject: str, scope: dict[str, str]) -> Reply:
        token = self.signer.token(subject, lifetime_s=self.lifetime_s, **scope)
        if not self.is_signing:
            head = encoded(json.dumps({"alg": "none"}).encode())
            token = f"{head}.{token.split('.')[1]}."
        if self.is_opaque:
            token = f"opaque-{len(self.requests)}"
        return Reply.of(
            {
                "access_token": token,
                "token_type": "Bearer",
                "expires_in": self.lifetime_s,
                **scope,
            }
        )

    def _refreshed(self, request: TokenRequest) -> str | None:
        """Return the user of a refresh token, if its client authenticates or has no secret."""
        client = self._client(request)
        if client is None and request.form.get("client_id") not in self.clients:
            return None
        return self.refresh_tokens.get(request.form.get("refresh_token", ""))

    def _client(self, request: TokenRequest) -> str | None:
        """Return the id of the authenticated client; None if it is not authenticated."""
        if "client_assertion" in request.form:
            return self._asserting_client(request)
        found = request.credentials
        if found is None:
            return None
        # As RFC 6749, section 2.3.1, has it; plain text without signs of its own is the same.
        name, secret = (unquote_plus(part) for part in found)
        return name if self.clients.get(name) == secret else None

    def _asserting_client(self, request: TokenRequest) -> str | None:
        """Return the client of an assertion; None if the request has a secret as well."""
        if request.form.get("client_assertion_type") != CLIENT_ASSERTION:
            return None
        if request.credentials is not None or "client_secret" in request.form:
            return None
        subject = self._asserted(request.form["client_assertion"])
        return subject if request.form.get("client_id", subject) == subject else None

    def _asserted(self, assertion: str) -> str | None:
        """Return the subject of an assertion that a client has signed for this address."""
        claims = verified(assertion, self.assertion_keys)
        if claims is None or claims.get("aud") != self.token_url:
            return None
        now = time.time()
        if not claims.get("nbf", 0) <= now < claims["exp"]:
            return None
        return str(claims["sub"])


def verified(
    assertion: str, keys: Mapping[str, rsa.RSAPublicKey | ec.EllipticCurvePublicKey]
) -> dict[str, Any] | None:
    """Return the claims of a JWT signed with its issuer's key; None for any other."""
    signed, _, signature_text = assertion.rpartition(".")
    head, _, payload = signed.partition(".")
    claims: dict[str, Any] = json.loads(decoded(payload))
    key, signature = keys.get(str(claims.get("iss"))), decoded(signature_text)
    algorithm = json.loads(decoded(head))["alg"]
    try:
        if isinstance(key, rsa.RSAPublicKey) and algorithm == "RS256":
            key.verify(signature, signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        elif isinstance(key, ec.EllipticCurvePublicKey) and algorithm == "ES256":
            assert len(signature) == 2 * _COORDINATE_BYTES
            r, s = signature[:_COORDINATE_BYTES], signature[_COORDINATE_BYTES:]
            found = encode_dss_signature(int.from_bytes(r), int.from_bytes(s))
            key.verify(found, signed.encode(), ec.ECDSA(hashes.SHA256()))
        else:
            return None
    except InvalidSignature:
        return None
    return claims


def encoded(data: bytes) -> str:
    """Encode in base64 as JWTs do."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _refusal(status: int, error: str, description: str) -> Reply:
    return Reply.of({"error": error, "error_description": description}, status)


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that `server_close` waits for them

    def __init__(self, identity: IdentityServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.identity = identity

    def handle_error(self, *_: object) -> None:
        """Ignore clients that disconnect or fail the handshake, as some tests make them do."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        account = self.server.identity.managed_identity
        if parts.path == f"{GCP_PATH}/email":
            is_google = self.headers.get("Metadata-Flavor") == "Google"
            self._send(Reply(200 if account and is_google else 404, account.encode()))
            return
        if parts.path in (IMDS_PATH, f"{GCP_PATH}/token"):
            fields = parse_qs(parts.query, keep_blank_values=True)
            self._answer({name: values[0] for name, values in fields.items()})
            return
        found = urlsplit(self.path).path == JWKS_PATH
        body = self.server.identity.signer.jwks.encode()
        self._send(Reply(200, body) if found else Reply(404, b"{}"))

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", "0"))
        fields = parse_qs(self.rfile.read(length).decode(), keep_blank_values=True)
        self._answer({name: values[0] for name, values in fields.items()})

    def _answer(self, fields: dict[str, str]) -> None:
        request = TokenRequest(
            fields,
            {name.lower(): value for name, value in self.headers.items()},
            self.path,
        )
        reply = self.server.identity.respond(request)
        if isinstance(reply, Reply):
            self._send(reply)
        else:
            with contextlib.suppress(OSError):  # the client gives up
                self._misbehave(reply)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Do not log."""

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body)

    def _misbehave(self, fault: Fault) -> None:
        ending = self.server.identity.is_ending
        if fault is Fault.NO_RESPONSE:
            ending.wait()
        elif fault is Fault.GARBAGE:
            self.wfile.write(b"\x00\xff\x15\x03 this is not HTTP\r\n\r\n" * 10)
        elif fault in _REPEATED:
            head, piece = _REPEATED[fault]
            self.wfile.write(head)
            while not ending.is_set():
                self.wfile.write(piece * 1_000)
        elif fault is not Fault.HANG_UP:
            piece, pause_s = (b"x", 0.05) if fault is Fault.DRIP else (_PIECE, 0.0)
            is_header = fault is Fault.ENDLESS_HEADER
            self.wfile.write(b"HTTP/1.1 200 OK\r\n" + (b"X-Name: " if is_header else b"\r\n"))
            while not ending.wait(pause_s):
                self.wfile.write(piece)
