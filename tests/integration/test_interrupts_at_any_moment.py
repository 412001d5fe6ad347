"""A consumer that is interrupted a thousand times, at any moment, reads on and closes.

Method: a process in whose main thread a timer brings a Ctrl-C at random moments, much more often
than a person would; afterwards it reads everything again.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pykclient import Producer

if TYPE_CHECKING:
    from pykclient.testing import FakeKafka

ROOT = Path(__file__).parents[2]
COUNT = 1_000
TIMEOUT_S = 90.0

SCRIPT = """
import random
import signal
import sys
import time
from collections import defaultdict

from pykclient import Consumer

servers, protocol, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
consumer = Consumer(
    bootstrap_servers=servers,
    group_id="g",
    group_protocol=protocol,
    auto_offset_reset="earliest",
    value_deserializer=lambda data: int(data),
    auto_commit_interval_ms=5,
    max_poll_records=50,
)
consumer.subscribe(["t"])
while len(consumer.assignment()) < 4:
    consumer.poll(0.1)
signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
source = random.Random(1)
for number in range(1_500):
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, source.uniform(2e-5, 2e-3))
            while True:
                if not consumer.poll(0.01):
                    consumer.seek_to_beginning()
                if number % 3 == 0:
                    consumer.commit_async()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        pass  # it reads on, and closes, below
consumer.seek_to_beginning()
offsets = defaultdict(list)
while sum(map(len, offsets.values())) < count:
    for record in consumer.poll(5.0):
        offsets[record.partition].append(record.offset)
for partition, found in offsets.items():
    assert found == list(range(count // 4)), (partition, found)
started_s = time.monotonic()
consumer.close(timeout=10.0)
print(time.monotonic() - started_s)
"""


@pytest.mark.promise(
    "an interrupt at any moment leaves the guard free, and a consumer that reads on and closes"
)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_it_reads_on_and_closes(protocol: str, fake_kafka: FakeKafka) -> None:
    with fake_kafka.control() as cluster:
        cluster.create_topic("t", 4)
    with Producer(bootstrap_servers=fake_kafka.bootstrap_servers) as producer:
        for number in range(COUNT):
            producer.send("t", b"%d" % number, partition=number % 4)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, fake_kafka.bootstrap_servers, protocol, str(COUNT)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    assert float(done.stdout) < 5.0
