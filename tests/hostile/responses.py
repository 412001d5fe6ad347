"""The table of hostile responses and of how calls end that meet them, in four parts.

Owner: none; each client has new peers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.hostile.frames import FRAMES
from tests.hostile.handshakes import HANDSHAKES
from tests.hostile.records import RECORDS
from tests.hostile.requests import REQUESTS

if TYPE_CHECKING:
    from tests.hostile.payloads import Hostile

HOSTILE: Final[tuple[Hostile, ...]] = (*HANDSHAKES, *FRAMES, *REQUESTS, *RECORDS)
