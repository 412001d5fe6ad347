"""A source of tokens that Spark's options name: the module that the session's driver allows."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode

LIFETIME_S = 600


class Provider:
    """Makes tokens without a signature, for brokers of tests."""

    def token(self) -> tuple[str, float]:
        """Return a token and when it expires, as `oauth_cb` does."""
        expires_s = time.time() + LIFETIME_S
        return (
            f"{_encoded({'alg': 'none'})}.{_encoded({'sub': 'alice', 'exp': expires_s})}.",
            expires_s,
        )


def _encoded(part: dict[str, object]) -> str:
    return urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
