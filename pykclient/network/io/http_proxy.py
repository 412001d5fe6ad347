"""Proxy: the HTTP proxy that the environment names for a URL.

The variables are those of curl and Python: ``HTTPS_PROXY``, ``HTTP_PROXY``, ``ALL_PROXY`` and
``NO_PROXY``, in upper or lower case. Loopback and link-local addresses, where clouds serve their
metadata, never use a proxy, as in Java's and Go's clients.

Owner: no state; the environment decides, and no setting changes it.
Source: ``urllib.request.getproxies``; Java's ``https.proxyHost`` and ``http.nonProxyHosts``.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from pykclient.config.setting import Password
from pykclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

PORT: Final = 1080
"""curl's default for a proxy without a port."""

LOCAL_NAMES: Final = ("localhost", "metadata.google.internal")


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy. `credentials` are "user:password", or None."""

    host: str
    port: int
    credentials: Password | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def proxy_of(url: str) -> Proxy | None:
    """Return the proxy that the environment names for a URL; None for a direct connection.

    Raises:
        ConfigError: the variable does not name an HTTP proxy. The text shows no password.
    """
    from urllib.request import getproxies, proxy_bypass  # few clients speak HTTP at all

    parts = urlsplit(url)
    host = parts.hostname or ""
    proxies: Mapping[str, str] = getproxies()
    place = proxies.get(parts.scheme) or proxies.get("all")
    if not place or _is_local(host) or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    return _read(place, f"{parts.scheme.upper()}_PROXY")


def _is_local(host: str) -> bool:
    if host.lower().rstrip(".") in LOCAL_NAMES:
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_link_local


def _read(place: str, variable: str) -> Proxy:
    if "://" not in place:
        place = f"http://{place}"
    parts = urlsplit(place)
    if parts.scheme.lower() != "http":
        raise ConfigError(
            f"{variable} names a proxy with the scheme {parts.scheme!r}, but only http:// is "
            f"supported; name an HTTP proxy, or add the identity server's host to NO_PROXY."
        )
    try:
        host, port = parts.hostname, parts.port or PORT
    except ValueError:
        host, port = None, 0
    if not host:
        raise ConfigError(f"{variable} is not the URL of a proxy, such as http://proxy:3128.")
    credentials = None
    if parts.username is not None:
        user, password = unquote(parts.username), unquote(parts.password or "")
        credentials = Password(f"{user}:{password}")
    return Proxy(host, port, credentials)
