"""ApiVersionsFallback: the version of ApiVersions that a handshake starts with, by address.

A broker responds to an unknown version with the versions that it supports (KIP-511). Services and
proxies that only resemble a broker close the connection instead: the next attempt then starts with
an older version, and the one that works is kept for that address. Since a broker that shuts down
closes connections too, newer versions are tried again later.

Owner: the driver of the engine.
Source: franz-go, which found this at Azure Event Hubs; Java has no such fall-back.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pykclient.network.manager import NEVER_MS
from pykclient.protocol.messages.api_versions import ApiVersionsRequest

NEWEST: Final = ApiVersionsRequest.max_version

OLDER_VERSIONS: Final = (3, 0)
"""Older versions to try, in order: version 3 came with Kafka 2.4, and every broker supports version
0."""

KEPT_MS: Final = 300_000
"""Time for which an older version is kept even if the broker lists the newest one: a proxy may pass
on another broker's list."""

ADDRESSES_MAX: Final = 1_000

Address = tuple[str, int]


class _Begin(NamedTuple):
    version: int
    until_ms: int


class ApiVersionsFallback:
    """Remembers the version to start with, which is the newest for most addresses."""

    def __init__(self) -> None:
        self._begins: dict[Address, _Begin] = {}

    def version(self, address: Address, now_ms: int) -> int:
        begin = self._begins.get(address)
        if begin is None:
            return NEWEST
        if begin.until_ms <= now_ms:
            del self._begins[address]
            return NEWEST
        return begin.version

    def on_hung_up(self, address: Address, version: int) -> int | None:
        """Record that a peer closed the connection instead of responding to `version`.

        Returns the next older version; None if there is none, and then the newest comes next.
        """
        self._begins.pop(address, None)
        older = next((each for each in OLDER_VERSIONS if each < version), None)
        if older is None:
            return None
        self._begins[address] = _Begin(older, NEVER_MS)
        if len(self._begins) > ADDRESSES_MAX:
            del self._begins[next(iter(self._begins))]
        return older

    def on_accepted(self, address: Address, listed_max: int, now_ms: int) -> None:
        """Record a successful handshake, and the newest version of ApiVersions that it listed."""
        begin = self._begins.get(address)
        if begin is not None:
            until_ms = NEVER_MS if listed_max < NEWEST else now_ms + KEPT_MS
            self._begins[address] = begin._replace(until_ms=until_ms)
