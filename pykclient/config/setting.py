"""A setting: one key of a client's configuration, with its type, default, range and meaning.

A config class declares its keys as class attributes of type `Setting`. Parsing, error messages,
`repr` and the documentation are derived from these declarations. On an instance, the name is a
plain attribute: its value is in the instance's dictionary, which Python checks first, so reading it
costs no more than any attribute. Nothing here opens or imports anything; `resolve_class_setting`
imports class-valued settings when they are used.

Owner: none, everything is immutable once its class is complete.
Source: Java class ``org.apache.kafka.common.config.ConfigDef``.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import TYPE_CHECKING, Final, Generic, TypeVar, overload

from pykclient.config.policy import Reach
from pykclient.config.setting_text import (
    HIDDEN,
    Origin,
    SecretText,
    origin_of,
    with_origin,
)
from pykclient.errors.base import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Named = Iterable[tuple[Reach, str]]

T = TypeVar("T")

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
HOST_LENGTH_MAX: Final = 253
"""Maximum length of a host name in DNS, longer than any numeric address."""

TEXT_BYTES_MAX: Final = 32_000
"""Maximum size of a string in a request, 32,767 bytes less a margin for what clients append to
names."""

SHOWN_LENGTH_MAX: Final = 100

Address = tuple[str, int]
"""A host and a port."""

_SECRET_WORDS: Final = (
    "password",
    "passphrase",
    "secret",
    "jaas",
    "token",
    "private_key",
    "keystore_key",
    "certificate_chain",
    "ssl_key",
    "oauth_cb",
    "oauthbearer_config",
)


_SECRET_STRINGS: Final = ("sasl_oauthbearer_config",)
"""Settings that are plain text for an application's functions but may contain secrets."""


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()


class Kind(Generic[T]):
    """Parser and formatter for values of one type.

    `parse` converts the caller's value; its `ValueError` may say why a value is invalid. `allowed`
    describes the valid values. `written` formats a value for a properties file. `annotation` is the
    type of the keyword in `pykclient.config.keywords`; `parse` may accept more, since it also reads
    text from properties files. `named` returns the code, files and addresses that a parsed value
    names, which the policy limits for text.
    """

    __slots__ = ("allowed", "annotation", "named", "parse", "written")

    def __init__(
        self,
        parse: Callable[[object], T],
        allowed: str,
        written: Callable[[T], str] = str,
        annotation: str = "object",
        *,
        named: Callable[[object], Named] = lambda value: (),
    ) -> None:
        self.named = named
        self.parse = parse
        self.allowed = allowed
        self.written = written
        self.annotation = annotation


class Setting(Generic[T]):
    """One key of a configuration.

    `key` is Kafka's dotted name, `name` the attribute. `is_ours` marks keys that Kafka does not
    have; `aliases` are the names of other libraries for the same key.
    """

    __slots__ = ("aliases", "default", "is_ours", "key", "kind", "meaning", "name")

    def __init__(
        self,
        kind: Kind[T],
        default: T | _Required,
        meaning: str,
        *,
        key: str = "",
        is_ours: bool = False,
        aliases: tuple[str, ...] = (),
    ) -> None:
        self.kind = kind
        self.default = default
        self.meaning = meaning
        self.key = key
        self.is_ours = is_ours
        self.aliases = aliases
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.key = self.key or (name if self.is_ours else name.replace("_", "."))

    @overload
    def __get__(self, instance: None, owner: type) -> Setting[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Setting[T] | T:
        if instance is None:
            return self
        # Only a config under construction gets here: later the instance's own value is found first.
        raise AttributeError(f"{self.name} is not set yet")

    def with_default(self, default: T) -> Setting[T]:
        """Return a copy of this setting with another default."""
        return Setting(
            self.kind,
            default,
            self.meaning,
            key=self.key,
            is_ours=self.is_ours,
            aliases=self.aliases,
        )

    def read(self, value: object, spelling: str) -> T:
        """Convert a value to the setting's type.

        Raises:
            ConfigError: the value is invalid. It names the key as the caller spelled it.
        """
        try:
            read = self.kind.parse(value)
        except ValueError as error:
            detail = f" {error}" if error.args else ""
            default = self.default_written
            raise ConfigError(
                f"{spelling}={shown(spelling, value)} is not valid: it must be "
                f"{self.kind.allowed}.{detail}{default and f' Default: {default}.'}"
            ) from None
        origin = origin_of(value)
        if origin is not None and (complaint := origin.complaint(self.kind.named(read))):
            raise ConfigError(f"{spelling}: {complaint}")
        if type(read) is str and self.name in _SECRET_STRINGS:
            return SecretText(read)  # type: ignore[return-value, arg-type]
        return read

    @property
    def is_password(self) -> bool:
        """True if every value is a secret."""
        try:
            return isinstance(self.kind.parse("?"), Password)
        except ValueError:
            return False

    @property
    def default_written(self) -> str:
        """The default in the form of a properties file; empty if there is none."""
        if self.default is None or isinstance(self.default, _Required):
            return ""
        return self.kind.written(self.default)


def shown(key: str, value: object) -> str:
    """Return the form of a value for errors and `repr`: secrets masked, long text cut."""
    if is_secret(key):
        return HIDDEN
    if type(value) is int and value.bit_length() > 64:
        return "a number beyond 64 bits"  # Python may refuse to format it
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"of type {type(value).__name__}"  # no setting is bytes, and a record is
    text = repr(without_user(value)) if isinstance(value, str) else without_user(repr(value))
    return text if len(text) <= SHOWN_LENGTH_MAX else f"{text[:SHOWN_LENGTH_MAX]}..."


def without_user(text: str) -> str:
    """Remove user and password from addresses in a text, as in user:password@host."""
    user, sign, address = text.rpartition("@")
    return f"{HIDDEN}@{address}" if sign and ":" in user else text


def is_secret(key: str) -> bool:
    """Return whether a key, in any spelling, may hold a secret."""
    name = key.replace(".", "_").lower()
    return any(word in name for word in _SECRET_WORDS)


def integer(minimum: int, maximum: int = INT_MAX, *, also: int | None = None) -> Kind[int]:
    extra = "" if also is None else f", or {also}"

    def parse(value: object) -> int:
        number = _whole_number(value)
        if not minimum <= number <= maximum and number != also:
            raise ValueError
        return number

    return Kind(parse, f"an integer from {minimum} to {maximum}{extra}", annotation="int")


def decimal(minimum: float, maximum: float) -> Kind[float]:
    def parse(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise ValueError
        try:
            number = float(value)
        except (OverflowError, ValueError):
            raise ValueError from None
        if not minimum <= number <= maximum:
            raise ValueError
        return number

    return Kind(parse, f"a number from {minimum} to {maximum}", annotation="float")


def boolean() -> Kind[bool]:
    def parse(value: object) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and (text := value.strip().lower()) in ("true", "false"):
            return text == "true"
        raise ValueError

    return Kind(parse, "true or false", lambda value: str(value).lower(), "bool")


def string() -> Kind[str]:
    def parse(value: object) -> str:
        if isinstance(value, str):
            return sendable_text(value.strip())
        raise ValueError

    return Kind(parse, "a string", annotation="str")


def text() -> Kind[str]:
    """Return the kind of text that no request carries, such as a path, of any length."""

    def parse(value: object) -> str:
        if isinstance(value, str) and value.strip():
            return value.strip()
        raise ValueError

    return Kind(parse, "a string that is not empty", annotation="str")


def path(reach: Reach) -> Kind[str]:
    """Return the kind of a file's path. `reach` says whether the file's contents are sent."""

    def parse(value: object) -> str:
        place = os.fspath(value) if isinstance(value, os.PathLike) else value
        if isinstance(place, str) and place.strip() and "\0" not in place:
            return place.strip()
        raise ValueError

    return Kind(
        parse,
        "a file's path",
        annotation="str | PathLike[str]",
        named=lambda value: [(reach, value)] if isinstance(value, str) else [],
    )


class Password:
    """A secret, whose `repr` is `<hidden>`. `value` is the text."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def current(self) -> Password:
        """Return this password, for the same interface as `PasswordSource`."""
        return self

    def encoded(self) -> bytes:
        """Return the text as UTF-8.

        Raises:
            ValueError: it contains half of a surrogate pair. The text shows no part of it.
        """
        # Checked first: Python's own error would contain the text.
        if any("\ud800" <= character <= "\udfff" for character in self.value):
            raise ValueError("a secret contains half of a surrogate pair, which is not valid UTF-8")
        return self.value.encode()


class PasswordSource:
    """An application's function that returns a secret; its `repr` is `<hidden>`."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PasswordSource) and self._function == other._function

    def __hash__(self) -> int:
        return hash(self._function)

    def current(self) -> Password:
        """Call the function, which may block, and return its secret.

        Raises:
            TypeError: it did not return a string. The text shows nothing of the result.
        """
        value = self._function()
        if isinstance(value, Password):
            return value
        if isinstance(value, str):
            return Password(value)
        kind = type(value).__name__
        del value  # tracebacks may show variables
        raise TypeError(f"the function returned a {kind}, not a string")


def password_or_callable() -> Kind[Password | PasswordSource]:
    def parse(value: object) -> Password | PasswordSource:
        if isinstance(value, (Password, PasswordSource)):
            return value
        if isinstance(value, str):
            return Password(value)
        if callable(value):
            return PasswordSource(value)
        raise ValueError

    return Kind(
        parse, "a string, or a function that returns one", annotation="str | Callable[[], str]"
    )


def password() -> Kind[Password]:
    def parse(value: object) -> Password:
        if isinstance(value, Password):
            return value
        if isinstance(value, str):
            return Password(value)
        raise ValueError

    return Kind(parse, "a string", annotation="str")


def sendable_text(value: str) -> str:
    """Check that a request can carry a text, and return it.

    Raises:
        ValueError: it is too long, or contains half of a surrogate pair.
    """
    try:
        size_bytes = len(value.encode())
    except UnicodeEncodeError:
        raise ValueError(
            "It contains half of a surrogate pair, as invalid UTF-8 from a file name or a command "
            "line does."
        ) from None
    if size_bytes > TEXT_BYTES_MAX:
        raise ValueError(f"It has {size_bytes} bytes; the maximum is {TEXT_BYTES_MAX}.")
    return value


def choice(
    values: Mapping[str, T], *, hints: Mapping[str, str] | None = None, is_case_kept: bool = True
) -> Kind[T]:
    """Return the kind of a choice of words. `hints` maps words of old releases to replacements."""
    by_word = values if is_case_kept else {word.lower(): value for word, value in values.items()}

    def parse(value: object) -> T:
        # A number is accepted as its digits (acks=1), a Boolean never (acks=True).
        is_word = isinstance(value, (str, int)) and not isinstance(value, bool)
        word = str(value).strip() if is_word else ""
        word = word if is_case_kept else word.lower()
        if word in by_word:
            return by_word[word]
        raise ValueError(*([hints[word]] if hints and word in hints else []))

    words = {value: word for word, value in reversed(list(values.items()))}
    numbers = [word for word in values if word.lstrip("-").isdigit()]
    literal = f"Literal[{', '.join([*map(repr, values), *numbers])}]".replace("'", '"')
    return Kind(parse, f"one of {', '.join(values)}", words.__getitem__, literal)


def optional(kind: Kind[T]) -> Kind[T | None]:
    return Kind(
        lambda value: None if value is None else kind.parse(value),
        f"{kind.allowed}, or None",
        annotation=f"{kind.annotation} | None",
        named=kind.named,
    )


def address_list() -> Kind[tuple[Address, ...]]:
    """Return the kind of addresses: a string with commas, or strings and pairs.

    Duplicates are dropped.
    """

    def parse(value: object) -> tuple[Address, ...]:
        items = value if isinstance(value, (list, tuple)) else [value]
        if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], int):
            items = [value]  # a single pair
        addresses = [address for item in items for address in _addresses(item)]
        if not addresses:
            raise ValueError("It contains no address.")
        return tuple(dict.fromkeys(addresses))

    return Kind(
        parse,
        "host:port addresses such as 'kafka1:9092,kafka2:9092' (IPv6 as '[::1]:9092')",
        annotation="str | tuple[str, int] | Sequence[str | tuple[str, int]]",
    )


def object_or_name(
    hint: Callable[[str], str] | None = None, *, reach: Reach = Reach.IMPORT
) -> Kind[object]:
    """Return the kind of an object, class or callable, or the name "package.module:Name" of one.

    `hint` returns a suggestion for a text that is not such a name, or "". `reach` says whether text
    may name it at all.
    """

    def parse(value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return _checked_name(value)
        except ValueError:
            if hint is not None and (better := hint(value.strip())):
                raise ValueError(better) from None
            raise

    return Kind(parse, _OBJECT_ALLOWED, named=lambda value: imports_of(value, reach))


def object_list() -> Kind[tuple[object, ...]]:
    """Return the kind of several objects: a list, or names separated by commas."""

    def parse(value: object) -> tuple[object, ...]:
        if isinstance(value, str):
            value = [name for name in listed(value) if name.strip()]
        if not isinstance(value, (list, tuple)) or None in value:
            raise ValueError
        return tuple(_checked_name(item) if isinstance(item, str) else item for item in value)

    return Kind(
        parse,
        f"a list, each {_OBJECT_ALLOWED}",
        lambda value: ",".join(map(str, value)),
        "str | Sequence[object]",
        named=imports_of,
    )


def listed(text: str) -> list[str]:
    """Return the words between commas, each with the origin of the text."""
    return [with_origin(word, origin_of(text)) for word in text.split(",")]


def imports_of(value: object, reach: Reach = Reach.IMPORT) -> Named:
    """Return the names in a parsed value that have to be imported: those with a colon."""
    items = value if isinstance(value, tuple) else (value,)
    return [(reach, item) for item in items if isinstance(item, str) and ":" in item]


_OBJECT_ALLOWED: Final = "an object, a class, a callable or 'package.module:Name'"


def resolve_class_setting(key: str, value: object) -> object:
    """Return the object that a class-valued setting stands for.

    A name is imported and a class is called without arguments. Any other value is returned as it
    is, None too.

    Raises:
        ConfigError: the import or the call failed.
    """
    if isinstance(value, str):
        value = _imported(key, value)
    if not isinstance(value, type):
        return value
    try:
        return value()
    except Exception as error:
        raise ConfigError(
            f"{key}: {value.__module__}.{value.__qualname__}() failed: {error!r}. A class is "
            f"called without arguments; pass an instance if it needs any."
        ) from error


def _imported(key: str, name: str) -> object:
    from importlib import import_module

    module_name, _, attributes = name.partition(":")
    origin = origin_of(name)
    if origin is not None and (complaint := origin.complaint([(Reach.IMPORT, str(name))])):
        raise ConfigError(f"{key}: {complaint}")
    try:
        found: object = import_module(module_name)
        for attribute in attributes.split("."):
            found = getattr(found, attribute)
    except Exception as error:
        raise ConfigError(f"{key}={name!r} cannot be imported: {error!r}.") from error
    if origin is not None:
        _check_definer(key, name, found, origin)
    return found


def _check_definer(key: str, name: str, found: object, origin: Origin) -> None:
    """Raise `ConfigError` if text names an object that an allowed module only imported."""
    is_definition = isinstance(found, type) or hasattr(found, "__qualname__")
    definer = getattr(found if is_definition else type(found), "__module__", None)
    if isinstance(found, ModuleType) or not isinstance(definer, str):
        definer = type(found).__module__
    if not origin.policy.allows_definer(name, definer):
        raise ConfigError(
            f"{key}: text from {origin.place} may not name {name!r}, which is defined in "
            f"{definer}. To allow it, {origin.cure([(Reach.IMPORT, definer)])}."
        )


def _checked_name(text: str) -> str:
    name = text.strip()
    module, _, attributes = name.partition(":")
    parts = [*module.split("."), *attributes.split(".")]
    if not all(part.isidentifier() for part in parts):
        raise ValueError("Put a colon before the class, as in 'my_package.my_module:MyClass'.")
    return with_origin(name, origin_of(text))


def _whole_number(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        text = value.strip()
        digits = text[1:] if text[:1] in ("+", "-") else text
        if digits.isascii() and digits.isdigit() and len(digits) < 100:
            return int(text)
    raise ValueError


def _addresses(item: object) -> list[Address]:
    if isinstance(item, str):
        return [_address(text.strip()) for text in item.split(",") if text.strip()]
    if isinstance(item, (list, tuple)) and len(item) == 2 and isinstance(item[0], str):
        return [(_checked_host(item[0]), _checked_port(item[1], f"{item[0]}:{item[1]}"))]
    raise ValueError(f"{shown('', item)} is neither a string nor a (host, port) pair.")


def _address(text: str) -> Address:
    if "@" in text:
        raise ValueError("An address has no user; set user and password in the SASL settings.")
    if "://" in text:
        raise ValueError(f"Leave out the protocol in {text!r}.")
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        raise ValueError(f"{text!r} has no port; Kafka usually listens on {text}:9092.")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"Put the IPv6 address of {text!r} in brackets.")
    return _checked_host(host), _checked_port(port, text)


def _checked_host(host: str) -> str:
    if ":" in host:
        from ipaddress import IPv6Address

        try:
            IPv6Address(host)
        except ValueError:
            raise ValueError(f"{host!r} is not an IPv6 address.") from None
    elif not host or len(host) > HOST_LENGTH_MAX or any(sign in host for sign in " \t\n/@?#[]\0"):
        raise ValueError(f"{shown('', host)} is not a host name.")
    return host


def _checked_port(port: object, text: str) -> int:
    try:
        number = _whole_number(port)
    except ValueError:
        number = 0
    if not 1 <= number <= 65535:
        raise ValueError(f"The port of {text!r} is not a number from 1 to 65535.")
    return number
