"""What is in the way of a target that a run missed, and what was tried: the words for `RESULTS.md`.

Figures in here are those of docs/decisions, where they are with all that was measured.

Owner: none; the table is constant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Obstacle(NamedTuple):
    """A text for the rows whose names begin with `what`, beside any rival or the one named."""

    what: str
    text: str
    rival: str = ""


OBSTACLES = (
    Obstacle(
        "consume, record objects, client CPU",
        "with the bytes in the cache a record takes 5 ns for its checksum, 9 to decode, 20 to be "
        "made, and 25 for the loop that looks at its value; behind a socket they come from farther "
        "away (decoding takes 31 then), and the kernel's copy adds some 20. Tried: records filled "
        "anew and fields read without a call (72 to 45 ns), the checksum's package loaded "
        "beforehand (20 ms a process), each batch summed right before it is decoded (22 ns, apart "
        "43).",
    ),
    Obstacle(
        "consume, record objects, records/s",
        "the broker and the client share the cores, and a client that reads faster than the broker "
        "sends waits for it; in a short run so does the first fetch, which counts.",
    ),
    Obstacle(
        "arrow, in, poll_arrow",
        "bytes are copied twice, by the kernel and into Arrow's contiguous columns, and the places "
        "of a record's fields stand in a table between decoding and filling, which serves limits "
        "and seeks as well. Checksum and decoding take 22 ns, and filling 20 to 40: "
        "all columns of a poll are filled at its end, when their bytes have left the cache, into "
        "memory that is new to the process. Tried: constant columns filled in the core (33 ns "
        "less), memory of frames that is kept, plain batches summed and decoded as one (46 ns "
        "less). Not tried: columns that grow as batches are decoded (some 10 ns less in the core "
        "alone), and memory for them that is kept (another 10).",
    ),
    Obstacle(
        "latency, one record, linger 0",
        "a record costs the sender two turns of the engine, in Python, and the application's "
        "thread two hand-overs of the GIL: 0.46 ms of CPU in all on busy cores. librdkafka's "
        "threads need neither. Tried: system calls that end at once keep the GIL. Not tried: a "
        "turn that asks only the managers that have something to say.",
        rival="confluent-kafka",
    ),
    Obstacle(
        "latency, one record, linger 0",
        "two threads of ours take part in a record, the application's and the sender's; each has "
        "to be woken, and to get a core and the GIL. A JVM's threads need no GIL.",
        rival="Java",
    ),
    Obstacle(
        "busy neighbour, member of a group",
        "the heartbeat thread looks at least four times in an interval whether one is due; each "
        "time it has to get a core, and the GIL from the thread that computes. The session here is "
        "3 s; with the default of 45 s there is fifteen times as much time.",
    ),
    Obstacle(
        "busy neighbour, a record each 10 ms",
        "the sender has to get the GIL from the thread that computes, which gives it up after the "
        "switch interval of 5 ms, twice a record: once to write, once to read; where others are "
        "busy on the cores it waits for one of them as well. Tried: system calls that end at once "
        "keep the GIL. What is left is CPython's, and `sys.setswitchinterval` the application's.",
    ),
    Obstacle(
        "growth, produce with keys, partitions",
        "with keys over 1,000 partitions a batch has the few records of 5 ms, and what is done in "
        "Python once per batch (30 us in the application's thread, 60 in the sender's) is divided "
        "by few: it is the cost of a batch that is flat. Not tried: that part compiled, too.",
    ),
    Obstacle(
        "growth, produce without keys, partitions",
        "the sticky partition changes with each full batch, so that many partitions mean many that "
        "are used for the first time in a run, with all that is made once for each.",
    ),
    Obstacle(
        "growth, consume, partitions",
        "what is made once for each partition (some 70 us: where it begins, its place in the first "
        "request, what came of it) is divided by few records in a run as short as this; batches, "
        "which are small there, cost no more. Tried: plain batches checked and decoded as one (2.6 "
        "to 0.5 us a record with 1,000 partitions).",
    ),
    Obstacle(
        "import, the package, import",
        "this is time, not CPU: it depends on how fast a core is, on who else wants it, and on "
        "whether the files are in the system's cache.",
    ),
    Obstacle(
        "growth,",
        "the batches are the same at each size, and what is kept is bounded, so that this should "
        "be flat: the cause is not known. CPU time varies where cores and caches are shared.",
    ),
    Obstacle(
        "produce,",
        "the cause is not known. Records are made under the GIL in the application's thread, and "
        "the sender's gets it once or more per batch; broker and client share the cores, and who "
        "sends faster than the broker writes waits for it.",
    ),
    Obstacle(
        "arrow, out,",
        "the cause is not known. Rows are copied once into batches by the compiled core, each "
        "batch has its checksum, and the kernel copies it once more; the rest is Python once per "
        "batch.",
    ),
    Obstacle(
        "pure,",
        "the cause is not known. Without the compiled core each record is packed or unpacked by "
        "the interpreter, as kafka-python's is, once, and what can be is done once per batch.",
    ),
    Obstacle(
        "memory,",
        "the cause is not known. Batches and responses are bounded by the settings of the target; "
        "what comes on top is the allocator's, and records that the application still holds.",
    ),
    Obstacle(
        "tls, one record, linger 0",
        "a record takes four TLS records there and back, with the consumer's fetch. Each costs the "
        "client 15 us more than in plain text (benchmarks/tls_layers.py), and the broker, which is "
        "Java, about as much as the rest of the difference. Tried: a read from OpenSSL that could "
        "only say that it wants more is left out (10 us of a round trip).",
    ),
    Obstacle(
        "transactions,",
        "of 2.8 ms, traced, the brokers have 1.3 in all: 1.0 for the batch, for which the leader "
        "first has the coordinator write that the partition takes part, and 0.3 for the end. Some "
        "0.6 to 1 % of transactions wait 20 ms besides, for the markers of the one before. The "
        "client has three turns of the engine (0.2 ms each), the application's 1,000 records "
        "(0.2), the system calls that send (0.13), and the way between its threads. Tried: a begin "
        "that does not wait for the sender's thread, and one that hands the GIL to its caller: "
        "more batches wait for markers then; the first batch at once, while the application still "
        "appends. Turns differ by half with either client, so a run needs many.",
    ),
    Obstacle(
        "tls,",
        "the broker encrypts and decrypts each byte in Java, on the cores that it shares with the "
        "client: it is the limit for both clients, and what is left between them shrinks.",
    ),
    Obstacle(
        "import, the package, optional",
        "this would be a mistake of ours: something imports an optional dependency before it is "
        "asked for.",
    ),
)
"""The first that fits is reported."""


def obstacle(what: str, wanted: str, known: Iterable[Obstacle] | None = None) -> str:
    """Return what is known about a row; `known` None means `OBSTACLES`.

    Raises:
        ValueError: nothing is.
    """
    for one in OBSTACLES if known is None else known:
        if what.startswith(one.what) and one.rival in wanted:
            return one.text
    raise ValueError(
        f"{what} ({wanted}) is missed, and measuring/obstacles.py does not say what is in the way"
    )
