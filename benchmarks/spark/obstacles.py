"""What is in the way of a Spark target that a run missed: the words for `RESULTS.md`.

Owner: none; the table is constant.
"""

from __future__ import annotations

from measuring.obstacles import Obstacle
from spark.contender import CEILING, CEILING_VALUE, OURS

_SHARED_CORES = (
    "CPU: two cores serve the broker, the Python workers and the JVM, and a read keeps them busy. "
    "By the profile below two thirds of it are Spark's JVM (56 % with values "
    "alone), which the ceiling has as well; by a "
    "recording of its methods (JFR), half of what its task threads do is making its own rows of "
    "Arrow's columns. The rest is ours: the broker and the interpreter, once per request and "
    "batch, are a quarter of it each, the kernel's sockets a fifth, and copies, checksum, decoding "
    "and filling columns the remainder. What a worker has loaded is kept from Spark's collection "
    "of garbage after each task; the ceiling's workers are not: a sixth of its CPU (values only). "
    "Tried: a receive buffer that the system sizes, fetches of 8 MiB, Arrow batches of 1,500 to "
    "40,000 rows (11 % more CPU to 6 % less). Not tried: columns that grow as batches are decoded."
)

OBSTACLES: tuple[Obstacle, ...] = (
    Obstacle("read,", _SHARED_CORES, rival=CEILING_VALUE.name),
    Obstacle("read,", _SHARED_CORES, rival=CEILING.name),
    Obstacle(
        "read,",
        "a record's bytes are fetched, checked and decoded whole, whatever columns are wanted: "
        "what a projection saves is the making of columns, their way to the JVM, and Spark's own "
        "cost of a column. By the profile below, broker and workers take nearly as much CPU with "
        "values alone as with all columns (0.61 s a read beside 0.67, in the faster runs that were "
        "sampled); the JVM takes 0.80 beside 1.39.",
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
        "by the profile below the broker, which writes the same bytes for both sides, takes 43 % "
        "of the CPU and Spark's JVM 28; a worker takes 27, of which a quarter is compression (in "
        "the task's own thread, so both cores compress), a third the interpreter, and a sixth "
        "copies. Tried: a send buffer that the system sizes; batches of a megabyte (sizes are "
        "counted before compression, so there are more batches than of Java's): no less CPU. Not "
        "tried: lz4 by another library than cramjam, which takes a fifth longer to compress than "
        "the package lz4.",
    ),
    Obstacle(
        "write,",
        "by the profile below the broker, which writes the same bytes for both sides, takes 46 % "
        "of the CPU and Spark's JVM 33, where rows become Arrow batches for the Python worker; "
        "the worker takes 20, of which two fifths are the interpreter and a seventh copies. "
        "Tried: a send buffer that the system sizes.",
    ),
    Obstacle(
        "micro-batch,",
        "a batch costs Spark a task in a Python worker for each partition, of which two run at a "
        "time, and the two writes of the checkpoint. Spark collects a worker's garbage after each "
        "task, which took 58 ms of CPU beside 6 for the task, and 0.1 since what is loaded is kept "
        "from the collector: in a session each at load 14, a batch took 760 ms before, beside "
        "Spark's own 547, of which 520 were its tasks, and 266 and 346 since, beside 434 and 532, "
        "of which 106 and 127 were its tasks and 100 and 121 the checkpoint. With `maxPartitions` "
        "2 two tasks read the six partitions: the row `pykclient, two tasks`.",
    ),
    Obstacle(
        "exactly once,",
        "a task initialises its transactional id anew, and the commit of a batch is a dozen "
        "requests one after the other: the driver's id, the record, the tasks' transactions, the "
        "decision, their ends, and a look at what is open.",
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

PROFILE_COMMAND = (
    "perf record -a -e cpu-clock -F 497    # beside `spark_suite.py --only read`, or write"
)
PROFILE: tuple[tuple[str, ...], ...] = (
    (
        "% of the CPU, that of others on the machine left out",
        "read, none, noop",
        "value only",
        "ceiling, value only",
        "write, none",
        "write, lz4",
    ),
    ("Spark's task threads", "58", "45", "57", "21", "21"),
    ("the rest of Spark's JVM, its compilers included", "9", "11", "11", "12", "7"),
    ("broker; for writes with making and deleting topics", "8", "11", "0", "46", "43"),
    ("planning processes and driver", "1", "2", "4", "2", "2"),
    ("worker: interpreter", "8", "11", "3", "8", "9"),
    ("worker: kernel, mostly sockets", "7", "9", "6", "2", "2"),
    ("worker: collecting garbage", "0", "0", "17", "2", "2"),
    ("worker: copies", "2", "3", "0", "3", "4"),
    ("worker: checksum", "2", "3", "", "1", "0"),
    ("worker: decoding and filling columns", "2", "4", "", "", ""),
    ("worker: dividing rows and filling batches", "", "", "", "2", "2"),
    ("worker: compression", "", "", "", "", "7"),
    ("worker: Arrow and the rest", "3", "2", "1", "2", "2"),
)
"""Where the CPU goes, by the samples of `perf` in repeated runs of one case on 23 November 2026."""
