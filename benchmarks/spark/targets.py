"""The targets of the Spark connector.

Owner: none; targets are immutable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from measuring.targets import LimitTarget, RatioTarget, Relation
from spark.contender import (
    CEILING,
    CEILING_VALUE,
    OFFICIAL,
    OURS,
    OURS_ONCE,
    OURS_SHARED,
    OURS_VALUE,
    TUNED,
)
from spark.reading import CODECS, QUERIES
from spark_memory import CASES

if TYPE_CHECKING:
    from measuring.targets import Target

AT_LEAST, AT_MOST = Relation.AT_LEAST, Relation.AT_MOST
RATE = "records_per_second"
READS = tuple(("read", f"{codec}, {query}") for codec in CODECS for query in QUERIES)
FEEDS = {"dense": 1.0, "sparse": 1 / 3}
COUNTS = ("1 partition", "6 partitions")
STREAM = ("stream requests", "a warm batch of 6 tasks")
EXACTLY_ONCE = ("exactly once", "10,000 rows a batch")
IDLE = ("idle query", "a minute")
MEMORY = "memory, 500 kB a record, lz4"
EXECUTORS = ("executors", "noop")
TWO_EXECUTORS, ONE_EXECUTOR = "pykclient", "pykclient, one executor"

TARGETS: tuple[Target, ...] = (
    *(
        target
        for place in READS
        for target in (
            RatioTarget(place, RATE, AT_LEAST, 3, OFFICIAL.name),
            RatioTarget(place, RATE, AT_LEAST, 2, TUNED.name),
            RatioTarget(place, RATE, AT_LEAST, 0.8, CEILING.name),
            RatioTarget(place, RATE, AT_LEAST, 1.5, OURS.name, OURS_VALUE.name),
            RatioTarget(place, RATE, AT_LEAST, 0.8, CEILING_VALUE.name, OURS_VALUE.name),
        )
    ),
    RatioTarget(("small topic", "300 records, count"), "wall_ms", AT_MOST, 1, OFFICIAL.name),
    RatioTarget(("write", "none"), RATE, AT_LEAST, 1.5, OFFICIAL.name),
    RatioTarget(("write", "lz4"), RATE, AT_LEAST, 1.2, OFFICIAL.name),
    *(
        RatioTarget(
            ("micro-batch", f"{feed} feed, {count}"), "batch_ms", AT_MOST, limit, OFFICIAL.name
        )
        for count in COUNTS
        for feed, limit in FEEDS.items()
    ),
    RatioTarget(
        ("micro-batch", "dense feed, 6 partitions"),
        "batch_ms",
        AT_MOST,
        1,
        OFFICIAL.name,
        OURS_SHARED.name,
    ),
    LimitTarget(STREAM, "list_offsets", 0, is_worst=True),
    LimitTarget(STREAM, "connections", 0, is_worst=True),
    RatioTarget(EXACTLY_ONCE, "batch_ms", AT_MOST, 1.5, OURS.name, OURS_ONCE.name),
    RatioTarget(IDLE, "requests", AT_MOST, 0.25, OFFICIAL.name),
    RatioTarget(IDLE, "spark_cpu_s", AT_MOST, 0.5, OFFICIAL.name),
    *(
        LimitTarget((MEMORY, case.name), figure, limit, is_worst=True)
        for case in CASES
        for figure, limit in (("worker_mb", 256), ("direct_mb", 128))
    ),
    RatioTarget(EXECUTORS, RATE, AT_LEAST, 0.9, ONE_EXECUTOR, TWO_EXECUTORS),
)
"""In the order of the table."""
