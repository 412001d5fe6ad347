"""ClientLog: a package's logger, whose messages begin with the client's id.

Where several clients run in one process, the id tells them apart. It is also the attribute
`client_id` of each log record, for filters and formatters.

Owner: none, it never changes.
Source: the `logging` cookbook, "Adding contextual information".
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["ClientLog"]


class ClientLog(logging.LoggerAdapter[logging.Logger]):
    """The logger `name`, used by the client `client_id`; empty stands for none."""

    def __init__(self, name: str, client_id: str) -> None:
        super().__init__(logging.getLogger(name), {"client_id": client_id})
        # The logger formats messages that have arguments and no others, so that a percent sign
        # can stand in none; the attribute has it.
        self._prefix = f"[{client_id}] ".replace("%", "") if client_id else ""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Put the id in front of a message."""
        kwargs["extra"] = self.extra
        return f"{self._prefix}{msg}", kwargs
