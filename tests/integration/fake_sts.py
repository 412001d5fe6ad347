"""FakeSts: the AWS service that issues temporary credentials for roles, for the AWS SDK.

It is *serving* from the start until it is closed, at the address that ``AWS_ENDPOINT_URL_STS``
names.

Owner: the test that made it; each request has a thread.
Source: AWS Security Token Service, API 2011-06-15: AssumeRole, AssumeRoleWithWebIdentity.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Self
from urllib.parse import parse_qs

NAMESPACE: Final = "https://sts.amazonaws.com/doc/2011-06-15/"
END_TIMEOUT_S: Final = 10.0


class FakeSts:
    """Issues credentials of `role_arn`; key id and secret have the number of the request.

    `web_identity` is the token that it takes for the role. `requests` are the forms in order.
    """

    def __init__(self, role_arn: str, web_identity: str = "") -> None:
        self.role_arn = role_arn
        self.web_identity = web_identity
        self.requests: list[dict[str, str]] = []
        self._server = _Server(self)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(END_TIMEOUT_S)

    def respond(self, form: dict[str, str]) -> tuple[int, str]:
        """Return status and XML."""
        self.requests.append(form)
        action = form["Action"]
        is_known = form["RoleArn"] == self.role_arn and (
            action == "AssumeRole" or form.get("WebIdentityToken") == self.web_identity
        )
        if not is_known:
            error = "<Type>Sender</Type><Code>AccessDenied</Code><Message>not yours</Message>"
            return 403, f'<ErrorResponse xmlns="{NAMESPACE}"><Error>{error}</Error></ErrorResponse>'
        number = len(self.requests)
        expiration = datetime.now(UTC) + timedelta(hours=1)
        credentials = (
            f"<AccessKeyId>ASIAROLE{number:012}</AccessKeyId>"
            f"<SecretAccessKey>secret-{number}</SecretAccessKey>"
            f"<SessionToken>session-{number}</SessionToken>"
            f"<Expiration>{expiration:%Y-%m-%dT%H:%M:%SZ}</Expiration>"
        )
        user = f"<Arn>{self.role_arn}/x</Arn><AssumedRoleId>A:x</AssumedRoleId>"
        result = (
            f"<Credentials>{credentials}</Credentials><AssumedRoleUser>{user}</AssumedRoleUser>"
        )
        return 200, (
            f'<{action}Response xmlns="{NAMESPACE}"><{action}Result>{result}</{action}Result>'
            f"</{action}Response>"
        )


class _Server(ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self, sts: FakeSts) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.sts = sts


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        status, text = self.server.sts.respond(form)
        self.send_response(status)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Do not log."""
