"""A program that is interrupted while it sends, again and again; run by a test as a process.

    python -m tests.integration.interrupted_producer SERVERS TOPIC INTERRUPTS

Each signal raises KeyboardInterrupt at whatever place of `send` the program is. It sends the
numbers 0, 1, 2 ..., a number again when its send was interrupted, then ``end``. It prints how many
numbers it sent, and the offset of the end; it fails if anything hangs or any memory is missing.
"""

from __future__ import annotations

import faulthandler
import signal
import sys

from pykclient import Producer

FIRST_S = 0.0005
AGAIN_S = 0.1
"""Python swallows an interrupt that comes in a weak reference's callback; so there is another."""

TIMEOUT_S = 30.0
HANG_S = 120.0


class Interrupts:
    """Signals that count only while they are wanted."""

    def __init__(self) -> None:
        self.are_wanted = False
        signal.signal(signal.SIGALRM, self._on_alarm)

    def begin(self) -> None:
        self.are_wanted = True
        signal.setitimer(signal.ITIMER_REAL, FIRST_S, AGAIN_S)

    def _on_alarm(self, number: int, frame: object) -> None:
        if self.are_wanted:
            raise KeyboardInterrupt

    def end(self) -> None:
        self.are_wanted = False
        signal.setitimer(signal.ITIMER_REAL, 0)


def run(servers: str, topic: str, interrupt_count: int) -> None:
    interrupts = Interrupts()
    sent_count = 1
    with Producer(bootstrap_servers=servers, batch_size=2_000) as producer:
        producer.send(topic, b"0").result(TIMEOUT_S)
        for _ in range(interrupt_count):
            try:
                interrupts.begin()
                while True:
                    producer.send(topic, b"%d" % sent_count)
                    sent_count += 1
            except KeyboardInterrupt:
                interrupts.end()
        producer.flush(TIMEOUT_S)
        end = producer.send(topic, b"end").result(TIMEOUT_S)
        assert producer._core.pool.free_bytes == producer._core.pool.size_bytes
    sys.stdout.write(f"{sent_count} {end.offset}\n")


if __name__ == "__main__":
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    run(sys.argv[1], sys.argv[2], int(sys.argv[3]))
