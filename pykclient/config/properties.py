"""Java's properties files, parsed as Java does.

Owner: no state.
Source: ``java.util.Properties``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.config.file_content import read_file
from pykclient.config.given_settings import from_text
from pykclient.config.setting import shown
from pykclient.errors.base import ConfigError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

FILE_BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest properties file that is read."""

_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


def read_properties(source: str | os.PathLike[str]) -> dict[str, str]:
    r"""Return the settings in a Java properties file: a path names a file, a str is its text.

    The syntax is Java's: comments (# and !), separators (=, : or white space), continued lines,
    escapes (\t, \n, \uXXXX); the last of equal keys wins. The file is UTF-8. The values are
    marked as text from this file: `pykclient.config.policy` limits what they may name.

    Raises:
        ConfigError: the file cannot be read, or a \u escape is malformed.
    """
    failure: ConfigError | None = None
    lines: Iterator[tuple[int, str]] = iter(())
    if isinstance(source, str):
        text, place = source, "properties"
        if text.strip() and "\n" not in text and not any(sign in text for sign in "=: "):
            raise ConfigError(
                f"{shown('', source)} holds no setting. To read a file, pass a pathlib.Path."
            )
    else:
        place = str(source)
        try:
            text = read_file(place, "it", bytes_max=FILE_BYTES_MAX).decode()
        except (ConfigError, UnicodeDecodeError) as error:
            reason = "it is not UTF-8." if isinstance(error, UnicodeDecodeError) else str(error)
            failure = ConfigError(f"Cannot read settings from {place}: {reason}")
            # Do not chain a decoder's error: its variables hold the file, and so does the error.
            failure.__cause__ = error if isinstance(error, ConfigError) else None
            text = ""
    try:
        if failure is None:
            lines = _logical_lines(text)
            found = dict(_entry(line, f"{place}, line {number}") for number, line in lines)
            return from_text(found, place)
    except ConfigError as error:
        failure = error
    # Tracebacks may show variables, which hold lines of the file here.
    failure.__context__ = None
    source = text = ""
    del lines
    raise failure.with_traceback(None)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield logical lines with their numbers, without comments and blank lines."""
    pending, start = "", 0
    # Java ends lines only at these; str.splitlines has more.
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        stripped = line.lstrip(" \t\f")
        if not pending and (not stripped or stripped[0] in "#!"):
            continue
        start = start if pending else number
        backslash_count = len(stripped) - len(stripped.rstrip("\\"))
        if backslash_count % 2:
            pending += stripped[:-1]
            continue
        yield start, pending + stripped
        pending = ""
    if pending:
        yield start, pending


def _entry(line: str, place: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=: \t\f":
        end += 2 if line[end] == "\\" else 1
    value = line[end:].lstrip(" \t\f")
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(" \t\f")
    return _unescaped(line[:end], place), _unescaped(value, place)


def _unescaped(text: str, place: str) -> str:
    if "\\" not in text:
        return text
    plain: list[str] = []
    signs = iter(text)
    for sign in signs:
        if sign != "\\":
            plain.append(sign)
            continue
        escaped = next(signs, "")
        if escaped == "u":
            plain.append(_code_unit("".join(next(signs, "") for _ in range(4)), place))
        else:
            plain.append({"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(escaped, escaped))
    try:
        # Java writes characters beyond U+FFFF as two escapes, the halves of a surrogate pair.
        return "".join(plain).encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ConfigError(f"{place}: half of a surrogate pair is missing.") from None


def _code_unit(digits: str, place: str) -> str:
    if len(digits) < 4 or not set(digits) <= _HEX_DIGITS:
        raise ConfigError(f"{place}: \\u{digits} is not an escape with four hex digits.")
    return chr(int(digits, 16))
