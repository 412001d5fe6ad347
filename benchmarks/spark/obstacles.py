"""What is in the way of a Spark target that a run missed: the words for `RESULTS.md`.

Owner: none; the table is constant.
"""

from __future__ import annotations

from measuring.obstacles import Obstacle
from spark.contender import CEILING, CEILING_VALUE, OURS

_SHARED_CORES = (
    "the two cores serve the broker, two Python workers and the JVM, and are 90 % busy: what is "
    "missing is CPU. Beside what the ceiling takes, a record costs a worker 0.15 us and the broker "
    "0.05. By `perf`, the largest parts of a worker are the interpreter, once per request and "
    "batch (11 %), the kernel's copies in and out (17), copying into Arrow's columns (8), the "
    "checksum (6), decoding (4) and filling offsets and times (3). Tried: a receive buffer that "
    "the system sizes (0.25 us a record, then 0.11 to 0.21), fetches of 8 MiB (0.15 to 0.12, the "
    "stream to the JVM included), Arrow batches of 1,500 to 40,000 rows, not 10,000 (11 % more CPU "
    "to 6 % less). Not tried: columns that grow as batches are decoded."
)

OBSTACLES: tuple[Obstacle, ...] = (
    Obstacle("read,", _SHARED_CORES, rival=CEILING_VALUE.name),
    Obstacle("read,", _SHARED_CORES, rival=CEILING.name),
    Obstacle(
        "read,",
        "a record's bytes are fetched, checked and decoded whole, whatever columns are wanted: "
        "what a projection saves is the making of columns, their way to the JVM, and Spark's own "
        "cost of a column.",
        rival=f"x {OURS.name}",
    ),
    Obstacle(
        "read,",
        "Spark's own cost of a row from a Python source, 0.5 us of CPU, is in each row that is "
        "read; the rest is as beside the ceiling.",
    ),
    Obstacle(
        "small topic",
        "planning a Python source takes two Python processes, and each of the six tasks a Python "
        "worker; the connector's own part is 7 ms of CPU in the plan and 2 in a task.",
    ),
    Obstacle(
        "write, lz4",
        "a million rows take 0.95 s of CPU, brokers included, which is all that two cores have in "
        "that time; Spark's own sink takes 1.06 of 1.14. By `perf`, a worker spends a third of its "
        "time on copies and compression. Tried: a send buffer that the system sizes; batches of a "
        "megabyte (sizes are counted before compression, so there are more batches than of "
        "Java's): no less CPU. Not tried: lz4 by another library than cramjam, which takes a fifth "
        "longer to compress than the package lz4.",
    ),
    Obstacle(
        "write,",
        "rows pass from the JVM to a Python worker as Arrow batches first, which costs Spark "
        "0.3 us a row; the worker takes 0.2 to 0.3 more (0.3 to 0.4 with lz4), and the broker, "
        "which writes the same bytes for both, has the same cores. Tried: a send buffer that the "
        "system sizes.",
    ),
    Obstacle(
        "micro-batch,",
        "a batch of a Python source costs Spark a task in a Python worker for each partition, of "
        "which two run at a time, and the two writes of the checkpoint. A source whose tasks yield "
        "one ready row is no faster (in one session, at load 10, medians of two turns: 581 and 747 "
        "ms, ours 541 and 496, Spark's own 451 and 459). With `maxPartitions` 2 two tasks read the "
        "six partitions (235 and 199 there): the row `pykclient, two tasks`.",
    ),
    Obstacle("stream requests,", "the cause is not known: tasks look up nothing."),
    Obstacle(
        "idle query,",
        "Spark's loop over a source that has nothing new runs in the JVM, 20 times a second, and "
        "each turn is three calls of the Python process and a ListOffsets request. Not tried: a "
        "fetch at the ends that waits for records.",
    ),
    Obstacle(
        "memory,",
        "the buffers of two batches of 20 MB each, decompressed, the Arrow batch that is made and "
        "the one that Spark has, beside 95 MB of Python with pyarrow and PySpark.",
    ),
    Obstacle(
        "executors,",
        "two JVMs compile, collect garbage and report to the driver, where one does otherwise.",
    ),
)
"""The first that fits is reported."""
