"""LiveClient: how a client shows itself, and what it refuses, being bound to its process.

Owner: none; it holds no state.
Source: ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pykclient.errors import UsageError

if TYPE_CHECKING:
    from pykclient.config.client import ClientConfig


class LiveClient:
    """A client that is neither pickled nor copied."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        kind = type(self).__name__
        raise UsageError(
            f"a {kind} cannot be pickled or copied: it has connections, locks and threads of this "
            f"process. Send its settings (a dict, or functools.partial({kind}, ...)) and make one "
            f"where it is used"
        )


def describe_client(client: LiveClient, config: ClientConfig, state: str, about: str = "") -> str:
    """Return a client as `repr` shows it: its id, where its cluster is, and its state."""
    addresses = ",".join(f"{host}:{port}" for host, port in config.bootstrap_servers)
    name = config.client_id or "without client_id"
    return f"<{type(client).__name__} {name} at {addresses}{about}: {state}>"
