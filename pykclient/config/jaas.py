"""Java's login configuration in one setting, ``sasl.jaas.config``, with user names and passwords.

Its form is ``MODULE required key="value" ...;``. Errors name the place and the key, and never show
a value.

Owner: no state.
Source: ``javax.security.auth.login.Configuration``; Java class ``JaasConfig``.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(
    r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([=;])|([^\s"'=;]+))""", re.DOTALL
)
"""A word, or text in quotation marks of either kind, as Java's ``StreamTokenizer`` reads it."""
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
"""Escapes of Java's ``StreamTokenizer``, which are those of C."""
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")


class JaasConfig(NamedTuple):
    """One login module with its options."""

    module: str
    options: dict[str, str]


def parse_jaas(text: str) -> JaasConfig:
    """Parse the login configuration of one module.

    Raises:
        ValueError: it is malformed. The text says what is missing and shows no value.
    """
    words = _words(text)
    if not words or words[-1] != (";", True):
        raise ValueError("It must end with a semicolon.")
    if len(words) < 3 or words[0][1] or words[1] != (words[1][0], False):
        raise ValueError("It must begin with a login module and a control flag.")
    module, flag = words[0][0], words[1][0].lower()
    if flag not in _FLAGS:
        raise ValueError(f"After the login module, it needs one of {', '.join(_FLAGS)}.")
    rest = words[2:-1]
    if ("=", True) in rest[0::3] or (";", True) in rest or len(rest) % 3:
        raise ValueError('Options are written as name="value", and only one module is supported.')
    options: dict[str, str] = {}
    for index in range(0, len(rest), 3):
        name, sign, value = rest[index : index + 3]
        if sign != ("=", True) or value[1]:
            raise ValueError('Options are written as name="value".')
        options[name[0]] = value[0]
    return JaasConfig(module, options)


def _words(text: str) -> list[tuple[str, bool]]:
    """Return the words, each with True if it is a sign of the grammar."""
    found: list[tuple[str, bool]] = []
    end, last = 0, len(text.rstrip())
    while end < last:
        match = _TOKEN.match(text, end)
        if match is None:
            raise ValueError("A quotation mark is not closed.")
        double, single, sign, plain = match.groups()
        quoted = single if double is None else double
        if quoted is not None:
            found.append((_ESCAPE.sub(_unescaped, quoted), False))
        else:
            found.append((sign or plain, sign is not None))
        end = match.end()
    return found


def _unescaped(match: re.Match[str]) -> str:
    sign = match[1]
    return chr(int(sign, 8)) if sign[0] in "01234567" else _ESCAPED.get(sign, sign)
