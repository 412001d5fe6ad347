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
    "stream to the JVM included). Not tried: smaller Arrow batches, which stay in a core's cache, "
    "and columns that grow as batches are decoded."
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
        "both take 1.36 s of CPU for a million rows, brokers included, but ours keeps the cores "
        "busy for three quarters of the time only. By `perf`, a worker spends a third of its time "
        "on copies and compression; that its two threads wait for each other is likely, and not "
        "shown. Tried: a send buffer that the system sizes. Not tried: lz4 by another library than "
        "cramjam, which takes a fifth longer to compress than the package lz4.",
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
        "which two run at a time, and the two writes of the checkpoint; the connector's part of a "
        "warm task is 2 ms of CPU and 4 in all, of which a Metadata request is one: a consumer "
        "that is given back forgets its topic.",
    ),
    Obstacle("stream requests,", "the cause is not known: tasks look up nothing."),
    Obstacle(
        "idle query,",
        "Spark's loop over a source that has nothing new runs in the JVM, 20 times a second, and "
        "each turn is three calls of the Python process and a ListOffsets request. Not tried: a "
        "fetch at the ends that waits for records.",
    ),
    Obstacle("memory,", "the cause is not known."),
    Obstacle(
        "executors,",
        "two JVMs compile, collect garbage and report to the driver, where one does otherwise.",
    ),
)
"""The first that fits is reported."""
