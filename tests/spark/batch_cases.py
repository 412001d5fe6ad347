"""Batch reads that are equal through Spark's own connector and this one, and those that differ.

In options and complaints ``$plain`` is the name of the topic `plain` of `EveryTopic`, and so on.

Owner: none, it holds no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tests.spark.every_topic import FIRST_MS, STEP_MS

if TYPE_CHECKING:
    from collections.abc import Mapping

PLAIN: Final = {"subscribe": "$plain"}
COMMITTED: Final = {"kafka.isolation.level": "read_committed"}
LOSS_IS_LEFT_OUT: Final = {"failOnDataLoss": "false"}
OR_LATEST: Final = {"startingOffsetsByTimestampStrategy": "latest"}


def at(second: float) -> str:
    """Return the time of the record with this offset."""
    return str(FIRST_MS + int(second * STEP_MS))


def each(topic: str, *values: object) -> str:
    """Return a value for each partition of a topic, as JSON."""
    return (
        f'{{"${topic}":{{{",".join(f"{chr(34)}{n}{chr(34)}:{v}" for n, v in enumerate(values))}}}}}'
    )


class Query(NamedTuple):
    """Options of a read, and how many records it finds. ``$plain`` is the topic's name."""

    options: Mapping[str, str]
    row_count: int


NEVER: Final = at(1_000_000)

EQUAL: Final = {
    # What records and logs may be.
    "all codecs, nulls and headers": Query({"subscribe": "$codecs"}, 60),
    "aborted and open transactions": Query({"subscribe": "$transactions"}, 36),
    "committed records": Query({"subscribe": "$transactions", **COMMITTED}, 16),
    "committed records from an offset within an aborted transaction": Query(
        {
            "subscribe": "$transactions",
            "startingOffsets": each("transactions", 6, 6),
            "endingOffsets": each("transactions", 13, 12),
            **COMMITTED,
        },
        5,
    ),
    "committed records by time": Query(
        {"subscribe": "$transactions", "startingTimestamp": "0", **COMMITTED}, 16
    ),
    "holes of compaction": Query({"subscribe": "$compacted"}, 8),
    "offsets within holes of compaction": Query(
        {
            "subscribe": "$compacted",
            "startingOffsets": each("compacted", 8),
            "endingOffsets": each("compacted", 20),
        },
        5,
    ),
    "times within holes of compaction": Query(
        {"subscribe": "$compacted", "startingTimestamp": at(8), "endingTimestamp": at(20)}, 5
    ),
    "the broker's times": Query({"subscribe": "$appended"}, 10),
    "a time before the broker's": Query({"subscribe": "$appended", "startingTimestamp": at(9)}, 10),
    "deleted heads": Query({"subscribe": "$headless"}, 6),
    "an empty partition": Query({"subscribe": "$hollow"}, 10),
    # Which partitions.
    "two topics, with blanks": Query({"SUBSCRIBE": " $plain , $hollow,"}, 30),
    "a pattern": Query({"subscribePattern": "^$plain$$"}, 20),
    "a pattern within the name": Query({"subscribePattern": "l[a]in-\\w+$run"}, 20),
    "a pattern of Java": Query(
        {"subscribePattern": "(?<x>\\p{Alpha}lain)-[\\p{Alnum}]{4}+$run"}, 20
    ),
    "a pattern without a topic": Query({"subscribePattern": "no topic"}, 0),
    "assigned partitions": Query({"assign": '{"$plain":[1],"$hollow":[0,1]}'}, 20),
    "a partition assigned twice": Query({"assign": '{"$plain":[1,1]}'}, 10),
    # Between which offsets.
    "earliest and latest in other letters": Query(
        {**PLAIN, "startingOffsets": " EARLIEST ", "endingOffsets": "Latest"}, 20
    ),
    "starting offsets": Query({**PLAIN, "startingOffsets": each("plain", 3, -2)}, 17),
    "ending offsets": Query({**PLAIN, "endingOffsets": each("plain", 0, 4)}, 4),
    "both": Query(
        {
            **PLAIN,
            "startingOffsets": each("plain", 3, -2),
            "endingOffsets": each("plain", -1, 4),
        },
        11,
    ),
    "from an offset up to itself": Query(
        {
            **PLAIN,
            "startingOffsets": each("plain", 3, 10),
            "endingOffsets": each("plain", 3, 10),
        },
        0,
    ),
    "lost records are left out": Query(
        {
            "subscribe": "$headless",
            "startingOffsets": each("headless", 0, 0),
            **LOSS_IS_LEFT_OUT,
        },
        6,
    ),
    "all requested records are lost": Query(
        {
            "subscribe": "$headless",
            "startingOffsets": each("headless", 0, 10),
            "endingOffsets": each("headless", 3, 10),
            **LOSS_IS_LEFT_OUT,
        },
        0,
    ),
    "an end that is not there is the latest": Query(
        {
            **PLAIN,
            "endingOffsets": each("plain", 500, 3),
            "kafkaConsumer.pollTimeoutMs": "500",
            **LOSS_IS_LEFT_OUT,
        },
        13,
    ),
    # Between which times.
    "a starting time of a record": Query({**PLAIN, "startingTimestamp": at(3)}, 14),
    "a starting time between two": Query({**PLAIN, "startingTimestamp": at(3.5)}, 12),
    "a starting time of long ago": Query({**PLAIN, "startingTimestamp": "0"}, 20),
    "a starting time beyond the end is the latest": Query(
        {**PLAIN, "startingTimestamp": NEVER, **OR_LATEST}, 0
    ),
    "a starting time on an empty partition is the latest": Query(
        {"subscribe": "$hollow", "startingTimestamp": at(3), **OR_LATEST}, 7
    ),
    "a starting time on deleted records": Query(
        {"subscribe": "$headless", "startingTimestamp": at(5), **OR_LATEST}, 5
    ),
    "an ending time of a record": Query({**PLAIN, "endingTimestamp": at(3)}, 6),
    "an ending time beyond the end": Query({**PLAIN, "endingTimestamp": NEVER}, 20),
    "an ending time of long ago": Query({**PLAIN, "endingTimestamp": "0"}, 0),
    "an ending time on an empty partition": Query(
        {"subscribe": "$hollow", "endingTimestamp": at(3)}, 3
    ),
    "one time for start and end": Query(
        {**PLAIN, "startingTimestamp": at(3), "endingTimestamp": at(3)}, 0
    ),
    "a time for each partition": Query(
        {
            **PLAIN,
            "startingOffsetsByTimestamp": each("plain", at(2), at(5)),
            "endingOffsetsByTimestamp": each("plain", at(8), at(5.5)),
        },
        7,
    ),
    "one time goes before a time for each, and before offsets": Query(
        {
            **PLAIN,
            "startingTimestamp": at(3),
            "startingOffsetsByTimestamp": each("plain", at(8), at(8)),
            "startingOffsets": "latest",
            "endingTimestamp": at(7),
            "endingOffsetsByTimestamp": each("plain", at(8), at(8)),
            "endingOffsets": "earliest",
        },
        8,
    ),
    "a time for each goes before offsets": Query(
        {
            **PLAIN,
            "startingOffsetsByTimestamp": each("plain", at(2), at(5)),
            "startingOffsets": each("plain", 9, 9),
        },
        13,
    ),
    # In how many tasks, and what else there is.
    "more tasks": Query({**PLAIN, "minPartitions": "5"}, 20),
    "more tasks than records": Query({**PLAIN, "minPartitions": "30"}, 20),
    "fewer tasks than partitions": Query({**PLAIN, "minPartitions": "1"}, 20),
    "more tasks over holes of compaction": Query(
        {"subscribe": "$compacted", "minPartitions": "6"}, 8
    ),
    "more tasks over transactions": Query(
        {"subscribe": "$transactions", "minPartitions": "6", **COMMITTED}, 16
    ),
    "more tasks over deleted heads": Query({"subscribe": "$headless", "minPartitions": "6"}, 6),
    "tasks of few records": Query({**PLAIN, "maxRecordsPerPartition": "3"}, 20),
    "both of them": Query({**PLAIN, "maxRecordsPerPartition": "4", "minPartitions": "9"}, 20),
    "what has no effect in a batch": Query(
        {
            **PLAIN,
            "maxOffsetsPerTrigger": "3",
            "minOffsetsPerTrigger": "2",
            "maxTriggerDelay": "5m",
            "topic": "any",
            "checkpointLocation": "/any",
            "kafka.group.id": "own",
            "groupIdPrefix": "prefix",
            "kafka.acks": "all",
        },
        20,
    ),
    "small fetches": Query(
        {
            **PLAIN,
            "kafka.max.poll.records": "3",
            "kafka.max.partition.fetch.bytes": "200",
            "kafkaConsumer.pollTimeoutMs": "60000",
        },
        20,
    ),
}

REFUSED: Final[Mapping[str, tuple[Mapping[str, str], str]]] = {
    # Options, and what this connector says.
    "no topic": ({}, "exactly one of the options subscribe"),
    "two ways to name topics": ({**PLAIN, "assign": '{"$plain":[1]}'}, "given: subscribe, assign"),
    "no name": ({"subscribe": " , "}, "'subscribe' names no topic"),
    "an empty pattern": ({"subscribePattern": " "}, "'subscribePattern' is empty"),
    "no pattern": ({"subscribePattern": "("}, "'subscribePattern' is no pattern"),
    "assign without JSON": ({"assign": "$plain"}, "assign must be JSON"),
    "assign with text": ({"assign": '{"$plain":["0"]}'}, "list of partition numbers"),
    "assign with a truth": ({"assign": '{"$plain":[true]}'}, "list of partition numbers"),
    "assign without a list": ({"assign": '{"$plain":1}'}, "list of partition numbers"),
    "assign of a topic that does not exist": ({"assign": '{"gone":[0]}'}, "gone"),
    "a topic that does not exist": ({"subscribe": "$plain,no-such-topic"}, "no-such-topic"),
    "a name that no topic has": ({"subscribe": "a b"}, "a b"),
    "start at latest": ({**PLAIN, "startingOffsets": "latest"}, "cannot be latest"),
    "start of a partition at latest": (
        {**PLAIN, "startingOffsets": each("plain", -1, 4)},
        "cannot be latest",
    ),
    "a start that is no edge": ({**PLAIN, "startingOffsets": "newest"}, "must be JSON"),
    "an empty start": ({**PLAIN, "startingOffsets": ""}, "must be JSON"),
    "a start in half of JSON": ({**PLAIN, "startingOffsets": '{"$plain":{"0":1,'}, "must be JSON"),
    "a start as a list": ({**PLAIN, "startingOffsets": "[1]"}, "must be JSON"),
    "no start": ({**PLAIN, "startingOffsets": "{}"}, "Missing: $plain-0, $plain-1"),
    "a partition without a start": (
        {**PLAIN, "startingOffsets": each("plain", 1)},
        "Missing: $plain-1",
    ),
    "a start of a partition that does not exist": (
        {**PLAIN, "startingOffsets": each("plain", 1, 4, 5)},
        "Not read: $plain-2",
    ),
    "a start of another topic": (
        {**PLAIN, "startingOffsets": '{"other":{"0":1,"1":4}}'},
        "Not read: other-0, other-1",
    ),
    "a start below earliest": ({**PLAIN, "startingOffsets": each("plain", -3, 4)}, "at least -2"),
    "a start as text": ({**PLAIN, "startingOffsets": each("plain", '"3"', 4)}, "needs an integer"),
    "a start as truth": ({**PLAIN, "startingOffsets": each("plain", "true", 4)}, "an integer"),
    "a start of 64 bits": ({**PLAIN, "startingOffsets": each("plain", 2**63, 4)}, "63 bits"),
    "a negative partition": (
        {**PLAIN, "startingOffsets": '{"$plain":{"-1":1,"0":1,"1":4}}'},
        "no partition number",
    ),
    "end at earliest": ({**PLAIN, "endingOffsets": "earliest"}, "cannot be earliest"),
    "end of a partition at earliest": (
        {**PLAIN, "endingOffsets": each("plain", -2, 4)},
        "cannot be earliest",
    ),
    "an end that is no edge": ({**PLAIN, "endingOffsets": "oldest"}, "must be JSON"),
    "a partition without an end": (
        {**PLAIN, "endingOffsets": each("plain", 4)},
        "Missing: $plain-1",
    ),
    "start behind end": (
        {**PLAIN, "startingOffsets": each("plain", 5, 4), "endingOffsets": each("plain", 4, 4)},
        "begin at offset 5, behind its end 4",
    ),
    "start and end of other partitions": (
        {**PLAIN, "startingOffsets": each("plain", 5, 4), "endingOffsets": each("plain", 5)},
        "endingOffsets must name every partition",
    ),
    "start behind the latest": (
        {**PLAIN, "startingOffsets": each("plain", 500, 4)},
        "behind its end 10",
    ),
    "start behind the latest, whatever is lost": (
        {**PLAIN, "startingOffsets": each("plain", 500, 4), **LOSS_IS_LEFT_OUT},
        "behind its end 10",
    ),
    "end behind the latest": (
        {
            **PLAIN,
            "endingOffsets": each("plain", 500, 4),
            "kafkaConsumer.pollTimeoutMs": "500",
        },
        r"holds \[0, 10\)",
    ),
    "start on lost records": (
        {"subscribe": "$headless", "startingOffsets": each("headless", 0, 10)},
        r"holds \[4, 10\)",
    ),
    "start where all is lost": (
        {"subscribe": "$headless", "startingOffsets": each("headless", 4, 0)},
        r"holds \[10, 10\)",
    ),
    "earliest is behind the end": (
        {"subscribe": "$headless", "endingOffsets": each("headless", 3, 10)},
        "behind its end 3",
    ),
    "a time as a word": ({**PLAIN, "startingTimestamp": "yesterday"}, "milliseconds since 1970"),
    "a time with a fraction": ({**PLAIN, "startingTimestamp": "1.5"}, "milliseconds since 1970"),
    "a time of 64 bits": ({**PLAIN, "startingTimestamp": str(2**63)}, "milliseconds since 1970"),
    "a time before 1970": ({**PLAIN, "startingTimestamp": "-5"}, "milliseconds since 1970"),
    "no time": ({**PLAIN, "startingTimestamp": ""}, "milliseconds since 1970"),
    "an end as a word": ({**PLAIN, "endingTimestamp": "now"}, "milliseconds since 1970"),
    "the last time of all": (
        {**PLAIN, "startingTimestamp": str(2**63 - 1)},
        "no record at or after",
    ),
    "a time beyond the end": ({**PLAIN, "startingTimestamp": NEVER}, "no record at or after"),
    "and by name": (
        {
            **PLAIN,
            "startingTimestamp": NEVER,
            "startingOffsetsByTimestampStrategy": "Error",
        },
        "no record at or after",
    ),
    "a time on an empty partition": (
        {"subscribe": "$hollow", "startingTimestamp": at(0)},
        "$hollow-1 has no record",
    ),
    "a time of a partition beyond the end": (
        {**PLAIN, "startingOffsetsByTimestamp": each("plain", NEVER, at(0))},
        "$plain-0 has no record",
    ),
    "a partition without a time": (
        {**PLAIN, "startingOffsetsByTimestamp": each("plain", at(0))},
        "Missing: $plain-1",
    ),
    "a partition without an ending time": (
        {**PLAIN, "endingOffsetsByTimestamp": each("plain", at(0))},
        "Missing: $plain-1",
    ),
    "times without JSON": ({**PLAIN, "startingOffsetsByTimestamp": "latest"}, "must be JSON"),
    "a starting time behind the ending time": (
        {**PLAIN, "startingTimestamp": at(5), "endingTimestamp": at(3)},
        "begin at offset 5, behind its end 3",
    ),
    "and of a partition": (
        {
            **PLAIN,
            "startingOffsetsByTimestamp": each("plain", at(5), at(0)),
            "endingOffsetsByTimestamp": each("plain", at(3), at(0)),
        },
        "begin at offset 5, behind its end 3",
    ),
    "starting offsets behind the ending time": (
        {**PLAIN, "startingOffsets": each("plain", 5, 5), "endingTimestamp": at(2)},
        "begin at offset 5, behind its end 2",
    ),
    "no such strategy": (
        {**PLAIN, "startingOffsetsByTimestampStrategy": "earliest"},
        "must be error or latest",
    ),
    "failOnDataLoss": ({**PLAIN, "failOnDataLoss": "yes"}, "must be true or false"),
    "includeHeaders": ({**PLAIN, "includeHeaders": "1"}, "must be true or false"),
    "no tasks": ({**PLAIN, "minPartitions": "0"}, "at least 1"),
    "tasks below none": ({**PLAIN, "minPartitions": "-2"}, "at least 1"),
    "many tasks": ({**PLAIN, "minPartitions": "many"}, "at least 1"),
    "tasks of 32 bits": ({**PLAIN, "minPartitions": str(2**31)}, "at most 2147483647"),
    "tasks of no record": ({**PLAIN, "maxRecordsPerPartition": "0"}, "at least 1"),
    "tasks of few records": ({**PLAIN, "maxRecordsPerPartition": "few"}, "at least 1"),
    "a time-out as a word": ({**PLAIN, "kafkaConsumer.pollTimeoutMs": "soon"}, "at least 1"),
    "no time-out": ({**PLAIN, "kafkaConsumer.pollTimeoutMs": "0"}, "at least 1"),
    "a negative time-out": ({**PLAIN, "kafkaConsumer.pollTimeoutMs": "-1"}, "at least 1"),
    "retries as a word": ({**PLAIN, "fetchOffset.numRetries": "some"}, "at least 1"),
    "no retries": ({**PLAIN, "fetchOffset.numRetries": "0"}, "at least 1"),
    "a pause as a word": ({**PLAIN, "fetchOffset.retryIntervalMs": "long"}, "at least 0"),
    "a least that is larger than the most": (
        {**PLAIN, "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "3"},
        "is larger than",
    ),
    "auto.offset.reset": ({**PLAIN, "kafka.auto.offset.reset": "x"}, "cannot be used"),
    "key.deserializer": ({**PLAIN, "kafka.key.deserializer": "x"}, "cannot be used"),
    "value.deserializer": ({**PLAIN, "kafka.value.deserializer": "x"}, "cannot be used"),
    "enable.auto.commit": ({**PLAIN, "kafka.enable.auto.commit": "true"}, "cannot be used"),
    "interceptor.classes": ({**PLAIN, "kafka.interceptor.classes": "x"}, "cannot be used"),
    "isolation": ({**PLAIN, "kafka.isolation.level": "read_everything"}, "must be one of"),
    "isolation in capitals": (
        {**PLAIN, "kafka.isolation.level": "READ_COMMITTED"},
        "must be one of",
    ),
    "bytes as a word": ({**PLAIN, "kafka.fetch.max.bytes": "many"}, "must be an integer"),
    "no address": ({**PLAIN, "kafka.bootstrap.servers": "nonsense"}, "nonsense"),
    "no brokers": ({**PLAIN, "kafka.bootstrap.servers": ""}, "bootstrap"),
}


class Difference(NamedTuple):
    """Options that only one connector takes, what the other says, and why."""

    options: Mapping[str, str]
    complaint: str
    reason: str


MISTAKE: Final = "a mistake that is passed over reads other records than were meant"

STRICTER: Final = {
    "assign of a partition that does not exist": Difference(
        {"assign": '{"$plain":[1,7]}'}, "$plain-7", f"left out silently there: {MISTAKE}"
    ),
    "assign of nothing": Difference({"assign": "{}"}, "names no partition", MISTAKE),
    "assign of null": Difference({"assign": '{"$plain":null}'}, "list of partition", MISTAKE),
    "assign with a fraction": Difference(
        {"assign": '{"$plain":[1.5]}'}, "list of partition", f"cut off there: {MISTAKE}"
    ),
    "JSON and more": Difference({"assign": '{"$plain":[1]} x'}, "must be JSON", MISTAKE),
    "an offset with a fraction": Difference(
        {**PLAIN, "startingOffsets": each("plain", 3.5, 4)}, "an integer", f"cut off: {MISTAKE}"
    ),
    "an offset of null": Difference(
        {**PLAIN, "startingOffsets": each("plain", "null", 4)}, "an integer", f"0 there: {MISTAKE}"
    ),
    "a topic named twice": Difference(
        {**PLAIN, "startingOffsets": '{"$plain":{"0":1,"1":4},"$plain":{"0":2,"1":4}}'},
        "twice",
        f"the last one counts there: {MISTAKE}",
    ),
    "a partition with a leading zero": Difference(
        {**PLAIN, "startingOffsets": '{"$plain":{"00":1,"1":4}}'}, "no partition number", MISTAKE
    ),
    "an ending time before 1970": Difference(
        {**PLAIN, "endingTimestamp": "-1"}, "since 1970", "-1 means latest there, to brokers"
    ),
    "times before 1970": Difference(
        {**PLAIN, "startingOffsetsByTimestamp": each("plain", -1, -2)},
        "at least 0",
        "they mean latest and earliest there, to brokers",
    ),
    "a number with its sign": Difference({**PLAIN, "minPartitions": "+3"}, "at least 1", MISTAKE),
    "a limit of streams as a word": Difference(
        {**PLAIN, "maxOffsetsPerTrigger": "many"}, "at least 1", "it fails as a stream there"
    ),
    "a delay of streams as a word": Difference(
        {**PLAIN, "maxTriggerDelay": "long"}, "must be a time", "it fails as a stream there"
    ),
    "a negative pause": Difference(
        {**PLAIN, "fetchOffset.retryIntervalMs": "-1"}, "at least 0", "it fails a retry there"
    ),
    "an unknown option": Difference(
        {**PLAIN, "startingOffset": "latest"}, "Did you mean 'startingOffsets'", MISTAKE
    ),
    "an unknown setting": Difference(
        {**PLAIN, "kafka.fetch.min.byte": "1"}, "Did you mean 'fetch.min.bytes'", MISTAKE
    ),
    "a path": Difference({**PLAIN, "path": "/x"}, "Kafka has no paths", MISTAKE),
}

WIDER: Final = {
    "ISO 8601": Difference(
        {**PLAIN, "startingTimestamp": "2020-01-31T12:00:00Z"}, "single long", "an extension"
    ),
    "a duration": Difference(
        {**PLAIN, "startingTimestamp": "-P9000D"}, "single long", "an extension"
    ),
    "a group": Difference({**PLAIN, "startingOffsets": "group:x"}, "Expected", "an extension"),
    "blanks around a number": Difference(
        {**PLAIN, "minPartitions": " 3"}, "input string", "they are no mistake around JSON either"
    ),
}
