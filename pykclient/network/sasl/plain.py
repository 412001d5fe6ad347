"""PLAIN: user name and password in plain text.

Owner: the connection that authenticates.
Source: RFC 4616; Java class ``PlainSaslClient``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.config.setting import Password
from pykclient.errors import AuthenticationError
from pykclient.network.sasl.mechanism import SaslMechanism
from pykclient.network.sasl.redaction import masked

if TYPE_CHECKING:
    from pykclient.config.setting import PasswordSource


class Plain(SaslMechanism):
    """The mechanism of one connection.

    It does not authenticate the broker. Without TLS the password can be read in transit.
    """

    name = "PLAIN"
    cure = "check sasl_username and sasl_password"

    def __init__(self, user: str, password: Password | PasswordSource) -> None:
        self.user = user
        self.is_quick = isinstance(password, Password)
        self._password = password
        self._sent: Password | None = None

    def begin(self) -> bytes:
        password = self._password.current()
        if "\0" in self.user or "\0" in password.value:
            raise AuthenticationError(
                "the user name or the password has a NUL character, which PLAIN cannot send"
            )
        self._sent = password
        return b"\0".join((b"", self.user.encode(), password.encoded()))

    def masked(self, text: str) -> str:
        return text if self._sent is None else masked(text, [self._sent])

    def respond(self, challenge: bytes) -> None:
        """Complete the authentication. Nothing more is sent, whatever the broker responds."""
