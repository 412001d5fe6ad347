"""Writes `api_keys.py`: the enum of API keys and the table from key to message classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.protogen.spec import Message, snake_case

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["emit_api_keys"]

_CODE = '''
class Api(NamedTuple):
    """Where an API's messages are, and the versions of them that this client speaks."""

    module: str
    request: str
    response: str
    min_version: int
    max_version: int
    flexible_from: int | None


def request_type(api_key: int) -> type[Request]:
    """The class of an API's requests; its module is loaded at first use.

    Raises:
        UnsupportedVersionError: this client does not speak the API.
    """
    api = _api(api_key)
    kind: type[Request] = getattr(import_module(api.module), api.request)
    return kind


def response_type(api_key: int) -> type[Message]:
    """The class of an API's responses; its module is loaded at first use.

    Raises:
        UnsupportedVersionError: this client does not speak the API.
    """
    api = _api(api_key)
    kind: type[Message] = getattr(import_module(api.module), api.response)
    return kind


def _api(api_key: int) -> Api:
    try:
        return APIS[ApiKey(api_key)]
    except (ValueError, KeyError):
        raise UnsupportedVersionError(f"this client does not speak API {api_key}") from None

'''


def emit_api_keys(messages: Sequence[Message], chosen: Sequence[str], banner: str) -> str:
    """The source of `api_keys.py`: all keys, and a table of the `chosen` APIs."""
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
        "from typing import TYPE_CHECKING, NamedTuple",
        "",
        "from pykclient.errors.base import UnsupportedVersionError",
        "",
        "if TYPE_CHECKING:",
        "    from pykclient.protocol.message import Message, Request",
        "",
        '__all__ = ["APIS", "Api", "ApiKey", "request_type", "response_type"]',
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
            name = snake_case(message.api)
            lines.append(
                f'ApiKey.{name.upper()}: Api("pykclient.protocol.messages.{name}",'
                f' "{message.name}", "{message.api}Response",'
                f" {message.versions.low}, {message.versions.high},"
                f" {flexible.low if flexible else None}),"
            )
    lines += ["}", '"""The APIs that this client speaks."""']
    return "\n".join(lines)
