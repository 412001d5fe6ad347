"""OAUTHBEARER: a bearer token and its SASL extensions.

Owner: the connection that authenticates.
Source: RFC 7628; KIP-255, KIP-342; Java classes ``OAuthBearerSaslClient``,
``OAuthBearerClientInitialResponse``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from pykclient.errors import AuthenticationError
from pykclient.errors.text import printable
from pykclient.network.sasl.mechanism import SaslMechanism
from pykclient.network.sasl.redaction import masked

if TYPE_CHECKING:
    from pykclient.network.sasl.token import OAuthToken

_SEPARATOR: Final = b"\x01"
_REFUSAL_LENGTH_MAX: Final = 300


class OAuthBearer(SaslMechanism):
    """The mechanism of one connection.

    It does not authenticate the broker. Without TLS the token can be read in transit.
    """

    name = "OAUTHBEARER"
    is_quick = True

    def __init__(self, token: OAuthToken) -> None:
        self.token = token
        self.user = token.principal

    def begin(self) -> bytes:
        pairs = (f"{name}={value}" for name, value in self.token.extensions.items())
        # No part of this is a variable of its own: tracebacks may show those.
        return _SEPARATOR.join(
            (
                b"n,,",
                b"auth=Bearer " + self.token.value.encoded(),
                *(pair.encode() for pair in pairs),
                b"",
                b"",
            )
        )

    def masked(self, text: str) -> str:
        return masked(text, [self.token.value])

    def respond(self, challenge: bytes) -> bytes | None:
        """Return None on success, or the message that ends a failed exchange.

        The broker sends the reason of a failure first and refuses after that message.
        """
        if self.refusal:
            raise AuthenticationError(f"the broker refused the token: {self.refusal}")
        if not challenge:
            return None
        self.refusal = self._reason(challenge)
        return _SEPARATOR

    def _reason(self, challenge: bytes) -> str:
        """Return the broker's reason in JSON: a status and perhaps the scope that it requires."""
        text = challenge.decode(errors="replace")
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict) and found:
            text = ", ".join(f"{name}={value}" for name, value in found.items())
        # A broker may send back the token, so it is masked before the text is cut.
        return printable(self.masked(text)[:_REFUSAL_LENGTH_MAX]) or "no reason"
