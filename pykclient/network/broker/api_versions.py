"""Which versions of each API one broker speaks, and which of them we choose.

Immutable; made once per connection from the broker's ApiVersions answer.

Source: KIP-35 (ApiVersions), KIP-511 (newer form).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from pykclient.errors import UnsupportedVersionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient.protocol.message import Message
    from pykclient.types import Node

__all__ = ["ApiVersions"]


class ApiVersions:
    """The ranges of one broker by API key."""

    __slots__ = ("_node", "ranges")

    def __init__(self, node: Node, ranges: Mapping[int, tuple[int, int]]) -> None:
        self._node = node
        self.ranges = MappingProxyType(dict(ranges))

    def common_range(self, message: type[Message] | Message) -> tuple[int, int] | None:
        broker = self.ranges.get(int(message.api_key))
        if broker is None:
            return None
        lowest = max(broker[0], message.min_version)
        highest = min(broker[1], message.max_version)
        return (lowest, highest) if lowest <= highest else None

    def choose(self, message: Message, max_version: int | None) -> int:
        """Return the highest version that both sides speak, up to `max_version`.

        Raises:
            UnsupportedVersionError: there is none; the text names both sides' ranges.
        """
        common = self.common_range(message)
        if common is not None:
            version = common[1] if max_version is None else min(common[1], max_version)
            if version >= common[0]:
                return version
        raise UnsupportedVersionError(self._explain(message, max_version))

    def _explain(self, message: Message, max_version: int | None) -> str:
        broker = self.ranges.get(int(message.api_key))
        theirs = "does not have it" if broker is None else f"speaks versions {_span(*broker)}"
        highest = message.max_version
        if max_version is not None:
            highest = min(highest, max_version)
        return (
            f"{self._node} cannot serve {message.api_key.name}: it {theirs}, this client "
            f"needs one of {_span(message.min_version, highest)}; use Kafka 2.1 or newer, or a "
            f"release of pykclient that fits the broker"
        )


def _span(lowest: int, highest: int) -> str:
    return str(lowest) if lowest == highest else f"{lowest} to {highest}"
