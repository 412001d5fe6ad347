"""PEM in settings, where line breaks may be missing or replaced by spaces.

A properties file joins continuation lines, and an environment variable often has a single line.
Java accepts both, while OpenSSL needs line breaks.

Owner: none; a function only.
Source: RFC 7468; Java class ``DefaultSslEngineFactory.PemParser`` (KIP-651).
"""

from __future__ import annotations

import re
from typing import Final

LINE_LENGTH: Final = 64

# A body with headers, as in an encrypted key of OpenSSL's old format, does not match.
_BLOCK: Final = re.compile(
    r"-----BEGIN (?P<label>[A-Z0-9 ]+)-----(?P<body>[A-Za-z0-9+/=\s]*)-----END (?P=label)-----"
)


def with_lines(pem: str) -> str:
    """Return PEM with line breaks around each block, and its base64 in lines of 64 characters."""
    return _BLOCK.sub(_laid_out, pem)


def _laid_out(block: re.Match[str]) -> str:
    body, label = "".join(block["body"].split()), block["label"]
    lines = [body[start : start + LINE_LENGTH] for start in range(0, len(body), LINE_LENGTH)]
    return "\n".join(["", f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])
