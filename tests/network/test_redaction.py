"""Secrets that servers send back, in any encoding, do not show."""

from __future__ import annotations

import base64
import html
import json
import urllib.parse
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.config.setting import Password
from pykclient.config.setting_text import HIDDEN
from pykclient.network.sasl.oauthbearer import OAuthBearer
from pykclient.network.sasl.plain import Plain
from pykclient.network.sasl.redaction import PIECE_LENGTH, masked
from pykclient.network.sasl.token import OAuthToken

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET: Final = 's3cr3t+/=pä"<x>'
BASIC: Final = f"id:{SECRET}"
TOKEN: Final = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSIsImV4cCI6MTIzNDU2Nzg5MH0.c2lnbmF0dXJl"


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def url_safe(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(sign):04x}" for sign in text)


ENCODINGS: Final[tuple[Callable[[str], str], ...]] = (
    str,
    str.upper,
    base64_of,
    url_safe,
    escaped,
    html.escape,
    json.dumps,
    urllib.parse.quote,
    urllib.parse.quote_plus,
    lambda text: urllib.parse.quote(text).lower(),
    lambda text: urllib.parse.quote(text, safe=""),
    lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    lambda text: text.encode().hex(),
    lambda text: text.encode().hex().upper(),
    lambda text: "&#" + ";&#".join(str(ord(sign)) for sign in text) + ";",
    lambda text: "\n".join(base64_of(text)[at : at + 5] for at in range(0, 60, 5)),
)


def shows(text: str, secret: str) -> bool:
    """Return whether a text has a part of a secret, as it is or encoded."""
    lowered = text.lower()
    parts = [secret[at : at + PIECE_LENGTH] for at in range(len(secret) - PIECE_LENGTH + 1)]
    return any(encode(part).lower() in lowered for part in parts for encode in ENCODINGS[4:])


@pytest.mark.parametrize("sent", [SECRET, BASIC, f"prefix {SECRET} suffix"])
@pytest.mark.parametrize("outer", [str, url_safe, urllib.parse.quote, json.dumps, html.escape])
@pytest.mark.parametrize("encode", ENCODINGS)
def test_no_encoding_of_a_secret_shows(
    encode: Callable[[str], str], outer: Callable[[str], str], sent: str
) -> None:
    sent_back = outer(encode(sent))
    for around in ("{}", "bad credentials: {}", "x{}x", "client 'id' sent {} and is unknown"):
        shown = masked(around.format(sent_back), [Password(SECRET)])
        assert shown == HIDDEN or SECRET.lower() not in shown.lower()
        if shown != HIDDEN:
            assert sent_back not in shown
            assert not shows(shown, SECRET)


def test_a_part_of_a_secret_is_hidden_like_all_of_it() -> None:
    for part in (SECRET[:-1], SECRET[1:], SECRET[: PIECE_LENGTH + 1]):
        assert masked(f"bad {part}", [Password(SECRET)]) == HIDDEN
        assert masked(f"bad {base64_of(part)}", [Password(SECRET)]) == HIDDEN


def test_a_secret_as_it_was_sent_is_replaced_in_a_text_that_stays() -> None:
    shown = masked(f"AADSTS7000215: invalid secret {SECRET} for app 'a'", [Password(SECRET)])
    assert shown == f"AADSTS7000215: invalid secret {HIDDEN} for app 'a'"


@pytest.mark.parametrize("secret", ["password1", "client-secret-of-mine"])
def test_words_of_the_server_itself_show(secret: str) -> None:
    text = "Authentication failed: Invalid username or password; check client_secret"
    assert masked(text, [Password(secret)]).lower() == text.lower().replace(secret.lower(), HIDDEN)


@given(st.text(max_size=300))
def test_a_text_without_a_secret_stays_as_it_is(text: str) -> None:
    assert masked(text, []) == masked(text, [Password("q7zx9!zx9!")]) == text


@given(st.binary(max_size=200))
def test_any_text_can_be_masked(data: bytes) -> None:
    text = data.decode("latin-1")
    assert masked(text, [Password(SECRET)]) in (text, HIDDEN)


def test_mechanisms_hide_what_they_have_sent() -> None:
    token = OAuthBearer(OAuthToken(TOKEN))
    assert token.masked(f"invalid {TOKEN}") == f"invalid {HIDDEN}"
    assert token.masked(f"invalid {urllib.parse.quote(base64_of(TOKEN))}") == HIDDEN
    assert token.masked("invalid_token: the audience is not kafka") == (
        "invalid_token: the audience is not kafka"
    )
    plain = Plain("alice", Password(SECRET))
    plain.begin()
    initial = base64_of(f"\0alice\0{SECRET}")
    assert plain.masked(f"cannot decode {initial}") == HIDDEN
    assert plain.masked("Authentication failed") == "Authentication failed"
