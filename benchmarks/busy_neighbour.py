"""Acknowledgements and heartbeats while the application's thread computes.

The thread computes in Python without a pause. First it sends a record each 10 ms, linger 0, and the
time from each send to its callback counts. Our sender thread has to get the interpreter's lock from
it twice a record; librdkafka's threads need no lock, but its callbacks wait until the thread asks
for them, which it does after each slice. 500 records where other benchmarks have a million.

Then it is a member of a group that does not poll for as long (4 s at least), with a session of 3 s
and a heartbeat each 500 ms. A heartbeat is missed when there is more than a session between two, or
when the broker refuses the member's commit afterwards. They are counted on their way, by a proxy;
a broker advertises the address under which it is reached, so there is another one for this.

    python benchmarks/busy_neighbour.py [--records N] [--runs N] [--clients ...] [--json FILE]
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from contestants.job import SESSION_TIMEOUT_MS, Job
from measuring.arena import Arena
from measuring.benchmark import KAFKA_VERSION, Benchmark, run_benchmark
from measuring.client import CONFLUENT, PYKCLIENT
from measuring.contest import in_turns
from measuring.measurement import Measurement
from measuring.pulse import gaps_s, heartbeat_count, listening
from pykclient.errors import UsageError
from pykclient.testing import KafkaCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from contestants.job import Figures
    from measuring.benchmark import Settings
    from measuring.client import Client

CLIENTS = (PYKCLIENT, CONFLUENT)
SHARE = 2_000
RECORD_COUNT_MIN = 20
SLICE_COUNT_MIN = 400
"""Number of 10 ms slices; a session has to end within them."""
GROUP_CONFIG = {"group.min.session.timeout.ms": SESSION_TIMEOUT_MS}


def measure(arena: Arena, settings: Settings) -> Iterator[Measurement]:
    """Measure clients that send from a computing thread, then group members beside one."""
    record_count = max(settings.record_count // SHARE, RECORD_COUNT_MIN)
    for client in in_turns(settings.able("busy_neighbour", CLIENTS), settings.run_count):
        figures = arena.produce(client, "busy_neighbour", record_count, partition_count=1)
        yield Measurement(BENCHMARK.name, "a record each 10 ms", client.name, figures)
    yield from measure_members(settings)


def measure_members(settings: Settings) -> Iterator[Measurement]:
    """Count heartbeats at a broker behind a proxy."""
    slice_count = max(settings.record_count // SHARE, SLICE_COUNT_MIN)
    try:
        cluster = KafkaCluster(version=KAFKA_VERSION, config=GROUP_CONFIG, proxied=True)
    except UsageError as error:  # the cluster is one that was there before
        sys.stderr.write(f"left out: heartbeats: {error}\n")
        return
    with cluster:
        arena = Arena(cluster.bootstrap_servers)
        count = heartbeat_count(cluster.proxy(1))
        for client in in_turns(settings.able("member", CLIENTS), settings.run_count):
            figures = member_figures(arena, client, slice_count, count)
            yield Measurement(BENCHMARK.name, "member of a group", client.name, figures)


def member_figures(
    arena: Arena, client: Client, slice_count: int, count: Callable[[], int]
) -> Figures:
    """Run a client as a group member while it computes; `count` returns its heartbeats so far."""
    with arena.topic(partition_count=1) as topic, listening(count) as beats_s:
        job = Job(arena.bootstrap_servers, topic, 1, slice_count, value_bytes=0)
        reported = arena.run(client, "member", job)
    gaps_ms = [
        gap_s * 1_000
        for gap_s in gaps_s(beats_s, reported["computing_from_s"], reported["computing_until_s"])
    ]
    missed_count = sum(gap_ms > SESSION_TIMEOUT_MS for gap_ms in gaps_ms)
    if not reported["is_member"]:
        missed_count = max(missed_count, 1)
    return {"missed_heartbeats": missed_count, "heartbeat_gap_ms": max(gaps_ms)}


BENCHMARK = Benchmark("busy neighbour", "Beside a thread that computes", measure)

if __name__ == "__main__":
    sys.exit(run_benchmark(BENCHMARK, __doc__))
