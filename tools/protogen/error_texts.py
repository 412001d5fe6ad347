"""Meaning and cure of each broker error, in our own words, and which errors are fatal.

Kafka's own sentences are not used. A code without a text here makes the tool fail.
"""

from __future__ import annotations

REFUSALS = frozenset(
    {
        "ILLEGAL_SASL_STATE",
        "SASL_AUTHENTICATION_FAILED",
        "UNSUPPORTED_SASL_MECHANISM",
        "UNSUPPORTED_VERSION",
    }
)
"""With these a broker refuses a connection, until somebody changes something there or here."""

FATAL = frozenset(
    {
        "FENCED_INSTANCE_ID",
        "PRODUCER_FENCED",
        "UNRELEASED_INSTANCE_ID",
    }
)
"""After these the client can do nothing more: another one has its id.

INVALID_PRODUCER_EPOCH and FENCED_MEMBER_EPOCH are not among them: a new epoch cures the one, and
joining the group again the other.
"""

NOT_WRITTEN = frozenset(
    {
        "CLUSTER_AUTHORIZATION_FAILED",
        "CORRUPT_MESSAGE",
        "INCONSISTENT_TOPIC_ID",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_RECORD",
        "INVALID_REQUIRED_ACKS",
        "INVALID_TIMESTAMP",
        "INVALID_TOPIC_EXCEPTION",
        "MESSAGE_TOO_LARGE",
        "NOT_ENOUGH_REPLICAS",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "POLICY_VIOLATION",
        "RECORD_LIST_TOO_LARGE",
        "TOPIC_AUTHORIZATION_FAILED",
        "UNKNOWN_PRODUCER_ID",
        "UNKNOWN_TOPIC_ID",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNSUPPORTED_COMPRESSION_TYPE",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        "UNSUPPORTED_VERSION",
    }
)
"""A broker reports these before it appends, or (those that say the topic is unknown) while it waits
for followers of a log that is deleted meanwhile. After any other one the batch may be in the log: a
leader that is deposed while it waits reports NOT_LEADER_OR_FOLLOWER."""

RENAMED = {"UNSUPPORTED_VERSION": "BrokerUnsupportedVersionError"}
"""Names that `pykclient.errors.base` has already. MESSAGE_TOO_LARGE and CORRUPT_MESSAGE need none:
classes are named after the error code, not after Java's exception (``RecordTooLargeException``)."""

KIND = {
    "REBALANCE_IN_PROGRESS": "GroupRebalancedError",
    "UNSUPPORTED_VERSION": "UnsupportedVersionError",
}
"""Errors of our own that the class of a code is, too."""

TEXTS = {
    "UNKNOWN_SERVER_ERROR": (
        "The broker failed in a way that it has no code for; its log has more."
    ),
    "OFFSET_OUT_OF_RANGE": (
        "The partition has no record at this offset: it was deleted or never written."
        " Seek to a valid offset, or let auto_offset_reset choose one."
    ),
    "CORRUPT_MESSAGE": (
        "The broker refused a malformed record batch. Its checksum, size or form is wrong, or a"
        " record for a compacted topic has no key."
    ),
    "UNKNOWN_TOPIC_OR_PARTITION": (
        "The broker does not know this topic or partition. Right after the topic was created this"
        " passes; otherwise check the name, create the topic, or see whether it was deleted."
    ),
    "INVALID_FETCH_SIZE": "The fetch requested a size that makes no sense.",
    "LEADER_NOT_AVAILABLE": (
        "The partition has no leader at the moment. An election is going on, or all its replicas"
        " are down."
    ),
    "NOT_LEADER_OR_FOLLOWER": (
        "The broker is not, or no longer, the partition's leader, or has no replica of it. The"
        " client's metadata was out of date."
    ),
    "REQUEST_TIMED_OUT": (
        "The broker could not finish the request within the time that the request allowed."
    ),
    "BROKER_NOT_AVAILABLE": "The requested broker is not running.",
    "REPLICA_NOT_AVAILABLE": "The requested replica is not available on this broker.",
    "MESSAGE_TOO_LARGE": (
        "A record or batch is larger than the topic takes. Send less at once, compress, or raise"
        " max.message.bytes of the topic."
    ),
    "STALE_CONTROLLER_EPOCH": "The request came from a controller that has been replaced.",
    "OFFSET_METADATA_TOO_LARGE": (
        "The metadata committed with an offset is too long. The broker's limit is"
        " offset.metadata.max.bytes."
    ),
    "NETWORK_EXCEPTION": "The connection broke before the response was there.",
    "COORDINATOR_LOAD_IN_PROGRESS": (
        "The coordinator has just taken over and still reads its state; it will respond soon."
    ),
    "COORDINATOR_NOT_AVAILABLE": (
        "There is no coordinator yet. If it stays so, the internal topic cannot be made: its"
        " replication factor may exceed the number of brokers."
    ),
    "NOT_COORDINATOR": "The broker is not, or no longer, the coordinator; look it up again.",
    "INVALID_TOPIC_EXCEPTION": (
        "The topic name is invalid, or the topic is an internal one. Names have letters, digits,"
        " '.', '_' and '-', at most 249."
    ),
    "RECORD_LIST_TOO_LARGE": (
        "A batch is larger than a log segment of the topic. Lower batch_size, or raise"
        " segment.bytes."
    ),
    "NOT_ENOUGH_REPLICAS": (
        "Fewer replicas are in sync than min.insync.replicas requires; nothing was written."
    ),
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": (
        "The records were written, but too few replicas are in sync. The topic requires"
        " min.insync.replicas of them."
    ),
    "INVALID_REQUIRED_ACKS": "acks must be 0, 1 or all (-1).",
    "ILLEGAL_GENERATION": (
        "The group has moved on to another generation without this member; it must join again."
    ),
    "INCONSISTENT_GROUP_PROTOCOL": (
        "The member shares no assignor with the others of its group, or its group protocol"
        " differs. Give all of them the same group_protocol and partition_assignment_strategy."
    ),
    "INVALID_GROUP_ID": "The group id is empty or not allowed.",
    "UNKNOWN_MEMBER_ID": (
        "The coordinator does not know this member, which must join again. It was removed since"
        " it sent no heartbeat, or the group was deleted."
    ),
    "INVALID_SESSION_TIMEOUT": (
        "session_timeout_ms is outside the range that the broker allows. Its limits are"
        " group.min.session.timeout.ms and group.max.session.timeout.ms."
    ),
    "REBALANCE_IN_PROGRESS": "The group is rebalancing; poll, then try again.",
    "INVALID_COMMIT_OFFSET_SIZE": "The commit is larger than the offsets topic can store.",
    "TOPIC_AUTHORIZATION_FAILED": (
        "The user may not do this with the topic. An ACL must allow it."
    ),
    "GROUP_AUTHORIZATION_FAILED": (
        "The user may not use the group. An ACL must allow READ on the group."
    ),
    "CLUSTER_AUTHORIZATION_FAILED": (
        "The user may not do this with the cluster. An ACL must allow it."
    ),
    "INVALID_TIMESTAMP": (
        "A record's timestamp is too far from the broker's clock. The topic's limits are"
        " message.timestamp.before.max.ms and message.timestamp.after.max.ms."
    ),
    "UNSUPPORTED_SASL_MECHANISM": (
        "The broker does not offer this SASL mechanism. Set sasl_mechanism to one that it has."
    ),
    "ILLEGAL_SASL_STATE": (
        "The request does not fit the state of the SASL exchange; the listener may not use SASL."
    ),
    "UNSUPPORTED_VERSION": (
        "The broker does not speak this version of the request, or a feature it needs is off."
    ),
    "TOPIC_ALREADY_EXISTS": (
        "There is a topic with this name. Use it as it is, delete it first, or choose another name."
    ),
    "INVALID_PARTITIONS": (
        "The number of partitions is not allowed: it must be at least 1 and can only grow."
    ),
    "INVALID_REPLICATION_FACTOR": (
        "The replication factor is below 1 or above the number of available brokers."
    ),
    "INVALID_REPLICA_ASSIGNMENT": (
        "The assignment of replicas is invalid. It names unknown or repeated brokers, or some"
        " partitions have more replicas than others."
    ),
    "INVALID_CONFIG": "A configuration key or value is not allowed.",
    "NOT_CONTROLLER": "The broker is not the controller; send the request to the controller.",
    "INVALID_REQUEST": "The broker understood the request's bytes, but not what they request.",
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": (
        "The topic stores records in an old format that cannot do this."
    ),
    "POLICY_VIOLATION": "A policy that the broker's operator installed forbids this.",
    "OUT_OF_ORDER_SEQUENCE_NUMBER": (
        "A batch of an idempotent producer is missing before this one: records may be lost."
    ),
    "DUPLICATE_SEQUENCE_NUMBER": "The broker has this batch of an idempotent producer already.",
    "INVALID_PRODUCER_EPOCH": (
        "The producer's epoch is out of date. Another producer with its transactional id started,"
        " or its transaction timed out."
    ),
    "INVALID_TXN_STATE": "The transaction is in a state that does not allow this.",
    "INVALID_PRODUCER_ID_MAPPING": (
        "The producer id does not belong, or no longer, to this transactional id. The id expires"
        " if it is unused for longer than transactional.id.expiration.ms."
    ),
    "INVALID_TRANSACTION_TIMEOUT": (
        "transaction_timeout_ms exceeds the broker's transaction.max.timeout.ms."
    ),
    "CONCURRENT_TRANSACTIONS": (
        "The previous transaction of this producer is still being completed; try again soon."
    ),
    "TRANSACTION_COORDINATOR_FENCED": (
        "The message came from a transaction coordinator that has been replaced."
    ),
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": (
        "The user may not use this transactional id. An ACL must allow WRITE on it."
    ),
    "SECURITY_DISABLED": "The broker has no authorizer, so there are no ACLs to work on.",
    "OPERATION_NOT_ATTEMPTED": (
        "Another part of the same request failed, so this part was not tried."
    ),
    "KAFKA_STORAGE_ERROR": "The broker cannot use the disk on which the partition's log lies.",
    "LOG_DIR_NOT_FOUND": "The broker has no such log folder.",
    "SASL_AUTHENTICATION_FAILED": (
        "The broker refused the credentials. Check user name, password or token, and mechanism."
    ),
    "UNKNOWN_PRODUCER_ID": (
        "The broker no longer knows this producer. All its records in the partition were deleted."
    ),
    "REASSIGNMENT_IN_PROGRESS": "The partition is being moved to other brokers.",
    "DELEGATION_TOKEN_AUTH_DISABLED": "The broker has no delegation tokens switched on.",
    "DELEGATION_TOKEN_NOT_FOUND": "There is no such delegation token.",
    "DELEGATION_TOKEN_OWNER_MISMATCH": "The delegation token belongs to another user.",
    "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED": (
        "Delegation tokens cannot be managed over this connection. It was opened with a token, or"
        " without authentication."
    ),
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED": "The user may not use this delegation token.",
    "DELEGATION_TOKEN_EXPIRED": "The delegation token has expired; make a new one.",
    "INVALID_PRINCIPAL_TYPE": "The kind of principal is not allowed here.",
    "NON_EMPTY_GROUP": "The group still has members; stop them first.",
    "GROUP_ID_NOT_FOUND": "There is no group of this name and type.",
    "FETCH_SESSION_ID_NOT_FOUND": "The broker dropped the fetch session; a new one is needed.",
    "INVALID_FETCH_SESSION_EPOCH": "The fetch session is out of step; a new one is needed.",
    "LISTENER_NOT_FOUND": (
        "The partition's leader has no listener of the name that this connection uses."
    ),
    "TOPIC_DELETION_DISABLED": "The broker has delete.topic.enable=false.",
    "FENCED_LEADER_EPOCH": "The leader epoch sent is older than the broker's; refresh and retry.",
    "UNKNOWN_LEADER_EPOCH": "The leader epoch sent is newer than the broker's; it will catch up.",
    "UNSUPPORTED_COMPRESSION_TYPE": (
        "The request's version or the broker does not know this compression."
    ),
    "STALE_BROKER_EPOCH": "The broker has restarted since the sender last saw it.",
    "OFFSET_NOT_AVAILABLE": (
        "A newly elected leader does not know the end of its log for sure yet; try again."
    ),
    "MEMBER_ID_REQUIRED": "The member must join again with the id that it was just given.",
    "PREFERRED_LEADER_NOT_AVAILABLE": "The preferred leader of the partition is not available.",
    "GROUP_MAX_SIZE_REACHED": "The group has as many members as group.max.size allows.",
    "FENCED_INSTANCE_ID": (
        "Another consumer with the same group_instance_id has taken this one's place. Give every"
        " running consumer an id of its own."
    ),
    "ELIGIBLE_LEADERS_NOT_AVAILABLE": "No replica of the partition may become its leader now.",
    "ELECTION_NOT_NEEDED": "The partition has the wanted leader already.",
    "NO_REASSIGNMENT_IN_PROGRESS": "The partition is not being moved.",
    "GROUP_SUBSCRIBED_TO_TOPIC": (
        "The group is subscribed to the topic, so its offsets cannot be deleted."
    ),
    "INVALID_RECORD": (
        "The broker refused an invalid record. A compacted topic needs keys, and the timestamp"
        " type and offsets must fit. The request's other records may be fine."
    ),
    "UNSTABLE_OFFSET_COMMIT": (
        "Offsets of an open transaction are pending; they will be known when it ends."
    ),
    "THROTTLING_QUOTA_EXCEEDED": "A quota is used up; wait for the time that the broker set.",
    "PRODUCER_FENCED": (
        "Another producer with the same transactional_id has taken this one's place. Close it;"
        " give every running producer an id of its own."
    ),
    "RESOURCE_NOT_FOUND": "There is no such resource.",
    "DUPLICATE_RESOURCE": "The request names the same thing twice.",
    "UNACCEPTABLE_CREDENTIAL": (
        "The credential does not meet the broker's rules, such as the range of iterations."
    ),
    "INCONSISTENT_VOTER_SET": "The voters named are not those of the quorum.",
    "INVALID_UPDATE_VERSION": "The version given for the update does not fit the present one.",
    "FEATURE_UPDATE_FAILED": "The cluster's features could not be changed.",
    "PRINCIPAL_DESERIALIZATION_FAILURE": (
        "The controller could not read the principal that a broker forwarded."
    ),
    "SNAPSHOT_NOT_FOUND": "There is no such metadata snapshot.",
    "POSITION_OUT_OF_RANGE": "The position lies outside the metadata snapshot.",
    "UNKNOWN_TOPIC_ID": (
        "The broker does not know this topic id: the topic is new, or was deleted and made again."
    ),
    "DUPLICATE_BROKER_REGISTRATION": "A running broker has this id already.",
    "BROKER_ID_NOT_REGISTERED": "No broker with this id is registered.",
    "INCONSISTENT_TOPIC_ID": "The topic id does not belong to this topic.",
    "INCONSISTENT_CLUSTER_ID": "The request is meant for another cluster.",
    "TRANSACTIONAL_ID_NOT_FOUND": "The coordinator does not know this transactional id.",
    "FETCH_SESSION_TOPIC_ID_ERROR": (
        "The fetch session mixes topic names and topic ids; a new one is needed."
    ),
    "INELIGIBLE_REPLICA": "The replica may not join the in-sync set.",
    "NEW_LEADER_ELECTED": "The partition's leader has changed meanwhile.",
    "OFFSET_MOVED_TO_TIERED_STORAGE": "The offset lies in tiered storage.",
    "FENCED_MEMBER_EPOCH": (
        "The coordinator has given this member up; it must drop its partitions and join again."
    ),
    "UNRELEASED_INSTANCE_ID": (
        "A consumer with the same group_instance_id is still a member. Stop it, or give this one"
        " an id of its own."
    ),
    "UNSUPPORTED_ASSIGNOR": (
        "The broker has no such assignor. Set group_remote_assignor to one that it has."
    ),
    "STALE_MEMBER_EPOCH": "The member's epoch is behind; try again after the next heartbeat.",
    "MISMATCHED_ENDPOINT_TYPE": (
        "A broker's address was given where a controller's is meant, or the reverse."
    ),
    "UNSUPPORTED_ENDPOINT_TYPE": "The broker does not know this kind of endpoint.",
    "UNKNOWN_CONTROLLER_ID": "There is no controller with this id.",
    "UNKNOWN_SUBSCRIPTION_ID": (
        "The telemetry subscription has changed; it must be requested again."
    ),
    "TELEMETRY_TOO_LARGE": "The metrics pushed are larger than the broker's telemetry.max.bytes.",
    "INVALID_REGISTRATION": "The controller refused a broker's registration.",
    "TRANSACTION_ABORTABLE": "The transaction cannot be committed; abort it and start a new one.",
    "INVALID_RECORD_STATE": (
        "The record cannot be acknowledged (any more): its lock ran out, or another one has it."
    ),
    "SHARE_SESSION_NOT_FOUND": "The broker dropped the share session; a new one is needed.",
    "INVALID_SHARE_SESSION_EPOCH": "The share session is out of step; a new one is needed.",
    "FENCED_STATE_EPOCH": "The share coordinator has newer state than the sender.",
    "INVALID_VOTER_KEY": "The voter's key does not fit the receiver.",
    "DUPLICATE_VOTER": "The voter belongs to the quorum already.",
    "VOTER_NOT_FOUND": "The voter does not belong to the quorum.",
    "INVALID_REGULAR_EXPRESSION": (
        "The broker cannot use the subscription's pattern; it takes the RE2 syntax."
    ),
    "REBOOTSTRAP_REQUIRED": (
        "The broker requires the client to start over from its bootstrap_servers."
    ),
    "STREAMS_INVALID_TOPOLOGY": "The topology of the streams group is not valid.",
    "STREAMS_INVALID_TOPOLOGY_EPOCH": "The topology epoch of the streams group is not valid.",
    "STREAMS_TOPOLOGY_FENCED": "The topology epoch of the streams group is out of date.",
    "SHARE_SESSION_LIMIT_REACHED": "The broker has as many share sessions as it takes.",
    "GROUP_DELETION_FAILED": "The broker could not delete the group; its message says why.",
    "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED": (
        "The broker could not store the description of the streams group's topology."
    ),
    "CONTROLLER_ID_NOT_REGISTERED": "No controller with this id is registered.",
}
