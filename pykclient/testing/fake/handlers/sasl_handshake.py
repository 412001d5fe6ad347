"""SaslHandshake: the client names its mechanism, and the broker lists its own.

Owner: none; it holds no state.
Source: KIP-43; Java classes ``SaslServerAuthenticator``, ``KafkaApis``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import IllegalSaslStateError, UnsupportedSaslMechanismError
from pykclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pykclient.testing.fake.handlers.handler import Handler

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState


def handle(
    cluster: ClusterState, call: Call, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """Begin the SASL exchange; refuse if the client is authenticated or needs none."""
    authentication = call.session.authentication
    if authentication is None or authentication.is_done:
        return refuse(cluster, request, IllegalSaslStateError.code)
    error_code = 0
    if not authentication.choose(request.mechanism, call.version):
        call.closes_connection = True
        error_code = UnsupportedSaslMechanismError.code
    return SaslHandshakeResponse(error_code=error_code, mechanisms=list(authentication.mechanisms))


def refuse(_: ClusterState, __: SaslHandshakeRequest, error_code: int) -> SaslHandshakeResponse:
    """Refuse the request."""
    return SaslHandshakeResponse(error_code=error_code)


HANDLER = Handler(SaslHandshakeRequest, handle, refuse)
