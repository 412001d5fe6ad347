"""The port that a client's security settings require.

Owner: no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykclient.config.client import ClientConfig
    from pykclient.network.io.port import Port


def secured(sockets: Port, config: ClientConfig) -> Port:
    """Return `sockets`, wrapped in TLS if the settings require it.

    Raises:
        ConfigError: a certificate file cannot be used; the text names it and the cure.
    """
    if not config.is_encrypted:
        return sockets
    # Imported here: TLS takes its share of the import budget, and many clients do not need it.
    from pykclient.network.io.ssl_factory import SslFactory
    from pykclient.network.io.tls import TlsPort

    return TlsPort(sockets, SslFactory(config))
