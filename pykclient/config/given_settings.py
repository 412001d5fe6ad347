"""Settings as they are given: text gets its origin, and what may be a secret a `repr` without it.

An error may be shown with the variables of each function that it passed, as loggers and services
that collect errors do. A value is hidden there unless its name is known to be no secret's: under a
misspelled name (``sasl_pasword``) there may be one.

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
"""Types that no setting with a secret takes."""

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
    """Return settings whose values are text from a place; what may be a secret is `SecretText`.

    `place` and `process` are for messages, and `is_known` says of a key whether something has it.
    The text is under the policy of this process; text that has an origin keeps it.
    """
    entered = Origin(place, Policy.of_process(), process)
    return {
        key: (SettingText if is_known(key) and not is_secret(key) else SecretText)(
            value, origin_of(value) or entered
        )
        for key, value in settings.items()
    }


class Hidden:
    """A value of a type that no secret setting has; what shows it, shows `<hidden>`.

    The setting is refused, and the value is not needed for the reason.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN


def hidden(settings: Any, config: type[ClientConfig]) -> Any:
    """Return a copy of a mapping that does not show what may be a secret.

    Text is `SecretText`, and any other value that the client cannot read `Hidden`. `config` is that
    of the client. Anything but a mapping is returned as it is.
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
    # Under a known name an object may be a source of secrets.
    is_read = config.setting_of(key) is not None and not isinstance(value, _UNREAD)
    return value if value is None or is_read else Hidden()


def _may_be_secret(key: str, config: type[ClientConfig]) -> bool:
    if is_secret(key):
        return True
    # What other clients have is looked for last: their configs have to be imported.
    return config.setting_of(key) is None and not is_known(key)
