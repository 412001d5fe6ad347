"""Echo: masks secrets in messages that repeat words of the command line.

Messages repeat the words they complain about: an unknown option, a missing file, an invalid choice.
Such a word may be a misplaced setting, as in ``pykclient topics -X sasl.password=SECRET list`` or
after a missing quotation mark.

Owner: none, it is immutable.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pykclient.config.setting import SHOWN_LENGTH_MAX, is_secret, without_user
from pykclient.config.setting_text import HIDDEN
from pykclient.config.unknown_keys import is_known

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SETTING_OPTIONS: Final = ("-X", "-x", "--config")
"""Options followed by a setting; -x is a likely mistake."""

_SETTING: Final = re.compile(
    r"(?P<key>(?:-X|-x|--config=)?-*[A-Za-z][\w.-]*)(?P<sign>[\s\"']*[=:\s][\s\"']*)(?P<value>.+)",
    re.DOTALL,
)
_NAME: Final = re.compile(r"(?:-X|-x|--config=)?-*([A-Za-z][\w.-]*)")
_SIGNS: Final = ("=", ":")


class Echo:
    """The words of a command line, and their form in messages."""

    def __init__(self, words: Sequence[str] = ()) -> None:
        shown = {word: text for word, text in _shown(words) if text != word}
        # A message may be joined to one line.
        shown |= {" ".join(word.split()): text for word, text in shown.items()}
        # The longest first: one may be part of another.
        self._shown = sorted(shown.items(), key=lambda pair: -len(pair[0]))

    def masked(self, message: str) -> str:
        """Return a message without the secrets in the words that it repeats."""
        for word, text in self._shown:
            message = message.replace(repr(word), repr(text))
            for cut in (repr(word)[:SHOWN_LENGTH_MAX], word[:SHOWN_LENGTH_MAX]):
                if len(cut) == SHOWN_LENGTH_MAX:
                    message = message.replace(cut, text)
            # A short secret is masked only as a whole word.
            text = text.replace("\\", r"\\")
            message = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", text, message)
        return message


def _shown(words: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Yield each word with its text for messages."""
    is_value = False
    option = ""
    for word in words:
        if is_value and not word.startswith("-"):
            if word in _SIGNS:
                continue
            yield word, HIDDEN
        else:
            yield word, _without_value(word, is_setting=option in SETTING_OPTIONS)
        is_value = _has_value_behind(word, is_setting=option in SETTING_OPTIONS)
        option = word


def _without_value(word: str, *, is_setting: bool) -> str:
    found = _SETTING.fullmatch(word)
    if found is None:
        return without_user(word)
    key = _name_in(found["key"])
    may_be_secret = is_secret(key) or (
        not is_known(key) and (is_setting or found["sign"].strip() == "=")
    )
    return f"{found['key']}{found['sign']}{HIDDEN}" if may_be_secret else without_user(word)


def _has_value_behind(word: str, *, is_setting: bool) -> bool:
    """Return whether the next word may be the value of a setting that this word names."""
    name = _NAME.fullmatch(word.rstrip("=:"))
    if word in SETTING_OPTIONS or name is None:
        return False
    return is_setting or (is_secret(name[1]) and is_known(name[1]))


def _name_in(text: str) -> str:
    found = _NAME.fullmatch(text)
    return text if found is None else found[1]
