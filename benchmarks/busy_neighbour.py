"""How late are acknowledgements while the application's thread computes without a pause?

The thread computes in Python and sends a record each 10 ms, linger 0; the time from each send to
its callback counts. Our sender thread has to get the interpreter's lock from it twice a record;
librdkafka's threads need no lock, but its callbacks wait until the thread asks for them, which it
does after each slice. 500 records where other benchmarks have a million.

    python benchmarks/busy_neighbour.py [--records N] [--runs N] [--clients ...] [--json FILE]
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from measuring.client import CONFLUENT, PYKCLIENT
from measuring.contest import in_turns
from measuring.measurement import Measurement
from measuring.question import Question, ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measuring.arena import Arena
    from measuring.question import Settings

CLIENTS = (PYKCLIENT, CONFLUENT)
SHARE = 2_000
RECORD_COUNT_MIN = 20


def measure(arena: Arena, settings: Settings) -> Iterator[Measurement]:
    """Let the clients send from a thread that computes."""
    record_count = max(settings.record_count // SHARE, RECORD_COUNT_MIN)
    for client in in_turns(settings.able("busy_neighbour", CLIENTS), settings.run_count):
        figures = arena.produce(client, "busy_neighbour", record_count, partition_count=1)
        yield Measurement(QUESTION.name, "a record each 10 ms", client.name, figures)


QUESTION = Question("busy neighbour", "Beside a thread that computes", measure)

if __name__ == "__main__":
    sys.exit(ask(QUESTION, __doc__))
