"""Writes `api_keys.py`: the enum of API keys and the table from key to message classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.protogen.spec import Message, snake_case

if TYPE_CHECKING:
    from collections.abc import Sequence

_CODE = '''
class Api(NamedTuple):
    """An API's name in the schemas, and the versions of it that this client speaks."""

    name: str
    min_version: int
    max_version: int
    flexible_from: int | None


def request_type(api_key: int) -> type[Request]:
    """Return the class of an API's requests; the first use loads its module.

    Raises:
        UnsupportedVersionError: this client does not speak the API.
    """
    kind: type[Request] = _message_type(api_key, "Request")
    return kind


def response_type(api_key: int) -> type[Message]:
    """Return the class of an API's responses; the first use loads its module.

    Raises:
        UnsupportedVersionError: this client does not speak the API.
    """
    kind: type[Message] = _message_type(api_key, "Response")
    return kind


def _message_type(api_key: int, suffix: str) -> Any:
    try:
        key = ApiKey(api_key)
        api = APIS[key]
    except (ValueError, KeyError):
        raise UnsupportedVersionError(f"this client does not speak API {api_key}") from None
    module = import_module(f"pykclient.protocol.messages.{key.name.lower()}")
    return getattr(module, api.name + suffix)

'''


def emit_api_keys(messages: Sequence[Message], chosen: Sequence[str], banner: str) -> str:
    """Return the source of `api_keys.py`: all keys, and a table of the `chosen` APIs."""
    requests = sorted(
        (message for message in messages if message.kind == "request"),
        key=lambda message: message.api_key or 0,
    )
    lines = [
        banner,
        "",
        "from __future__ import annotations",
        "",
        "from enum import IntEnum",
        "from importlib import import_module",
        "from typing import TYPE_CHECKING, Any, NamedTuple",
        "",
        "from pykclient.errors.base import UnsupportedVersionError",
        "",
        "if TYPE_CHECKING:",
        "    from pykclient.protocol.message import Message, Request",
        "",
        "",
        "class ApiKey(IntEnum):",
        '    """The number of each API, those included that Kafka 4 no longer serves."""',
        "",
        *(f"    {snake_case(message.api).upper()} = {message.api_key}" for message in requests),
        "",
        _CODE,
        "",
        "APIS: dict[ApiKey, Api] = {",
    ]
    for message in requests:
        if message.api in chosen:
            flexible = message.flexible & message.versions
            lines.append(
                f'    ApiKey.{snake_case(message.api).upper()}: Api("{message.api}",'
                f" {message.stable.low}, {message.stable.high},"
                f" {flexible.low if flexible else None}),"
            )
    lines += ["}", '"""The APIs that this client speaks."""']
    return "\n".join(lines)
