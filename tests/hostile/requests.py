"""Responses to producers, consumers and members of groups that cannot be.

Owner: none.
"""

from __future__ import annotations

from typing import Final

from pykclient.protocol.messages.find_coordinator import FindCoordinatorResponse
from pykclient.protocol.messages.heartbeat import HeartbeatResponse
from pykclient.protocol.messages.init_producer_id import InitProducerIdResponse
from pykclient.protocol.messages.offset_fetch import OffsetFetchResponse
from pykclient.protocol.messages.produce import ProduceResponse
from pykclient.protocol.reader import ELEMENTS_MAX
from tests.hostile.client import TOPIC
from tests.hostile.payloads import (
    INT32_MAX,
    INT64_MAX,
    MILLION,
    Hostile,
    assigned,
    assignment,
    bad_records,
    body,
    broker,
    changed,
    hang_up,
    kip848,
    member_named,
    members,
)
from tests.hostile.peer import coordinator, joined, listed_offset, stored_offset, written

REQUESTS: Final[tuple[Hostile, ...]] = (
    # Producers.
    Hostile(
        "producer id -5",
        "send",
        broker(init_producer_id=InitProducerIdResponse(producer_id=-5)),
        "DeliveryTimeoutError",
        "1 records were not delivered within",
    ),
    Hostile(
        "an unknown error of a batch",
        "send",
        broker(produce=written(error_code=12_345)),
        "BrokerError",
        "error code 12345, which this client does not know",
    ),
    Hostile("offset -7 of a batch", "send", broker(produce=written(-7)), None, "None"),
    Hostile(
        "nothing about the batch",
        "send",
        broker(produce=ProduceResponse()),
        "DeliveryTimeoutError",
        "the response to Produce lacks t-0",
    ),
    Hostile(
        "90,000 bad records in a batch of one",
        "send",
        broker(produce=bad_records()),
        "InvalidRecordError",
        "t-0: the record was refused: bad",
    ),
    Hostile(
        "hangs up on InitProducerId",
        "send",
        broker(init_producer_id=hang_up),
        "DeliveryTimeoutError",
        "1 records were not delivered within",
    ),
    Hostile(
        "hangs up on Produce",
        "send",
        broker(produce=hang_up),
        "DeliveryTimeoutError",
        "closed the connection",
    ),
    # Offsets and groups.
    Hostile(
        "offset -7 of a partition's end",
        "end_offsets",
        broker(list_offsets=listed_offset(-7)),
        "DecodeError",
        "gives t-0 the offset -7",
    ),
    Hostile(
        "hangs up on ListOffsets",
        "end_offsets",
        broker(list_offsets=hang_up),
        "KafkaTimeoutError",
        "closed the connection",
    ),
    Hostile(
        "a committed offset of -7",
        "committed",
        broker(offset_fetch=stored_offset(-7)),
        "KafkaTimeoutError",
        "gives t-0 the offset -7",
    ),
    Hostile(
        "a committed offset of -2^63",
        "committed",
        broker(offset_fetch=stored_offset(-(2**63))),
        "KafkaTimeoutError",
        "gives t-0 the offset -9223372036854775808",
    ),
    Hostile(
        "a committed offset of 2^63-1",
        "join",
        broker(offset_fetch=stored_offset(INT64_MAX)),
        None,
        "0",
    ),
    Hostile(
        "hangs up on OffsetFetch",
        "committed",
        broker(offset_fetch=hang_up),
        "KafkaTimeoutError",
        "closed the connection",
    ),
    Hostile(
        "a coordinator at no host",
        "committed",
        broker(find_coordinator=changed(coordinator, host=" \n")),
        "KafkaError",
        "is at host ' \\n'",
    ),
    Hostile(
        "a coordinator at an odd name of its own",
        "committed",
        broker(find_coordinator=changed(coordinator, host="127.0.0.1.")),
        "KafkaTimeoutError",
        "the host name '127.0.0.1.' cannot be resolved",
    ),
    Hostile(
        "a coordinator that is never there",
        "committed",
        broker(find_coordinator=FindCoordinatorResponse(error_code=15)),
        "KafkaTimeoutError",
        "COORDINATOR_NOT_AVAILABLE",
    ),
    Hostile(
        "a coordinator for ever elsewhere",
        "committed",
        broker(offset_fetch=lambda _: OffsetFetchResponse(error_code=16)),
        "KafkaTimeoutError",
        "NOT_COORDINATOR",
    ),
    Hostile(
        "hangs up on FindCoordinator",
        "committed",
        broker(find_coordinator=hang_up),
        "KafkaTimeoutError",
        "for the committed offsets of t-0",
    ),
    Hostile(
        "a million members", "join", broker(join_group=body(lambda: members(MILLION))), None, "0"
    ),
    Hostile(
        "members up to the limit",
        "join",
        broker(join_group=body(lambda: members(ELEMENTS_MAX))),
        "DecodeError",
        "the subscription of member '0000000' cannot be read",
    ),
    Hostile(
        "a leader of a group without itself",
        "join",
        broker(join_group=changed(joined, members=[])),
        None,
        "0",
    ),
    Hostile(
        "a protocol that nothing offered",
        "join",
        broker(join_group=changed(joined, protocol_name="none")),
        "InconsistentGroupProtocolError",
        "chose the assignor 'none'",
    ),
    Hostile(
        "generation -5",
        "join",
        broker(join_group=changed(joined, generation_id=-5)),
        "DecodeError",
        "the response to JoinGroup has the generation, or epoch, -5",
    ),
    Hostile(
        "a member id of 150 KB",
        "join",
        broker(join_group=body(lambda: member_named(150_000))),
        "DecodeError",
        "the response to JoinGroup has a member id of 150000 bytes",
    ),
    Hostile("hangs up on JoinGroup", "join", broker(join_group=hang_up), None, "0"),
    Hostile(
        "an assignment of noise",
        "join",
        broker(sync_group=assigned(b"\xff" * 50)),
        "DecodeError",
        "the assignment by the leader of group 'g' cannot be read",
    ),
    Hostile(
        "an assignment of 2^31-1 partitions",
        "join",
        broker(sync_group=assigned(assignment(TOPIC, count=INT32_MAX))),
        "DecodeError",
        "2147483647 elements of at least 4 bytes announced",
    ),
    Hostile(
        "an assignment of partition -5",
        "join",
        broker(sync_group=assigned(assignment(TOPIC, -5))),
        "DecodeError",
        "an assignment has a negative partition",
    ),
    Hostile(
        "an assignment of a partition twice",
        "join",
        broker(sync_group=assigned(assignment(TOPIC, 0, 0))),
        None,
        "0",
    ),
    Hostile(
        "an assignment of another topic",
        "join",
        broker(sync_group=assigned(assignment("other", 0))),
        "UsageError",
        "does not subscribe to: other-0",
    ),
    Hostile(
        "an assignment of a million partitions",
        "join",
        broker(sync_group=assigned(assignment(TOPIC, *range(MILLION)))),
        "DecodeError",
        "more than 100000 array elements",
    ),
    Hostile("hangs up on SyncGroup", "join", broker(sync_group=hang_up), None, "0"),
    Hostile(
        "a heartbeat with an unknown error",
        "join",
        broker(heartbeat=HeartbeatResponse(error_code=-300)),
        None,
        "0",
    ),
    Hostile(
        "KIP-848: heartbeats each -5 ms", "join_kip848", kip848(heartbeat_interval_ms=-5), None, "0"
    ),
    Hostile(
        "KIP-848: epoch -77",
        "join_kip848",
        kip848(member_epoch=-77),
        "DecodeError",
        "the response to ConsumerGroupHeartbeat has the generation, or epoch, -77",
    ),
    Hostile(
        "KIP-848: topics that do not exist", "join_kip848", kip848(topic_count=10_000), None, "0"
    ),
    Hostile("KIP-848: partition -5", "join_kip848", kip848(partitions=[-5]), None, "0"),
)
