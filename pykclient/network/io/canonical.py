"""The canonical names of bootstrap addresses, for ``client_dns_lookup``.

Each name is resolved, and each of its addresses resolved back: brokers behind an alias then have
the names that their certificates and Kerberos know. The lookups run once, before the client has its
nodes, on a thread that is joined for a limited time.

Owner: the thread that makes the client.
Source: KIP-235; Java class ``ClientUtils``.
"""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, TypeVar

from pykclient.config.client import CANONICAL_NAMES
from pykclient.network.io.resolver import LOOKUP_FAILURES
from pykclient.network.log import ClientLog

if TYPE_CHECKING:
    from pykclient.config.client import ClientConfig
    from pykclient.config.setting import Address

C = TypeVar("C", bound="ClientConfig")


def with_canonical_names(config: C) -> C:
    """Return the config with canonical names in bootstrap_servers, if it asks for them.

    A name that cannot be resolved within ``socket_connection_setup_timeout_ms`` stays as given.
    """
    if config.client_dns_lookup != CANONICAL_NAMES:
        return config
    log = ClientLog("pykclient.network", config.client_id)
    found: dict[Address, tuple[Address, ...]] = {}

    def look_up() -> None:
        for address in config.bootstrap_servers:
            try:
                found[address] = _canonical(*address)
            except LOOKUP_FAILURES as error:
                log.warning("%s:%s has no canonical name: %s", *address, error)

    thread = threading.Thread(target=look_up, name="pykclient-canonical-names", daemon=True)
    thread.start()
    thread.join(config.socket_connection_setup_timeout_ms / 1000)
    if thread.is_alive():
        log.warning(
            "the canonical names of bootstrap_servers were not resolved within %d ms; those that "
            "are missing stay as given",
            config.socket_connection_setup_timeout_ms,
        )
    names = found.copy()
    addresses = [name for each in config.bootstrap_servers for name in names.get(each, (each,))]
    return config.with_bootstrap_servers(tuple(dict.fromkeys(addresses)))


def _canonical(host: str, port: int) -> tuple[Address, ...]:
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    flags = socket.NI_NUMERICSERV  # an address without a name stays a number, as in Java
    return tuple((socket.getnameinfo(each[4], flags)[0], port) for each in addresses)
