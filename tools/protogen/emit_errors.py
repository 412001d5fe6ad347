"""Writes `errors/broker.py`: one class per broker error code, and the way from code to error."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from tools.protogen.error_texts import FATAL, KIND, NOT_WRITTEN, REFUSALS, RENAMED, TEXTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.protogen.jar import ErrorFacts

_WIDTH = 96  # of a docstring's text
_HEAD = """
from __future__ import annotations

from pykclient.errors.base import (
    BrokerError,
    GroupRebalancedError,
    RetriableError,
    UnsupportedVersionError,
)
from pykclient.errors.text import printable
"""
_TAIL = '''

def error_for_code(code: int, message: str | None = None) -> BrokerError:
    """Return the error for a broker's error code, ready to be raised.

    `message` is the broker's own message or the place of the error, None if there is nothing to
    add. A code that Kafka 4.4 does not have gives a plain `BrokerError` that names it.
    """
    assert code != 0, "0 means that there is no error"
    message = message and printable(message)
    kind = _BY_CODE.get(code)
    if kind is None:
        error = BrokerError(_text(f"error code {code}, which this client does not know", message))
        error.code = code
        error.name = f"UNKNOWN_CODE_{code}"
        return error
    explanation = " ".join((kind.__doc__ or "").split())
    return kind(_text(f"{kind.name} (error code {code})", message, explanation))


def _text(head: str, *parts: str | None) -> str:
    sentences = (part.rstrip(".") for part in parts if part)
    return ": ".join(filter(None, (head, ". ".join(sentences))))
'''


def class_name(error: str) -> str:
    """``NOT_LEADER_OR_FOLLOWER`` as ``NotLeaderOrFollowerError``."""
    if error in RENAMED:
        return RENAMED[error]
    stem = error.removesuffix("_ERROR").removesuffix("_EXCEPTION")
    return "".join(word.capitalize() for word in stem.split("_")) + "Error"


def emit_errors(errors: Sequence[ErrorFacts], banner: str) -> str:
    """Return the source of `errors/broker.py`.

    Raises:
        KeyError: a code has no explanation in `error_texts`.
    """
    names = sorted(class_name(error.name) for error in errors)
    lines = [banner, _HEAD, "__all__ = ["]
    lines += [f'    "{name}",' for name in names]
    lines += ['    "error_for_code",', "]"]
    for error in errors:
        lines += _class(error)
    lines += ["", "", "_BY_CODE: dict[int, type[BrokerError]] = {", "    kind.code: kind"]
    lines += ["    for kind in ("]
    lines += [f"        {class_name(error.name)}," for error in errors]
    lines += ["    )", "}", _TAIL]
    return "\n".join(lines)


def _class(error: ErrorFacts) -> list[str]:
    bases = "BrokerError"
    if error.name in KIND:
        bases += ", " + KIND[error.name]
    if error.is_retriable:
        bases += ", RetriableError"
    flags = {
        "refresh_metadata": error.is_metadata_stale,
        "fatal": error.name in FATAL,
        "is_refusal": error.name in REFUSALS,
        "not_written": error.name in NOT_WRITTEN,
    }
    return [
        "",
        "",
        f"class {class_name(error.name)}({bases}):",
        *_docstring(TEXTS[error.name]),
        "",
        f"    code = {error.code}",
        f'    name = "{error.name}"',
        *(f"    {flag} = True" for flag, is_set in flags.items() if is_set),
    ]


def _docstring(text: str) -> list[str]:
    """Quote `text` in one line, or its first sentence and the rest apart."""
    quoted = f'"""{text}"""'
    first, _, rest = text.partition(". ")
    if len(quoted) > _WIDTH:
        assert rest, f"one sentence, and too long: {text}"
        assert len(first) < _WIDTH - 3, f"the first sentence is too long: {first}"
        lines = [f'"""{first}.', "", *textwrap.wrap(rest, _WIDTH), '"""']
    else:
        lines = [quoted]
    return [f"    {line}" if line else "" for line in lines]
