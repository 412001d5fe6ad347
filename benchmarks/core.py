"""CPU time of one record in the per-record core, compiled and pure.

    python benchmarks/core.py [--records N] [--runs N] [--json FILE]

A figure is the least of several runs, in nanoseconds of CPU a record: 100-byte values, batches of a
million bytes, no socket and no second thread. `send` and the reading of deliveries are the work of
the application's thread in producing; the callback and the finishing of a batch are the sender's.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from importlib import import_module
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from pykclient.producer.record import RecordMetadata
from pykclient.types import TimestampType

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from pykclient.accel.abc import OnDelivery

VALUE = b"v" * 100
KEYS = [b"key-%06d" % number for number in range(1_000)]
HEADERS = [("name", b"value")]
PARTITION_COUNT = 6
CAPACITY_BYTES = 1_000_000
NOW_MS = 1_700_000_000_000
HEADER_BYTES = 61


class Sending:
    """A `SendCore` that starts a new batch when one is full, as a producer does."""

    def __init__(self, core: ModuleType) -> None:
        self.core = core
        self.topic = core.TopicAppenders(PARTITION_COUNT)
        self.sends: Any = core.SendCore(self._send_slowly, time.time_ns)
        self.sends.topics["t"] = self.topic

    def _send_slowly(
        self,
        _topic: str,
        value: bytes,
        key: bytes | None,
        _partition: None,
        timestamp_ms: int | None,
        headers: list[tuple[str, bytes]] | None,
        on_delivery: OnDelivery[RecordMetadata] | None,
    ) -> object:
        chosen = 0 if key is None else self.core.partition_of_key(key, PARTITION_COUNT)
        result = self.core.BatchResult(RecordMetadata, "t", chosen)
        appender = self.core.RecordAppender(CAPACITY_BYTES, result, threading.Lock())
        result.follow(appender)
        self.topic.open[chosen] = appender
        if key is None:
            self.topic.sticky = appender
        return appender.append(timestamp_ms or NOW_MS, key, value, headers, on_delivery)


def timed(run: Callable[[], int]) -> float:
    """Nanoseconds of CPU a record; `run` does the work and tells how many records it was."""
    start_ns = time.process_time_ns()
    count = run()
    return (time.process_time_ns() - start_ns) / count


def measure(core: ModuleType, count: int) -> dict[str, float]:
    """One run of everything."""
    send = Sending(core).sends.send
    figures = {"empty loop": timed(lambda: len([None for _ in repeat(None, count)]))}
    figures["send"] = timed(lambda: len([send("t", VALUE) for _ in repeat(None, count)]))
    keys = KEYS * (count // len(KEYS) + 1)
    figures["send with a key"] = timed(lambda: len([send("t", VALUE, key) for key in keys[:count]]))
    figures["send with headers"] = timed(
        lambda: len([send("t", VALUE, headers=HEADERS) for _ in repeat(None, count)])
    )
    figures.update(measure_one_batch(core))
    return figures


def measure_one_batch(core: ModuleType) -> dict[str, float]:
    """Measure how long it takes to finish a full batch, and to read its bytes back."""
    result = core.BatchResult(RecordMetadata, "t", 0)
    appender = core.RecordAppender(CAPACITY_BYTES, result, threading.Lock())
    result.follow(appender)
    written: list[RecordMetadata] = []
    deliveries = []
    while delivery := appender.append(
        NOW_MS, None, VALUE, None, lambda where, _: written.append(where)
    ):
        deliveries.append(delivery)
    appender.seal()
    result.base_offset = 0
    count = len(deliveries)
    figures = {
        "finish a batch": timed(lambda: len(appender.frame(HEADER_BYTES)) and count),
        "call a callback": timed(lambda: result.report(appender.callbacks, print) or len(written)),
    }
    result.is_well = True
    figures["ask a delivery"] = timed(lambda: len([one.exception() for one in deliveries]))
    figures["result of a delivery"] = timed(lambda: len([one.result() for one in deliveries]))
    data = core.record_bytes(bytes(appender.view()))
    columns = None

    def decode() -> int:
        nonlocal columns
        columns, _ = core.decode_records(data, 0, 0, count, 0, NOW_MS)
        return count

    def read() -> int:
        records, _ = core.iterate_records(
            columns,
            topic="t",
            partition=0,
            timestamp_type=TimestampType.CREATE_TIME,
            leader_epoch=None,
        )
        return len([record.value for record in records])

    figures["decode"] = timed(decode)
    figures["read the values of record objects"] = timed(read)
    figures["Arrow buffers"] = timed(
        lambda: core.arrow_buffers([columns], wanted=("key", "value")) and count
    )
    return figures


def main() -> None:
    """Measure both cores in turns and print one table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    cores = [import_module(f"pykclient.accel.{name}") for name in ("pure", "compiled")]
    runs = [[measure(core, arguments.records) for core in cores] for _ in range(arguments.runs)]
    table = {
        name: [min(run[place][name] for run in runs) for place in range(len(cores))]
        for name in runs[0][0]
    }
    print("| CPU, nanoseconds a record | pure | compiled |")
    print("| --- | --- | --- |")
    for name, figures in table.items():
        print(f"| {name} | {' | '.join(f'{figure:.0f}' for figure in figures)} |")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
