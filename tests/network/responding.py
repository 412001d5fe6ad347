"""Responses that are checked before they reach a request, as a connection does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors import DecodeError, DisconnectedError

if TYPE_CHECKING:
    from pykclient.network.manager import Request
    from pykclient.protocol.message import Message


def respond_checked(request: Request, response: Message, now_ms: int) -> DecodeError | None:
    """Respond to a request; return the reason to close its connection, or None."""
    try:
        if request.check is not None:
            request.check(response)
    except DecodeError as error:
        lost = DisconnectedError("the connection was given up")
        lost.__cause__ = error
        request.on_failure(lost, now_ms)
        return error
    request.on_response(response, now_ms)
    return None
