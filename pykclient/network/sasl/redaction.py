"""Redaction: what a server says, without the secrets that it was sent.

A server may send a secret back, in the form in which it came or in another: percent-encoded, in
JSON or HTML, in hexadecimal digits or base64, alone or within a header. The text is read in each of
these encodings, also one within another. If a secret, or a part of one, is in it then, nothing of
the text shows.

Owner: none; functions only.
Source: ours.
"""

from __future__ import annotations

import re
from base64 import b64decode
from html import unescape
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, quote_plus, unquote_plus

from pykclient.config.setting_text import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pykclient.config.setting import Password

PIECE_LENGTH: Final = 8
"""Characters of a secret that show nowhere, one after the other."""

SECRET_LENGTH_MIN: Final = 4
"""A shorter secret is replaced where it stands as it is; in encodings it would be anywhere."""

TEXT_LENGTH_MAX: Final = 4_000
"""Characters of a text that are read, twice as many as an error shows."""

FORMS_MAX: Final = 100
"""Forms in which a text is read."""

_COMMON: Final = (
    "authentication failed: invalid username or password. invalid_client client_secret "
    "client-secret invalid client secret. unauthorized access_token refresh_token "
    "client_assertion credentials"
)
"""Words of servers themselves: with the password ``password1`` they are no part of a secret."""

_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_LETTERS: Final = dict(zip("bfnrt", "\b\f\n\r\t", strict=True))
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{8,}")
_HEXADECIMAL: Final = re.compile(r"(?:[0-9A-Fa-f]{2}){4,}")
_URL_SAFE: Final = str.maketrans("-_", "+/")


def masked(text: str, secrets: Iterable[Password]) -> str:
    """Return a text of a server with secrets hidden.

    A secret in the form in which it was sent is replaced, whatever stands around it. If another
    form of one is in the text, all of it is hidden. The text may be cut afterwards, not before: a
    part of a secret might not be found.
    """
    found = [secret.value for secret in secrets if secret.value]
    if not found:
        return text
    plain = {form for each in found for form in (each, quote_plus(each), quote(each))}
    for form in sorted(plain, key=len, reverse=True):
        text = text.replace(form, HIDDEN)
    text = text[:TEXT_LENGTH_MAX]
    lowered = [each.lower() for each in found if len(each) >= SECRET_LENGTH_MIN]
    pieces = frozenset(piece for each in lowered for piece in _pieces(each, PIECE_LENGTH))
    pieces -= _pieces(_COMMON, PIECE_LENGTH)
    lengths = {min(len(each), PIECE_LENGTH) for each in lowered}
    for form in _forms(text):
        if any(not pieces.isdisjoint(_pieces(form.lower(), length)) for length in lengths):
            return HIDDEN
    return text


def _pieces(text: str, length: int) -> set[str]:
    """Return each part of this length; a shorter text is one itself."""
    return {text[at : at + length] for at in range(max(1, len(text) - length + 1))}


def _forms(text: str) -> Iterator[str]:
    """Yield a text, and what it is in each encoding, one within another."""
    forms = [text]
    seen = {text}
    for form in forms:  # which grows meanwhile
        yield form
        for decoded in _decoded(form):
            if decoded and decoded not in seen and len(forms) < FORMS_MAX:
                seen.add(decoded)
                forms.append(decoded)


def _decoded(text: str) -> Iterator[str]:
    yield unquote_plus(text)
    if "\\" in text:
        yield (
            _ESCAPE.sub(_unescaped, text)
            .encode("utf-16", "surrogatepass")
            .decode("utf-16", "replace")
        )
    if "&" in text:
        yield unescape(text)
    yield "".join(text.split())  # base64 may be in lines
    runs = [each.translate(_URL_SAFE) for each in _BASE64.findall(text)]
    for start in range(4):  # other text may stand right before it
        yield " ".join(_from_base64(run[start:]) for run in runs)
    for start in range(2):
        digits = _HEXADECIMAL.findall(text[start:])
        yield " ".join(bytes.fromhex(each).decode("utf-8", "replace") for each in digits)


def _from_base64(text: str) -> str:
    whole = text[: len(text) // 4 * 4]
    rest = text[len(whole) :]
    if len(rest) > 1:
        whole += rest + "=" * (4 - len(rest))
    return b64decode(whole).decode("utf-8", "replace")


def _unescaped(escape: re.Match[str]) -> str:
    digits = escape[1] or escape[2]
    return chr(int(digits, 16)) if digits else _LETTERS.get(escape[3], escape[3])
