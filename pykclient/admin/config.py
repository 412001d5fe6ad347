"""AdminConfig: every setting of an admin client.

Built by `from_settings`, immutable, picklable.

Owner: none, it is immutable.
Source: Java class ``AdminClientConfig`` of 4.4.0.
"""

from __future__ import annotations

from pykclient.config.client import ClientConfig
from pykclient.config.setting import INT_MAX, Setting, integer


class AdminConfig(ClientConfig):
    """Settings of an admin client. Times are in milliseconds, sizes in bytes."""

    client = "admin"

    default_api_timeout_ms = Setting(
        integer(0), 60_000, "Maximum time of a call without a timeout argument."
    )
    retries = Setting(
        integer(0, INT_MAX), INT_MAX, "Maximum retries of a request, within the call's timeout."
    )
    connections_max_idle_ms = ClientConfig.connections_max_idle_ms.with_default(300_000)

    def _default_client_id(self) -> str:
        return f"adminclient-{self._next_number()}"
