"""The pattern of `subscribePattern`, which finds topics by their names in a bounded time.

Whoever may write SQL writes the pattern. In the engine of `re`, which goes back and forth, a short
pattern such as ``(a*)*b`` takes hours for one name. So names are matched by RE2, which Arrow
has, and whose time grows with the length of a name alone. A pattern that RE2 lacks, such as one
with a lookahead, is matched by `re` if it repeats little; another one is refused.

Owner: no state.
Source: Java class ``SubscribePatternStrategy`` of Spark, which uses ``java.util.regex``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pykclient.errors import ConfigError
from spark_connector.java_pattern import python_pattern

if TYPE_CHECKING:
    from collections.abc import Collection

LENGTH_MAX: Final = 10_000
"""Characters of a pattern."""
REPEATS_MAX: Final = 3
"""Signs that repeat, in a pattern that RE2 lacks. The time grows with the length of a name with
each, and without a limit if a group that repeats is repeated."""

_REPEATS: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\(\?|[*+?{]", re.DOTALL)
_REPEATED_GROUP: Final = re.compile(r"\)[*+{]")
_BACK_REFERENCE: Final = re.compile(r"\\[1-9]|\(\?P=")
_OTHER_IN_RE2: Final = re.compile(r"\[:|\{,|\\[CQzpPhHvVKRX]|\(\?[a-zA-Z-]*[UuLa]")
"""Parts that RE2 reads differently, or that `re` does not have."""


def checked_pattern(text: str) -> str:
    """Translate a Java pattern for `re`, and check it.

    Raises:
        ConfigError: the pattern is invalid, or may take long to match.
    """
    if not text:
        raise ConfigError("Option 'subscribePattern' is empty: '.*' is every topic.")
    if len(text) > LENGTH_MAX:
        raise ConfigError(
            f"Option 'subscribePattern' has {len(text)} characters, and {LENGTH_MAX} are the "
            f"maximum; give the topics in option 'subscribe'."
        )
    try:
        pattern = python_pattern(text)
        re.compile(pattern)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise ConfigError(f"Option 'subscribePattern' is no pattern: {error}.") from error
    if not _is_of_re2(pattern):
        _check_repeats(pattern)
    return pattern


def found_in(pattern: str, names: Collection[str]) -> list[str]:
    """Return the names in which a checked pattern is found."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if _is_of_re2(pattern):
        listed = pa.array(list(names), pa.string())
        found = listed.filter(pc.match_substring_regex(listed, pattern))
        return [str(name) for name in found.to_pylist()]
    search = re.compile(pattern).search
    return [name for name in names if search(name)]


def _is_of_re2(pattern: str) -> bool:
    if _OTHER_IN_RE2.search(pattern):
        return False
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.match_substring_regex(pa.array(["a"]), pattern)
    except pa.ArrowInvalid:
        return False
    return True


def _check_repeats(pattern: str) -> None:
    repeats = [each for each in _REPEATS.findall(pattern) if each in "*+?{"]
    if (
        len(repeats) > REPEATS_MAX
        or _REPEATED_GROUP.search(pattern)
        or (repeats and _BACK_REFERENCE.search(pattern))
    ):
        raise ConfigError(
            f"Option 'subscribePattern' may take long to match. A pattern with a lookahead, a "
            f"lookbehind or a possessive sign has at most {REPEATS_MAX} of the signs * + ? and "
            f"{{, none of * + {{ behind a group, and none beside references to groups. Leave "
            f"those parts out, or give the topics in option 'subscribe'."
        )
