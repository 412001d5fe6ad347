"""Configuration providers: values that settings only refer to, as ``${env:KAFKA_PASSWORD}``.

What is shipped to other processes or written into files is the reference, so a secret is only where
it is used. ``config.providers=env`` names a provider, ``config.providers.env.class`` its class, and
``${env:NAME}`` or ``${file:/path/of.properties:key}`` in any value of text is replaced by what the
provider has. Without a provider of that name, the text stays as it is.

Owner: no state.
Source: Java classes ``ConfigTransformer``, ``EnvVarConfigProvider``, ``FileConfigProvider``,
``DirectoryConfigProvider``; KIP-297, KIP-421, KIP-887, KIP-993 (allowed paths). A key that a
provider does not have is an error here, where Java takes the reference itself for the value.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pykclient.config.properties import read_properties
from pykclient.config.setting import SecretText
from pykclient.config.unknown_keys import underscored
from pykclient.errors.base import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Look = Callable[[str, str], str | None]
    """Returns the value of a path and a key, None where there is none."""

PROVIDERS: Final = "config_providers"
REFERENCE: Final = re.compile(r"\$\{([^}:]*):(?:([^}:]*):)?([^}:]*)\}")


def with_providers(source: Mapping[Any, object]) -> Mapping[Any, object]:
    """Return settings with what their references mean, and without the providers' own settings.

    Raises:
        ConfigError: a provider cannot be used, or does not have a key; shows no value.
    """
    own = {
        underscored(key): value
        for key, value in source.items()
        if isinstance(key, str) and underscored(key).startswith(PROVIDERS)
    }
    if not own.get(PROVIDERS):
        return source
    lookups = {name: _provider(name, own) for name in _words(own[PROVIDERS])}
    found: dict[Any, object] = {}
    try:
        for key, value in source.items():
            if isinstance(key, str) and underscored(key).startswith(f"{PROVIDERS}_"):
                continue
            is_text = isinstance(value, str) and underscored(str(key)) != PROVIDERS
            found[key] = _replaced(str(key), str(value), lookups) if is_text else value
    except ConfigError:
        found.clear()  # tracebacks may show variables
        raise
    return {
        key: value if value is source[key] or not isinstance(value, str) else SecretText(value)
        for key, value in found.items()
    }


def _replaced(setting: str, text: str, lookups: Mapping[str, Look]) -> str:
    def value_of(reference: re.Match[str]) -> str:
        name, path, key = reference.group(1), reference.group(2) or "", reference.group(3)
        look = lookups.get(name)
        if look is None:
            return reference.group()
        value = look(path, key)
        if value is None:
            raise ConfigError(f"{setting}: {reference.group()} names nothing that is there.")
        return value

    return REFERENCE.sub(value_of, text) if REFERENCE.search(text) else text


def _provider(name: str, own: Mapping[str, object]) -> Look:
    prefix = f"{PROVIDERS}_{underscored(name)}_"
    dotted = f"config.providers.{name}"
    given = str(own.get(f"{prefix}class", ""))
    make = _CLASSES.get(given.rpartition(".")[2])
    if make is None:
        raise ConfigError(
            f"{dotted}.class is {given!r}; there are {', '.join(_CLASSES)} of "
            f"org.apache.kafka.common.config.provider."
        )
    return make(dotted, {k.removeprefix(f"{prefix}param_"): v for k, v in own.items()})


def _environment(name: str, parameters: Mapping[str, object]) -> Look:
    pattern = str(parameters.get("allowlist_pattern", ".*"))
    try:
        allowed = re.compile(pattern)
    except re.error as error:
        raise ConfigError(
            f"{name}.param.allowlist.pattern is {pattern!r}, which is no regular expression: "
            f"{error}."
        ) from None

    def look(path: str, key: str) -> str | None:
        return os.environ.get(key) if not path and allowed.fullmatch(key) else None

    return look


def _file(name: str, parameters: Mapping[str, object]) -> Look:
    folders = _folders(parameters)

    def look(path: str, key: str) -> str | None:
        return read_properties(_allowed(name, path, folders)).get(key)

    return look


def _directory(name: str, parameters: Mapping[str, object]) -> Look:
    folders = _folders(parameters)

    def look(path: str, key: str) -> str | None:
        file = _allowed(name, path, folders) / key
        try:
            return file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
            failure = ConfigError(f"{name}: {file} cannot be read: {reason}.")
        raise failure

    return look


def _allowed(name: str, path: str, folders: list[Path]) -> Path:
    found = Path(path).resolve()
    if not path or (folders and not any(found.is_relative_to(each) for each in folders)):
        raise ConfigError(f"{name}: {path!r} is not in {name}.param.allowed.paths.")
    return found


def _folders(parameters: Mapping[str, object]) -> list[Path]:
    return [Path(each).resolve() for each in _words(parameters.get("allowed_paths", ""))]


def _words(value: object) -> list[str]:
    words = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, (list, tuple)):
        raise ConfigError("config.providers is a list of names, or a string with commas.")
    return [str(word).strip() for word in words if str(word).strip()]


_CLASSES: Final[dict[str, Callable[[str, Mapping[str, object]], Look]]] = {
    "EnvVarConfigProvider": _environment,
    "FileConfigProvider": _file,
    "DirectoryConfigProvider": _directory,
}
