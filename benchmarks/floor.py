"""How far from the limit are we: what do the same bytes cost without a client around them?

Fetch responses are received on a bare socket and thrown away, with and without a checksum;
ready-made Produce requests are sent, and their acknowledgements read. Beside them each of our ways
to send and to read the same records.

    python benchmarks/floor.py [--records N] [--runs N] [--clients ...] [--json FILE]
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from measuring.client import PYKCLIENT, RAW_SOCKET
from measuring.contest import Entry, produce_contest, read_contest
from measuring.question import Question, ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measuring.arena import Arena
    from measuring.measurement import Measurement
    from measuring.question import Settings

OUT = (
    Entry(RAW_SOCKET, "produce"),
    Entry(PYKCLIENT, "send_arrow", "pykclient, send_arrow"),
    Entry(PYKCLIENT, "send_batch", "pykclient, send_batch"),
    Entry(PYKCLIENT, "produce", "pykclient, send"),
)
IN = (
    Entry(RAW_SOCKET, "consume"),
    Entry(RAW_SOCKET, "consume_with_crc", "raw socket and CRC"),
    Entry(PYKCLIENT, "consume_arrow", "pykclient, poll_arrow"),
    Entry(PYKCLIENT, "consume", "pykclient, poll"),
)


def measure(arena: Arena, settings: Settings) -> Iterator[Measurement]:
    """Out, then in."""
    yield from produce_contest(arena, settings, (QUESTION.name, "out"), OUT)
    yield from read_contest(arena, settings, (QUESTION.name, "in"), IN)


QUESTION = Question("floor", "The floor: the same bytes without a client", measure)

if __name__ == "__main__":
    sys.exit(ask(QUESTION, __doc__))
