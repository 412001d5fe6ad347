"""Unsigned tokens made by the client, which only brokers in tests accept.

Owner: no state.
Source: RFC 7515, appendix A.5 (``alg`` none); Java class
``OAuthBearerUnsecuredLoginCallbackHandler``.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING

from pykclient.config.setting import Password
from pykclient.network.sasl.token import OAuthToken, wall_ms

if TYPE_CHECKING:
    from pykclient.config.unsecured_token import UnsecuredToken


class UnsecuredTokens:
    """A source of unsigned tokens, each valid for a fixed lifetime."""

    def __init__(self, content: UnsecuredToken, name: str) -> None:
        self.name = name
        self._content = content

    def fetch(self) -> OAuthToken:
        content = self._content
        now_ms = wall_ms()
        expires_ms = now_ms + round(content.lifetime_s * 1000)
        claims = {**content.claims, "iat": now_ms / 1000, "exp": expires_ms / 1000}
        text = f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."
        return OAuthToken(Password(text), expires_ms, content.principal, content.extensions)


def _encoded(value: dict[str, object]) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
