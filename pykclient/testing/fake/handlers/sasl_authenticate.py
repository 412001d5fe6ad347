"""SaslAuthenticate: a client's token and the broker's challenge.

Owner: none; it holds no state.
Source: KIP-152, KIP-368 (the session's lifetime); Java class ``SaslServerAuthenticator``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import IllegalSaslStateError, SaslAuthenticationFailedError
from pykclient.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from pykclient.testing.fake.handlers.handler import Handler
from pykclient.testing.fake.sasl import SaslRefusal

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState


def handle(
    cluster: ClusterState, call: Call, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Continue the exchange; a refused client is closed after the response."""
    authentication = call.session.authentication
    if authentication is None or authentication.is_done:
        response = refuse(cluster, request, IllegalSaslStateError.code)
        response.error_message = "SaslAuthenticate request received after successful authentication"
        return response
    try:
        challenge, lifetime_ms = authentication.evaluate(
            request.auth_bytes, cluster.now_ms, cluster.wall_ms
        )
    except SaslRefusal as refusal:
        call.closes_connection = True
        response = refuse(cluster, request, SaslAuthenticationFailedError.code)
        response.error_message = refusal.reason
        return response
    return SaslAuthenticateResponse(
        error_message=None, auth_bytes=challenge, session_lifetime_ms=lifetime_ms
    )


def refuse(
    _: ClusterState, __: SaslAuthenticateRequest, error_code: int
) -> SaslAuthenticateResponse:
    """Refuse the request."""
    return SaslAuthenticateResponse(error_code=error_code, error_message=None)


HANDLER = Handler(SaslAuthenticateRequest, handle, refuse)
