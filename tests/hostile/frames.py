"""Responses whose frames are wrong, and Metadata that cannot be.

Owner: none.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from pykclient.protocol.messages.init_producer_id import InitProducerIdResponse
from pykclient.protocol.reader import ELEMENTS_MAX
from tests.hostile.client import TOPIC
from tests.hostile.payloads import (
    INT16,
    INT32,
    INT32_MAX,
    METADATA_8,
    METADATA_END,
    MILLION,
    Hostile,
    at,
    body,
    broker,
    cluster_named,
    compact,
    drips,
    hang_up,
    nodes,
    partitions,
    replicas,
    tags,
    topic_error,
    topics,
    topics_named,
    varint,
    with_partitions,
)
from tests.hostile.peer import partition

FRAMES: Final[tuple[Hostile, ...]] = (
    # Frames and what is in them.
    Hostile(
        "2 GB announced",
        "list_topics",
        broker(metadata=b"\x7f\xff\xff\xff"),
        "KafkaTimeoutError",
        "a frame of 2147483647 bytes was announced",
    ),
    Hostile(
        "100 MB announced, none sent",
        "list_topics",
        broker(metadata=INT32(100_000_000)),
        "KafkaTimeoutError",
        "did not respond to METADATA within",
    ),
    Hostile(
        "size -1 of a response",
        "list_topics",
        broker(metadata=b"\xff" * 4),
        "KafkaTimeoutError",
        "a frame of -1 bytes was announced",
    ),
    Hostile(
        "a wrong correlation id",
        "list_topics",
        broker(metadata=lambda received: received.frame(nodes(1), 77)),
        "KafkaTimeoutError",
        "the response to correlation id 77 came while 1 is due",
    ),
    Hostile(
        "a response of nothing",
        "list_topics",
        broker(metadata=bytes(4)),
        "KafkaTimeoutError",
        "4 bytes expected at byte 0, but only 0 remain",
    ),
    Hostile(
        "a response a byte a second",
        "list_topics",
        broker(metadata=lambda _: partial(drips, INT32(100) + bytes(100))),
        "KafkaTimeoutError",
        "did not respond to METADATA within",
    ),
    Hostile(
        "a million tags",
        "list_topics",
        broker(metadata=body(lambda: nodes(1)[:-1] + tags(MILLION))),
        "KafkaTimeoutError",
        "more than 100000 array elements",
    ),
    Hostile(
        "2^32-1 tags",
        "list_topics",
        broker(metadata=body(nodes(1)[:-1] + b"\xff\xff\xff\xff\x0f")),
        "KafkaTimeoutError",
        "4294967295 elements of at least 2 bytes announced",
    ),
    Hostile(
        "a tag as long as may be",
        "list_topics",
        broker(metadata=body(nodes(1)[:-1] + b"\x01\x05\xff\xff\xff\xff\x0f")),
        "KafkaTimeoutError",
        "4294967295 bytes expected",
    ),
    Hostile(
        "2^31-1 brokers",
        "list_topics",
        broker(METADATA_8, metadata=body(INT32(0) + INT32(INT32_MAX))),
        "KafkaTimeoutError",
        "2147483647 elements of at least 10 bytes announced",
    ),
    Hostile(
        "-2 brokers",
        "list_topics",
        broker(METADATA_8, metadata=body(INT32(0) + INT32(-2))),
        "KafkaTimeoutError",
        "length -2 at byte 12",
    ),
    Hostile(
        "a million brokers",
        "list_topics",
        broker(metadata=body(lambda: nodes(MILLION))),
        "KafkaTimeoutError",
        "more than 100000 array elements",
        given_ms=1_500,
    ),
    Hostile(
        "brokers up to the limit",
        "list_topics",
        broker(metadata=body(lambda: nodes(ELEMENTS_MAX))),
        None,
        "0",
    ),
    Hostile(
        "a million topics",
        "list_topics",
        broker(metadata=body(lambda: topics(MILLION))),
        "KafkaTimeoutError",
        "more than 100000 array elements",
        given_ms=1_500,
    ),
    Hostile(
        "topics up to the limit",
        "list_topics",
        broker(metadata=body(lambda: topics(ELEMENTS_MAX))),
        None,
        str(ELEMENTS_MAX),
    ),
    Hostile(
        "a million partitions",
        "send",
        broker(metadata=body(lambda: partitions(MILLION))),
        "KafkaTimeoutError",
        "more than 100000 array elements",
        given_ms=1_500,
    ),
    Hostile(
        "partitions up to the limit",
        "list_topics",
        broker(metadata=body(lambda: partitions(ELEMENTS_MAX - 1))),
        None,
        "1",
    ),
    Hostile(
        "4 million replicas",
        "list_topics",
        broker(metadata=body(lambda: replicas(4 * MILLION // 3))),
        "KafkaTimeoutError",
        "more than 100000 array elements",
        given_ms=1_500,
    ),
    Hostile(
        "a host of 64 KB",
        "send",
        broker(
            metadata=body(
                INT32(0)
                + varint(2)
                + INT32(1)
                + compact("h" * 65_536)
                + INT32(9092)
                + b"\0\0"
                + b"\0"
                + INT32(0)
                + topics_named(TOPIC)
                + METADATA_END
            )
        ),
        "KafkaTimeoutError",
        "is at host 'hhh",
    ),
    Hostile(
        "a host that goes beyond the frame",
        "list_topics",
        broker(
            metadata=body(INT32(0) + varint(2) + INT32(1) + b"\xff\xff\xff\xff\x0f" + bytes(40))
        ),
        "KafkaTimeoutError",
        "4294967294 bytes expected",
    ),
    Hostile(
        "a string of length -2",
        "list_topics",
        broker(METADATA_8, metadata=body(INT32(0) + INT32(1) + INT32(1) + INT16(-2) + bytes(40))),
        "KafkaTimeoutError",
        "length -2 at byte 18",
    ),
    Hostile(
        "a host that is no UTF-8",
        "list_topics",
        broker(
            metadata=body(
                INT32(0)
                + varint(2)
                + INT32(1)
                + b"\x03\xff\xfe"
                + INT32(9092)
                + b"\0\0"
                + METADATA_END
            )
        ),
        "KafkaTimeoutError",
        "is not UTF-8",
    ),
    Hostile(
        "a host with a line of a log",
        "send",
        broker(metadata=at(host="h\nERROR forged")),
        "KafkaTimeoutError",
        "is at host 'h\\nERROR forged'",
    ),
    Hostile(
        "port 65536", "send", broker(metadata=at(port=65_536)), "KafkaTimeoutError", "port 65536"
    ),
    Hostile("port -1", "send", broker(metadata=at(port=-1)), "KafkaTimeoutError", "port -1"),
    Hostile(
        "broker -7",
        "send",
        broker(metadata=at(node_id=-7)),
        "KafkaTimeoutError",
        "says that broker -7 is at host",
    ),
    Hostile(
        "a leader that does not exist",
        "send",
        broker(metadata=with_partitions(partition(leader_id=77))),
        "DeliveryTimeoutError",
        "no leader is known for the partition",
    ),
    Hostile(
        "partition 2^31-1 alone",
        "send",
        broker(metadata=with_partitions(partition(INT32_MAX))),
        "KafkaTimeoutError",
        "lists partition 2147483647 of topic 't' in place of partition 0",
    ),
    Hostile(
        "another topic",
        "send",
        broker(metadata=body(topics(1))),
        "KafkaTimeoutError",
        "a Metadata response lacks topic 't'",
    ),
    Hostile(
        "a cluster id of 40 KB",
        "list_topics",
        broker(metadata=body(lambda: cluster_named(40_000))),
        "KafkaTimeoutError",
        "the response to Metadata has a cluster id of 40000 bytes",
    ),
    Hostile(
        "a topic with an unknown error",
        "send",
        broker(metadata=topic_error(-7_777)),
        "BrokerError",
        "error code -7777, which this client does not know",
    ),
    Hostile(
        "hangs up on Metadata",
        "list_topics",
        broker(metadata=hang_up),
        "KafkaTimeoutError",
        "hung up on the first request",
    ),
    Hostile(
        "throttled for 2^31-1 ms",
        "send",
        broker(init_producer_id=InitProducerIdResponse(producer_id=1, throttle_time_ms=INT32_MAX)),
        None,
        "0",
    ),
    Hostile(
        "throttled for -2^31 ms",
        "send",
        broker(init_producer_id=InitProducerIdResponse(producer_id=1, throttle_time_ms=-(2**31))),
        None,
        "0",
    ),
)
