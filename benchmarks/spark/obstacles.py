"""What is in the way of a Spark target that a run missed: the words for `RESULTS.md`.

Owner: none; the table is constant.
"""

from __future__ import annotations

from measuring.obstacles import Obstacle
from spark.contender import CEILING, CEILING_VALUE, OURS

_SHARED_CORES = (
    "two cores serve the broker, two Python workers and the JVM, all of them busy. Beside what the "
    "ceiling takes, a record costs the broker some 0.05 us, and a worker some 0.1: the kernel's "
    "copy, the checksum, decoding, and the copy into Arrow's columns."
)

OBSTACLES: tuple[Obstacle, ...] = (
    Obstacle("read,", _SHARED_CORES, rival=CEILING_VALUE.name),
    Obstacle("read,", _SHARED_CORES, rival=CEILING.name),
    Obstacle(
        "read,",
        "a record's bytes are fetched, checked and decoded whole, whatever columns are wanted: "
        "what a projection saves is the making of columns, the way to the JVM, and Spark's own "
        "cost of a column.",
        rival=f"x {OURS.name}",
    ),
    Obstacle(
        "read,",
        "Spark's own cost of a row from a Python source (0.5 us of CPU) is in each row that is "
        "read, and the broker has the same cores.",
    ),
    Obstacle(
        "small topic",
        "planning a Python source starts or wakes two Python processes, and each of the six tasks "
        "is a round trip to a Python worker; what the connector does there takes 7 ms in the plan "
        "and 3 in a task.",
    ),
    Obstacle(
        "write,",
        "rows pass from the JVM to a Python worker as Arrow batches first, which costs Spark "
        "0.3 us a row; the broker, which writes the same bytes for both, has the same cores.",
    ),
    Obstacle(
        "micro-batch,",
        "a batch of a Python source costs Spark a task in a Python worker for each partition, of "
        "which two run at a time, and the two writes of the checkpoint.",
    ),
    Obstacle("stream requests,", "the cause is not known: tasks look up nothing."),
    Obstacle(
        "idle query,",
        "Spark's loop over a source that has nothing new runs in the JVM, whatever the source is.",
    ),
    Obstacle("memory,", "the cause is not known."),
    Obstacle(
        "executors,",
        "two JVMs compile, collect garbage and report to the driver, where one does otherwise.",
    ),
)
"""The first that fits is reported."""
