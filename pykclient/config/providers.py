"""Configuration providers: values that settings refer to, such as ``${env:KAFKA_PASSWORD}``.

Only the reference is sent to other processes or written to files, so a secret exists only where it
is used. ``config.providers=env`` names a provider and ``config.providers.env.class`` its class.
``${env:NAME}`` or ``${file:/path/of.properties:key}`` in any text value is replaced by the
provider's value. Without a provider of that name, the text stays as it is, as in Java, and
`undefined` returns a warning of it: a broker would get the reference as the password.

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
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pykclient.config.file_content import read_file
from pykclient.config.policy import Policy, Reach
from pykclient.config.properties import read_properties
from pykclient.config.references import references
from pykclient.config.setting import shown
from pykclient.config.setting_text import Origin, SecretText, origin_of
from pykclient.config.unknown_keys import underscored
from pykclient.errors.base import ConfigError
from pykclient.errors.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pykclient.config.references import Reference

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

STANDARD_PROVIDERS: Final = {"env": ENVIRONMENT, "file": FILE, "dir": DIRECTORY}
"""Configuration providers by the names that references usually have."""

NAME_LENGTH_MAX: Final = 100
UNDEFINED_MAX: Final = 3
"""Unknown providers of one setting that a warning names."""
PROVIDERS_MAX: Final = 100
"""Configuration providers of one client."""
RESOLVED_LENGTH_MAX: Final = 1_000_000
"""Characters of a value with what its references mean. A few bytes may refer to a whole file."""
FILE_BYTES_MAX: Final = 1_000_000
"""The largest file of a folder that is read."""
PATTERN_LENGTH_MAX: Final = 1_000
REPEATS_MAX: Final = 3
"""Signs that repeat or, beside groups, choose, in a pattern from text. The time to match grows by
the length of a name with each, and without a limit where what is repeated repeats itself."""
VARIABLE_LENGTH_MAX: Final = 255
"""Characters of the name of a variable that is compared with a pattern."""

_CLASS_PREFIX: Final = "org.apache.kafka.common.config.provider."
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,29}")
"""Name of a provider that a warning may show. Other text before a colon is more likely to be a part
of a password."""
_REPEATS: Final = re.compile(r"\\.|\(\?|[*+?{|]", re.DOTALL)
_REPEATED_GROUP: Final = re.compile(r"\)[*+?{]")
_BACK_REFERENCE: Final = re.compile(r"\\[0-9]|\(\?P=")


def providers_of(*sources: Mapping[Any, object]) -> Mapping[str, Provider]:
    """Return the providers that the mappings of one client define together, by name.

    Raises:
        ConfigError: a provider cannot be used, or is not listed in ``config.providers``.
    """
    spelled = {
        underscored(key): (key, value)
        for source in sources
        for key, value in source.items()
        if isinstance(key, str) and underscored(key).startswith(PROVIDERS)
    }
    own = {name: value for name, (_, value) in spelled.items()}
    names = dict.fromkeys(_words(own.get(PROVIDERS) or ""))
    if len(names) > PROVIDERS_MAX:
        raise ConfigError(
            f"config.providers has {len(names)} names, and {PROVIDERS_MAX} are the most."
        )
    prefixes = tuple(f"{PROVIDERS}_{underscored(name)}_" for name in names)
    for name, (key, _) in spelled.items():
        if name.startswith(f"{PROVIDERS}_") and not name.startswith(prefixes):
            raise ConfigError(
                f"{printable(key, NAME_LENGTH_MAX)} is for a provider that config.providers does "
                f"not list; add the provider's name there, or correct it."
            )
    return {name: _provider(name, own) for name in names}


def with_providers(
    source: Mapping[Any, object], providers: Mapping[str, Provider]
) -> Mapping[Any, object]:
    """Return settings with references replaced, and without the providers' own settings.

    Raises:
        ConfigError: a provider lacks a key, or the policy refuses it. The text shows no value.
    """
    if not providers:
        return source
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


def undefined(setting: str, value: object, providers: Mapping[str, Provider]) -> str | None:
    """Return a warning about references in a setting's value whose provider does not exist.

    None if there are none. It shows the providers' names, and nothing else of the value.
    """
    if not isinstance(value, str):
        return None
    named = {each.provider for each in references(value) if _NAME.fullmatch(each.provider)}
    missing = sorted(named.difference(providers))[:UNDEFINED_MAX]
    if not missing:
        return None
    quoted = ", ".join(map(repr, missing))
    listed = f" (config.providers is {printable(','.join(providers))})" if providers else ""
    cure = (
        f"set config.providers={printable(','.join((*providers, *missing)))} and "
        + " and ".join(
            f"config.providers.{name}.class={_CLASS_PREFIX}{STANDARD_PROVIDERS.get(name, '...')}"
            for name in missing
        )
    )
    is_misspelled = providers and not STANDARD_PROVIDERS.keys() & set(missing)
    return (
        f"{setting} refers to the configuration provider{'s' * (len(missing) > 1)} {quoted}, "
        f"which no setting defines{listed}: the reference itself is the value. "
        f"{'Correct the name, or s' if is_misspelled else 'S'}{cure[1:]}"
    )


def _replaced(setting: str, text: Any, providers: Mapping[str, Provider]) -> str:
    """Return a text with its references replaced; the result is marked as text from them."""
    found = [each for each in references(text) if each.provider in providers]
    if not found:
        return text  # type: ignore[no-any-return]
    origin = origin_of(text)
    distinct = {str(each): each for each in found}
    for each in distinct.values():
        _check(setting, each, providers[each.provider], origin)
    values = {
        named: _looked_up(setting, each, providers[each.provider])
        for named, each in distinct.items()
    }
    places = printable(", ".join(distinct))
    value_origin = (
        Origin(places, Policy.of_process(), is_secret=True)
        if origin is None
        else origin._replace(place=f"{places} in {origin.place}", is_secret=True)
    )
    return SecretText(_joined(setting, str(text), found, values), value_origin)


def _looked_up(setting: str, reference: Reference, provider: Provider) -> str:
    value = provider.look(reference.path, reference.key)
    if value is None:
        raise ConfigError(
            f"{setting}: {printable(str(reference))} does not exist. Set the variable, or add "
            f"the key to the file; the provider's allowlist.pattern may also exclude it."
        )
    return value


def _joined(setting: str, text: str, found: Sequence[Reference], values: Mapping[str, str]) -> str:
    """Return a text with each reference replaced by its value."""
    length = len(text) + sum(len(values[str(each)]) - (each.end - each.start) for each in found)
    if length > RESOLVED_LENGTH_MAX:
        raise ConfigError(
            f"{setting} has {length} characters once its references are replaced, and "
            f"{RESOLVED_LENGTH_MAX} are the maximum."
        )
    parts: list[str] = []
    end = 0
    for each in found:
        parts += (text[end : each.start], values[str(each)])
        end = each.end
    return "".join((*parts, text[end:]))


def _check(setting: str, reference: Reference, provider: Provider, origin: Origin | None) -> None:
    """Raise `ConfigError` if text refers to something that its policy refuses."""
    place = provider.place(reference.path, reference.key)
    for each in (*([] if origin is None else [origin]), *provider.origins):
        if complaint := each.complaint([(Reach.CONFIG_PROVIDER, provider.kind), place]):
            raise ConfigError(f"{setting}: {printable(str(reference))}: {complaint}")


def _provider(name: str, own: Mapping[str, object]) -> Provider:
    prefix = f"{PROVIDERS}_{underscored(name)}_"
    dotted = f"config.providers.{name}"
    given = str(own.get(f"{prefix}class", ""))
    kind = given.rpartition(".")[2]
    if kind not in _CLASSES:
        raise ConfigError(
            f"{dotted}.class is {shown('', given)}; use one of {', '.join(_CLASSES)} of "
            f"{_CLASS_PREFIX}"
        )
    make, place = _CLASSES[kind]
    look = make(dotted, {k.removeprefix(f"{prefix}param_"): v for k, v in own.items()})
    settings = [own[PROVIDERS], *(v for k, v in own.items() if k.startswith(prefix))]
    origins = dict.fromkeys(each for v in settings if (each := origin_of(v)) is not None)
    return Provider(kind, look, place, tuple(origins))


def _environment(name: str, parameters: Mapping[str, object]) -> Look:
    setting = f"{name}.param.allowlist.pattern"
    # Made when a variable is looked up: by then the policy has allowed it.
    allowed = cache(lambda: _pattern(setting, parameters.get("allowlist_pattern", ".*")))

    def look(path: str, key: str) -> str | None:
        is_named = not path and len(key) <= VARIABLE_LENGTH_MAX and allowed().fullmatch(key)
        return os.environ.get(key) if is_named else None

    return look


def _pattern(setting: str, given: object) -> re.Pattern[str]:
    """Return a pattern for names of variables. One from text must not take long to match."""
    pattern = str(given)
    if origin_of(given) is not None:
        # An alternative in a group doubles the ways to match, as a repetition does.
        costly = "*+?{|" if "(" in pattern else "*+?{"
        repeats = [each for each in _REPEATS.findall(pattern) if each in costly]
        if (
            len(pattern) > PATTERN_LENGTH_MAX
            or len(repeats) > REPEATS_MAX
            or _REPEATED_GROUP.search(pattern)
            or _BACK_REFERENCE.search(pattern)
        ):
            raise ConfigError(
                f"{setting} is {shown('', pattern)}, which may take long to match. In text it has "
                f"{PATTERN_LENGTH_MAX} characters at most, {REPEATS_MAX} of the signs * + ? and "
                f"{{ (with groups also |), none of them behind a group, and no references to "
                f"groups."
            )
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(
            f"{setting} is {shown('', pattern)}, not a regular expression: {error}."
        ) from None


def _file(name: str, parameters: Mapping[str, object]) -> Look:
    folders = _folders(parameters)
    read = cache(read_properties)  # once, however many settings refer to a file

    def look(path: str, key: str) -> str | None:
        return read(_allowed(name, path, folders)).get(key)

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
        if not file.exists():
            return None
        data = bytearray(read_file(str(file), f"{name}: {file}", bytes_max=FILE_BYTES_MAX))
        try:
            return data.decode()
        except UnicodeDecodeError:
            data.clear()  # tracebacks may show variables
        raise ConfigError(f"{name}: {file} cannot be read: it is not UTF-8.")

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
