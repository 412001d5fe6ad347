"""Which port a client's settings need.

Owner: no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykclient.config.client import ClientConfig
    from pykclient.network.io.port import Port


def secured(sockets: Port, config: ClientConfig) -> Port:
    """Return `sockets`, or what encrypts them where the settings say so.

    Raises:
        ConfigError: a file of certificates cannot be used; says which, and the cure.
    """
    if not config.is_encrypted:
        return sockets
    # Imported here: TLS takes its share of the import budget, and many clients have no need of it.
    from pykclient.network.io.ssl_factory import SslFactory
    from pykclient.network.io.tls import TlsPort

    return TlsPort(sockets, SslFactory(config))
