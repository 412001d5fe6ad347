"""Where does the per-record boundary of `pykclient.accel` belong? Several placements, one table.

    python benchmarks/hot_path_spike/run.py [--json FILE]

Builds spike.pyx into a temporary folder (needs Cython and gcc). A figure is the least of several
runs, in nanoseconds of CPU a record: 100-byte values, one topic of 6 partitions, batches of a
million bytes, the deliveries kept as an application does that waits for them later. No socket and
no sender thread: it is the application thread's share. The outcome stands in
docs/decisions/0001-per-record-boundary.md.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from contextlib import nullcontext
from itertools import repeat
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from pykclient.accel import pure  # noqa: E402
from pykclient.types import TimestampType  # noqa: E402

VALUE = b"x" * 100
KEYS = [b"key-%06d" % number for number in range(1000)]
PARTITION_COUNT = 6
BATCH_SIZE_BYTES = 1_000_000
NOW_MS = 1_700_000_000_000
RECORD_COUNT = 60_000
RUN_COUNT = 9


def build(folder: Path):
    """Compile spike.pyx and import it."""
    c_file, library = folder / "spike.c", folder / f"spike{sysconfig.get_config_var('EXT_SUFFIX')}"
    cython = [sys.executable, "-m", "cython", HERE / "spike.pyx", "-o", c_file]
    subprocess.run(cython, check=True)
    include = f"-I{sysconfig.get_paths()['include']}"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", include, c_file, "-o", library], check=True)
    spec = importlib.util.spec_from_file_location("spike", library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Batch:
    """What deliveries point to."""


class LayeredTopic:
    """The accumulator's share in Python: choose the partition, take its lock, append."""

    def __init__(self, make_appender):
        self.make_appender = make_appender
        self.appenders = [None] * PARTITION_COUNT
        self.locks = [threading.Lock() for _ in range(PARTITION_COUNT)]

    def append(self, value, key, partition, timestamp_ms, headers, on_delivery):
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        if partition is None:
            partition = 0 if key is None else chosen_by(key)
        with self.locks[partition]:
            appender = self.appenders[partition]
            delivery = appender and appender.append(timestamp_ms, key, value, headers)
            if delivery is None:
                appender = self.appenders[partition] = self.make_appender()
                delivery = appender.append(timestamp_ms, key, value, headers)
            return delivery


class LayeredProducer:
    """The front-end's share in Python, over any topic: check the arguments, find the topic."""

    def __init__(self, topic, slow=None):
        self.topics = {"t": topic}
        self.slow = slow

    def send(
        self,
        topic,
        value=None,
        key=None,
        *,
        partition=None,
        timestamp_ms=None,
        headers=None,
        on_delivery=None,
    ):
        if not (value is None or type(value) is bytes) or not (key is None or type(key) is bytes):
            raise TypeError
        found = self.topics[topic]
        delivery = found.append(value, key, partition, timestamp_ms, headers, on_delivery)
        if delivery is None:
            return self.slow(topic, value, key, partition, timestamp_ms, headers, on_delivery)
        return delivery


class EncodingAppender:
    """An appender in Python over a compiled `encode_record`."""

    def __init__(self, encode):
        self.encode = encode
        self.batch = Batch()
        self.buffer = bytearray()
        self.count = 0

    def append(self, timestamp_ms, key, value, headers):
        record = self.encode(timestamp_ms - NOW_MS, self.count, key, value)
        if len(self.buffer) + len(record) > BATCH_SIZE_BYTES:
            return None
        self.buffer += record
        self.count += 1
        return pure.Delivery(self.batch, self.count - 1)


def chosen_by(key):
    return (pure.murmur2(key) & 0x7FFFFFFF) % PARTITION_COUNT


def pure_producer():
    """pykclient's own pure core, as a producer uses it."""

    def slow(topic, value, key, partition, timestamp_ms, headers, on_delivery):
        chosen = 0 if key is None else chosen_by(key)
        appender = pure.RecordAppender(BATCH_SIZE_BYTES, Batch(), threading.Lock())
        topics.open[chosen] = appender
        if key is None:
            topics.sticky = appender
        return appender.append(timestamp_ms or NOW_MS, key, value, headers, on_delivery)

    topics = pure.TopicAppenders(PARTITION_COUNT)
    producer = pure.SendCore(slow, time.time_ns)
    producer.topics["t"] = topics
    return producer


def compiled_topic(spike):
    """A compiled topic, and what runs once per batch: hand it a new appender."""

    def slow(_topic, value, key, partition, timestamp_ms, headers, on_delivery):
        chosen = 0 if key is None else chosen_by(key)
        topic.appenders[chosen] = spike.Appender(BATCH_SIZE_BYTES, Batch())
        return topic.append(value, key, partition, timestamp_ms, headers, on_delivery)

    topic = spike.TopicAppender(PARTITION_COUNT)
    return topic, slow


def producers(spike):
    """Every placement of the boundary, by name."""

    def new_pure():
        return pure.RecordAppender(BATCH_SIZE_BYTES, Batch(), nullcontext())

    yield "all in Python, in layers", LayeredProducer(LayeredTopic(new_pure))
    yield "all in Python, send as one call (the pure core)", pure_producer()
    encoding = LayeredTopic(lambda: EncodingAppender(spike.encode_record))
    yield "compiled: encode_record", LayeredProducer(encoding)
    appending = LayeredTopic(lambda: spike.Appender(BATCH_SIZE_BYTES, Batch()))
    yield "compiled: append and delivery", LayeredProducer(appending)
    yield (
        "compiled: partition, append, delivery; send in Python",
        LayeredProducer(*compiled_topic(spike)),
    )
    for name, producer_type in (
        ("compiled: all of send", spike.SendCore),
        ("the same, of a Python subclass", type("Producer", (spike.SendCore,), {})),
    ):
        topic, slow = compiled_topic(spike)
        producer = producer_type(slow)
        producer.topics["t"] = topic
        yield name, producer


def nanoseconds(function, count):
    """CPU time of one call of `function`, divided by `count`; the least of several."""
    times = []
    for _ in range(RUN_COUNT):
        gc.collect()
        start = time.process_time_ns()
        function()
        times.append(time.process_time_ns() - start)
    return min(times) / count


def send_figures(producer):
    def without_key():
        kept = []
        for _ in repeat(None, RECORD_COUNT):
            kept.append(producer.send("t", value=VALUE))  # noqa: PERF401 - as a user's loop

    def with_key():
        kept = []
        for key in KEYS * (RECORD_COUNT // len(KEYS)):
            kept.append(producer.send("t", value=VALUE, key=key))  # noqa: PERF401

    return {
        "no key": nanoseconds(without_key, RECORD_COUNT),
        "key": nanoseconds(with_key, RECORD_COUNT),
    }


def delivery_figures(spike):
    """The append alone, with deliveries that the garbage collector tracks or does not track."""

    def append_with(name):
        appender = getattr(spike.Appender(10**7, Batch()), name)
        kept = []
        for _ in repeat(None, RECORD_COUNT):
            kept.append(appender(NOW_MS, None, VALUE))  # noqa: PERF401

    return {
        "not tracked": nanoseconds(lambda: append_with("append"), RECORD_COUNT),
        "tracked": nanoseconds(lambda: append_with("append_tracked"), RECORD_COUNT),
    }


def decoders(spike, data, count):
    """Every way from a batch's bytes to the application's loop over `record.value`."""
    arguments = (data, count, 5_000_000_000, NOW_MS)

    def columns():
        return pure.decode_records(data, 0, 0, count, 5_000_000_000, NOW_MS)[0]

    def objects(columns):
        return pure.iterate_records(
            columns,
            topic="t",
            partition=0,
            timestamp_type=TimestampType.CREATE_TIME,
            leader_epoch=None,
        )

    yield "Python: columns", lambda: columns().values, False
    yield "Python: columns, record objects from them", lambda: objects(columns()), True
    yield "compiled: columns", lambda: spike.decode_columns(*arguments)[3], False
    yield (
        "compiled: columns, record objects from them in Python",
        lambda: objects(pure.decoder.RecordColumns(*spike.decode_columns(*arguments))),
        True,
    )
    yield (
        "compiled: list of record objects, tracked",
        lambda: spike.decode_tracked_records(*arguments),
        True,
    )
    yield (
        "compiled: list of record objects, not tracked",
        lambda: spike.decode_records(*arguments),
        True,
    )
    yield "compiled: record objects made while iterated", lambda: spike.Chunk(*arguments), True


def decode_figures(spike):
    count = 9000
    appender = pure.RecordAppender(10**7, None, nullcontext())
    for number in range(count):
        appender.append(NOW_MS + number // 100, None, VALUE)
    appender.seal()
    figures = {}
    for name, decode, has_objects in decoders(spike, bytes(appender.view()), count):

        def loop(decode=decode, has_objects=has_objects):
            if has_objects:
                for record in decode():
                    record.value  # noqa: B018 - reading it is what is timed
            else:
                for _ in decode():
                    pass

        figures[name] = nanoseconds(loop, count)
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spike = build(Path(folder))
    figures = {
        "send": {name: send_figures(producer) for name, producer in producers(spike)},
        "append, delivery kept": delivery_figures(spike),
        "decode and read each value": decode_figures(spike),
    }
    for title, rows in figures.items():
        print(f"{title}, ns a record")
        for name, figure in rows.items():
            shown = figure if isinstance(figure, dict) else {"": figure}
            words = (f"{what} {ns:.0f}".strip().rjust(12) for what, ns in shown.items())
            print(f"  {name:56}", *words)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
