"""The table of generated APIs. To use another API, add its name here and run the tool."""

from __future__ import annotations

APIS = (
    # records and the cluster
    *("Produce", "Fetch", "ListOffsets", "Metadata", "ApiVersions", "OffsetForLeaderEpoch"),
    *("FindCoordinator", "DescribeCluster", "DescribeTopicPartitions", "DescribeQuorum"),
    *("SaslHandshake", "SaslAuthenticate"),
    *("GetTelemetrySubscriptions", "PushTelemetry"),
    # groups
    *("OffsetCommit", "OffsetFetch", "OffsetDelete"),
    *("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"),
    *("ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "StreamsGroupDescribe"),
    *("DescribeGroups", "ListGroups", "DeleteGroups"),
    # share groups
    *("ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch", "ShareAcknowledge"),
    *("DescribeShareGroupOffsets", "AlterShareGroupOffsets", "DeleteShareGroupOffsets"),
    # idempotence and transactions
    *("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit"),
    *("DescribeTransactions", "ListTransactions", "DescribeProducers", "WriteTxnMarkers"),
    # administration: topics and their partitions
    *("CreateTopics", "DeleteTopics", "CreatePartitions", "DeleteRecords", "ElectLeaders"),
    *("AlterPartitionReassignments", "ListPartitionReassignments"),
    *("AlterReplicaLogDirs", "DescribeLogDirs"),
    # administration: settings, access, users
    *("DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs", "ListConfigResources"),
    *("DescribeAcls", "CreateAcls", "DeleteAcls"),
    *("DescribeClientQuotas", "AlterClientQuotas"),
    *("DescribeUserScramCredentials", "AlterUserScramCredentials"),
    *("CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken"),
    "DescribeDelegationToken",
    # administration: the cluster itself
    *("UpdateFeatures", "UnregisterBroker", "AddRaftVoter", "RemoveRaftVoter"),
)
"""Names as in the schemas, without "Request" and "Response"; one module each."""

LEFT_OUT = {
    **dict.fromkeys(
        (
            *("InitializeShareGroupState", "ReadShareGroupState", "ReadShareGroupStateSummary"),
            *("WriteShareGroupState", "DeleteShareGroupState"),
        ),
        "brokers send it to each other",
    ),
    **dict.fromkeys(
        ("StreamsGroupHeartbeat", "StreamsGroupTopologyDescriptionUpdate"),
        "members of Kafka Streams send it",
    ),
    "UnregisterController": "no call of Admin needs it",
}
"""APIs of a broker's listener that are not generated, with the reason."""

UNSTABLE_APIS = frozenset({"InitProducerId"})
"""Messages whose last version is generated although Kafka calls it unstable; brokers support it
with ``unstable.api.versions.enable``. Only code that names the version uses it. InitProducerId:
KIP-939."""


def _with_keys(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}{side}" for name in names for side in ("Key", "Value"))


DATA: dict[str, tuple[str, ...]] = {
    "consumer_protocol": ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment"),
    "offset_records": _with_keys("LegacyOffsetCommit", "OffsetCommit", "GroupMetadata"),
    "consumer_group_records": _with_keys(
        "ConsumerGroupMetadata",
        "ConsumerGroupPartitionMetadata",
        "ConsumerGroupMemberMetadata",
        "ConsumerGroupTargetAssignmentMetadata",
        "ConsumerGroupTargetAssignmentMember",
        "ConsumerGroupCurrentMemberAssignment",
        "ConsumerGroupRegularExpression",
    ),
    "share_group_records": _with_keys(
        "ShareGroupMetadata",
        "ShareGroupMemberMetadata",
        "ShareGroupTargetAssignmentMetadata",
        "ShareGroupTargetAssignmentMember",
        "ShareGroupCurrentMemberAssignment",
        "ShareGroupStatePartitionMetadata",
    ),
    "streams_group_records": _with_keys(
        "StreamsGroupMetadata",
        "StreamsGroupMemberMetadata",
        "StreamsGroupTopology",
        "StreamsGroupTargetAssignmentMetadata",
        "StreamsGroupTargetAssignmentMember",
        "StreamsGroupCurrentMemberAssignment",
    ),
    "share_state_records": _with_keys("ShareSnapshot", "ShareUpdate"),
    "transaction_records": _with_keys("TransactionLog"),
    "control_records": (
        *("ControlRecordTypeSchema", "EndTxnMarker", "LeaderChangeMessage"),
        *("SnapshotHeaderRecord", "SnapshotFooterRecord", "KRaftVersionRecord", "VotersRecord"),
    ),
}
"""Module name -> schemas that belong to no API."""

MASKED = frozenset(
    {
        *("AuthBytes", "Password", "SaltedPassword", "Salt", "Hmac"),
        "AlterableConfig.Value",
    }
)
"""Fields whose values never show in a message's representation: of any structure, or of one."""
