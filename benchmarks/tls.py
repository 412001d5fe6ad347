"""Cost of TLS, and the clients compared over it.

As in `produce.py`, `consume.py` and `latency.py`, with large batches, record objects, and one
record at a time; but over TLS 1.3, with the broker's certificate verified, at a broker of its own.
"pykclient, plain" does the same at the same broker without TLS, in the same turns.

    python benchmarks/tls.py [--records N] [--runs N] [--clients ...] [--json FILE]
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from latency import CASE, SHARE
from measuring.arena import Arena
from measuring.benchmark import KAFKA_VERSION, Benchmark, run_benchmark
from measuring.client import CONFLUENT, PYKCLIENT
from measuring.contest import in_turns
from measuring.measurement import Measurement
from pykclient.testing import ClusterSecurity, KafkaCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measuring.benchmark import Settings
    from measuring.client import Client

PLAIN = "pykclient, plain"


def measure(_: Arena, settings: Settings) -> Iterator[Measurement]:
    """Measure how the clients send, read and do both, at a broker with both listeners."""
    security = ClusterSecurity(listeners=("PLAINTEXT", "SSL"))
    with KafkaCluster(version=KAFKA_VERSION, security=security) as kafka:
        tls = kafka.client_settings("SSL")
        over_tls = Arena(
            kafka.bootstrap_servers,
            tls_servers=tls["bootstrap_servers"],
            ca_location=tls["ssl_truststore_location"],
        )
        entries = [
            (client, over_tls) for client in settings.able("consume", (PYKCLIENT, CONFLUENT))
        ]
        if entries and entries[0][0] is PYKCLIENT:
            entries.append((replace(PYKCLIENT, name=PLAIN), Arena(kafka.bootstrap_servers)))
        yield from _produce(entries, settings)
        yield from _consume(entries, settings)
        # Once without being counted: a broker's JVM compiles its way of small records only now, and
        # that of TLS is the longer one.
        for client, arena in entries:
            arena.latency(client, settings.record_count // SHARE)
        for client, arena in in_turns(entries, settings.run_count):
            figures = arena.latency(client, settings.record_count // SHARE)
            yield Measurement(BENCHMARK.name, CASE, client.name, figures)


def _produce(entries: list[tuple[Client, Arena]], settings: Settings) -> Iterator[Measurement]:
    for client, arena in in_turns(entries, settings.run_count):
        figures = arena.produce(client, "produce", settings.record_count)
        yield Measurement(BENCHMARK.name, "produce", client.name, figures)


def _consume(entries: list[tuple[Client, Arena]], settings: Settings) -> Iterator[Measurement]:
    with ExitStack() as stack:
        turns = [
            (client, arena, stack.enter_context(arena.filled_topic(settings.record_count)))
            for client, arena in entries
        ]
        for client, arena, job in in_turns(turns, settings.run_count):
            yield Measurement(
                BENCHMARK.name, "consume", client.name, arena.run(client, "consume", job)
            )


BENCHMARK = Benchmark("tls", "Over TLS", measure)

if __name__ == "__main__":
    sys.exit(run_benchmark(BENCHMARK, __doc__))
