"""Configuration providers: values that settings refer to, such as ``${env:KAFKA_PASSWORD}``.

Only the reference is sent to other processes or written to files, so a secret exists only where it
is used. ``config.providers=env`` names a provider and ``config.providers.env.class`` its class.
``${env:NAME}`` or ``${file:/path/of.properties:key}`` in any text value is replaced by the
provider's value. Without a provider of that name, the text stays as it is.

The policy limits what a reference in text (`pykclient.config.setting_text`), or from a provider
that text defines, may read. The value counts as text itself, whatever refers to it.

Owner: no state.
Source: Java classes ``ConfigTransformer``, ``EnvVarConfigProvider``, ``FileConfigProvider``,
``DirectoryConfigProvider``; KIP-297, KIP-421, KIP-887, KIP-993 (allowed paths). A missing key is an
error here, while Java uses the reference itself as the value.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pykclient.config.policy import Policy, Reach
from pykclient.config.properties import read_properties
from pykclient.config.setting_text import Origin, SecretText, origin_of
from pykclient.config.unknown_keys import underscored
from pykclient.errors.base import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Look = Callable[[str, str], str | None]
    """Returns the value at a path and key, or None."""
    Place = Callable[[str, str], tuple[Reach, str]]
    """Returns the variable or file that a path and key name."""


class Provider(NamedTuple):
    """One configuration provider."""

    kind: str
    """Simple name of Java's class."""
    look: Look
    place: Place
    origins: tuple[Origin, ...]
    """Origins of the provider's own settings that come from text."""


PROVIDERS: Final = "config_providers"
ENVIRONMENT: Final = "EnvVarConfigProvider"
FILE: Final = "FileConfigProvider"
DIRECTORY: Final = "DirectoryConfigProvider"
REFERENCE: Final = re.compile(r"\$\{([^}:]*):(?:([^}:]*):)?([^}:]*)\}")


def with_providers(source: Mapping[Any, object]) -> Mapping[Any, object]:
    """Return settings with references replaced, and without the providers' own settings.

    Raises:
        ConfigError: a provider cannot be used, or lacks a key. The text shows no value.
    """
    own = {
        underscored(key): value
        for key, value in source.items()
        if isinstance(key, str) and underscored(key).startswith(PROVIDERS)
    }
    if not own.get(PROVIDERS):
        return source
    providers = {name: _provider(name, own) for name in _words(own[PROVIDERS])}
    found: dict[Any, object] = {}
    try:
        for key, value in source.items():
            if isinstance(key, str) and underscored(key).startswith(f"{PROVIDERS}_"):
                continue
            is_text = isinstance(value, str) and underscored(str(key)) != PROVIDERS
            found[key] = _replaced(str(key), value, providers) if is_text else value
    except ConfigError:
        found.clear()  # tracebacks may show variables
        raise
    return found


def _replaced(setting: str, text: Any, providers: Mapping[str, Provider]) -> str:
    """Return a text with its references replaced; the result is marked as text from them."""
    found = [each for each in REFERENCE.finditer(text) if each.group(1) in providers]
    if not found:
        return text  # type: ignore[no-any-return]
    origin = origin_of(text)
    for each in found:
        _check(setting, each, providers[each.group(1)], origin)

    def value_of(reference: re.Match[str]) -> str:
        name, path, key = _parts(reference)
        if name not in providers:
            return reference.group()
        value = providers[name].look(path, key)
        if value is None:
            raise ConfigError(
                f"{setting}: {reference.group()} does not exist. Set the variable, or add the key "
                "to the file; the provider's allowlist.pattern may also exclude it."
            )
        return value

    references = ", ".join(dict.fromkeys(each.group() for each in found))
    value_origin = (
        Origin(references, Policy.of_process(), is_secret=True)
        if origin is None
        else origin._replace(place=f"{references} in {origin.place}", is_secret=True)
    )
    return SecretText(REFERENCE.sub(value_of, str(text)), value_origin)


def _check(
    setting: str, reference: re.Match[str], provider: Provider, origin: Origin | None
) -> None:
    """Raise `ConfigError` if text refers to something that its policy refuses."""
    _, path, key = _parts(reference)
    for each in (*([] if origin is None else [origin]), *provider.origins):
        named = [(Reach.CONFIG_PROVIDER, provider.kind), provider.place(path, key)]
        if complaint := each.complaint(named):
            raise ConfigError(f"{setting}: {reference.group()}: {complaint}")


def _parts(reference: re.Match[str]) -> tuple[str, str, str]:
    """Return a provider's name, a path (may be empty), and a key."""
    return reference.group(1), reference.group(2) or "", reference.group(3)


def _provider(name: str, own: Mapping[str, object]) -> Provider:
    prefix = f"{PROVIDERS}_{underscored(name)}_"
    dotted = f"config.providers.{name}"
    given = str(own.get(f"{prefix}class", ""))
    kind = given.rpartition(".")[2]
    if kind not in _CLASSES:
        raise ConfigError(
            f"{dotted}.class is {given!r}; use one of {', '.join(_CLASSES)} of "
            f"org.apache.kafka.common.config.provider."
        )
    make, place = _CLASSES[kind]
    look = make(dotted, {k.removeprefix(f"{prefix}param_"): v for k, v in own.items()})
    settings = [own[PROVIDERS], *(v for k, v in own.items() if k.startswith(prefix))]
    origins = dict.fromkeys(each for v in settings if (each := origin_of(v)) is not None)
    return Provider(kind, look, place, tuple(origins))


def _environment(name: str, parameters: Mapping[str, object]) -> Look:
    pattern = str(parameters.get("allowlist_pattern", ".*"))
    try:
        allowed = re.compile(pattern)
    except re.error as error:
        raise ConfigError(
            f"{name}.param.allowlist.pattern is {pattern!r}, not a regular expression: {error}."
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
        folder = _allowed(name, path, folders)
        # An entry of the folder may be a link, as in Kubernetes, but not to a place outside it.
        file = _resolved(folder / key)
        is_name = key not in ("", ".", "..") and not any(sign in key for sign in ("/", "\\", "\0"))
        if not is_name or file is None or not file.is_relative_to(folder):
            raise ConfigError(
                f"{name}: {key!r} is not the name of a file in {path!r}; a key is a plain file "
                f"name, and a link must stay inside the folder."
            )
        try:
            return file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            failure = ConfigError(f"{name}: {file} cannot be read: {reason}.")
        raise failure

    return look


def _allowed(name: str, path: str, folders: list[Path]) -> Path:
    found = _resolved(Path(path))
    if (
        not path
        or found is None
        or (folders and not any(found.is_relative_to(each) for each in folders))
    ):
        raise ConfigError(f"{name}: {path!r} is not in {name}.param.allowed.paths.")
    return found


def _resolved(path: Path) -> Path | None:
    """Return a path without links; None if it is invalid, as with a NUL or circular links."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return None


def _folders(parameters: Mapping[str, object]) -> list[Path]:
    return [Path(each).resolve() for each in _words(parameters.get("allowed_paths", ""))]


def _words(value: object) -> list[str]:
    words = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, (list, tuple)):
        raise ConfigError("config.providers must be a list of names, or a string with commas.")
    return [str(word).strip() for word in words if str(word).strip()]


_CLASSES: Final[dict[str, tuple[Callable[[str, Mapping[str, object]], Look], Place]]] = {
    ENVIRONMENT: (_environment, lambda path, key: (Reach.VARIABLE, key)),
    FILE: (_file, lambda path, key: (Reach.FILE, path)),
    DIRECTORY: (
        _directory,
        lambda path, key: (Reach.FILE, os.path.join(path, key)),
    ),
}
