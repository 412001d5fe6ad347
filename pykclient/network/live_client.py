"""LiveClient: what every client refuses, because it is bound to its process.

Owner: none; it holds no state.
Source: ours.
"""

from __future__ import annotations

from typing import NoReturn

from pykclient.errors import UsageError

__all__ = ["LiveClient"]


class LiveClient:
    """A client that is neither pickled nor copied."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be pickled or copied.

        Raises:
            UsageError: always.
        """
        kind = type(self).__name__
        raise UsageError(
            f"a {kind} cannot be pickled or copied: it has connections, locks and threads of this "
            f"process. Send its settings (a dict, or functools.partial({kind}, ...)) and make one "
            f"where it is used"
        )
