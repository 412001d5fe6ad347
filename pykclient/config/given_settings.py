"""Settings as a caller passes them: text gets its origin, and secrets are hidden from `repr`.

Loggers and error collectors may show the variables of every function that an error passed. A value
is therefore hidden unless its name is known not to be secret: a misspelled name (``sasl_pasword``)
may have a secret.

Owner: no state.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any, Final

from pykclient.config.policy import Policy
from pykclient.config.setting import is_secret
from pykclient.config.setting_text import HIDDEN, Origin, SecretText, SettingText, origin_of
from pykclient.config.unknown_keys import is_known

_UNREAD: Final = (bytes, bytearray, memoryview, Mapping, list, tuple, Set)
"""Types that no secret setting accepts."""

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.config.client import ClientConfig


def from_text(
    settings: Mapping[str, str],
    place: str,
    *,
    process: str = "this process",
    is_known: Callable[[str], bool] = is_known,
) -> dict[str, str]:
    """Return settings with text values from a place; possible secrets become `SecretText`.

    `place` and `process` are for messages; `is_known(key)` says whether any client has the key. The
    text is subject to this process's policy, unless it has an origin already.
    """
    entered = Origin(place, Policy.of_process(), process)
    return {
        key: (SettingText if is_known(key) and not is_secret(key) else SecretText)(
            value, origin_of(value) or entered
        )
        for key, value in settings.items()
    }


class Hidden:
    """A value of a type that no secret setting accepts; its `repr` is `<hidden>`.

    The setting is refused, and the message does not need the value.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN


def hidden(settings: Any, config: type[ClientConfig]) -> Any:
    """Return a copy of a mapping that hides possible secrets.

    Text becomes `SecretText`, and values that the client cannot parse become `Hidden`. `config` is
    the client's config class. Anything but a mapping is returned unchanged.
    """
    if not isinstance(settings, Mapping):
        return settings
    return {
        key: _hidden(value, str(key), config) if _may_be_secret(str(key), config) else value
        for key, value in settings.items()
    }


def _hidden(value: Any, key: str, config: type[ClientConfig]) -> Any:
    if isinstance(value, str):
        is_hidden = isinstance(value, SecretText)
        return value if is_hidden else SecretText(str.__str__(value), origin_of(value))
    # Under a known name, an object may be a source of secrets.
    is_read = config.setting_of(key) is not None and not isinstance(value, _UNREAD)
    return value if value is None or is_read else Hidden()


def _may_be_secret(key: str, config: type[ClientConfig]) -> bool:
    if is_secret(key):
        return True
    # Check other clients last: their configs must be imported.
    return config.setting_of(key) is None and not is_known(key)
