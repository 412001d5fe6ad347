"""Methods and arguments of other clients, and their replacements here.

The names come from confluent-kafka, kafka-python and aiokafka. `tools/peers.toml` lists their
methods, and a test checks that each of them exists here or is in these tables.

Owner: none; tables only.
Source: ours.
"""

from __future__ import annotations

from typing import Final

_NOT_NEEDED: Final = "it is not needed: a background thread sends and calls back"
_STARTED: Final = "it is not needed: a client works from its constructor to close()"
_CLOSED: Final = "use close()"
_CONNECTED: Final = "it is not needed: clients connect by themselves, and errors say what fails"
_CREDENTIALS: Final = "make a new client with other sasl_username and sasl_password"


def _tool(name: str) -> str:
    return f"it is not built yet; use Kafka's own {name}"


_ACLS: Final = _tool("kafka-acls.sh")
_USERS: Final = _tool("kafka-configs.sh --entity-type users")
_CLUSTER: Final = _tool("kafka-cluster.sh")
_REASSIGNMENTS: Final = _tool("kafka-reassign-partitions.sh")
_VERSIONS: Final = _tool("kafka-broker-api-versions.sh")
_FEATURES: Final = _tool("kafka-features.sh")
_LOG_DIRS: Final = _tool("kafka-log-dirs.sh")

METHODS_INSTEAD: Final[dict[str, dict[str, str]]] = {
    "Producer": {
        "produce": "use send(topic, value, key=..., on_delivery=...)",
        "produce_batch": "use send_batch(topic, values, ...)",
        "create_batch": "use send_batch(topic, values, ...)",
        "send_and_wait": "use send(topic, value).result(timeout)",
        "poll": _NOT_NEEDED,
        "list_topics": "use partitions_for(topic), or Admin.list_topics()",
        "cluster_id": _CLUSTER,
        "set_sasl_credentials": _CREDENTIALS,
        "bootstrap_connected": _CONNECTED,
        "max_usable_produce_magic": "it is not needed: batches have the newest format, magic 2",
        "start": _STARTED,
        "stop": _CLOSED,
    },
    "Consumer": {
        "consume": "use poll(timeout, max_records)",
        "getone": "use poll(timeout, 1)",
        "getmany": "use poll(timeout)",
        "get_watermark_offsets": "use beginning_offsets(partitions) and end_offsets(partitions)",
        "topics": "use list_topics()",
        "highwater": "use current_lag(partition), or end_offsets(partitions)",
        "last_stable_offset": "use end_offsets(partitions) with isolation_level='read_committed'",
        "last_poll_timestamp": "note the time yourself, or use metrics()",
        "partitions_for_topic": "use partitions_for(topic)",
        "store_offsets": "use store_offset(record)",
        "seek_to_committed": "use committed(partitions), and seek(partition, offset)",
        "incremental_assign": "use assign(partitions), which keeps the positions of those it had",
        "incremental_unassign": "use assign(partitions) with those that are left",
        "unassign": "use unsubscribe()",
        "memberid": "use group_metadata().member_id",
        "consumer_group_metadata": "use group_metadata()",
        "cluster_id": _CLUSTER,
        "set_sasl_credentials": _CREDENTIALS,
        "bootstrap": _CONNECTED,
        "bootstrap_connected": _CONNECTED,
        "start": _STARTED,
        "stop": _CLOSED,
    },
    "Admin": {
        "poll": "it is not needed: each call returns its result",
        "start": _STARTED,
        "list_consumer_groups": "use list_groups()",
        "describe_consumer_groups": "use describe_groups(groups)",
        "delete_consumer_groups": "use delete_groups(groups)",
        "list_consumer_group_offsets": "use list_group_offsets(group)",
        "alter_consumer_group_offsets": "use alter_group_offsets(group, offsets)",
        "reset_group_offsets": (
            "use alter_group_offsets(group, offsets), or pykclient groups reset at the command line"
        ),
        "remove_group_members": (
            "stop the member, or end it by Consumer.close(group_membership='leave_group')"
        ),
        "find_coordinator": "use find_coordinators(groups)",
        "alter_configs": "use incremental_alter_configs(configs)",
        "reset_configs": (
            "use incremental_alter_configs(configs) with "
            "AlterConfigOp(name, op_type=AlterConfigOpType.DELETE)"
        ),
        "list_config_resources": _tool("kafka-configs.sh"),
        "list_offsets": "use end_offsets(partitions) and offsets_for_times(...) of a Consumer",
        "list_partition_offsets": (
            "use end_offsets(partitions) and offsets_for_times(...) of a Consumer"
        ),
        "describe_topic_partitions": "use describe_topics(topics)",
        "wait_for_topics": "it is not needed: create_topics() waits until every broker knows them",
        "find_hanging_transactions": (
            "use describe_producers(partitions), or pykclient transactions abort-hanging at the "
            "command line"
        ),
        "delete_records": _tool("kafka-delete-records.sh"),
        "elect_leaders": _tool("kafka-leader-election.sh"),
        "describe_cluster": _CLUSTER,
        "cluster_id": _CLUSTER,
        "create_acls": _ACLS,
        "describe_acls": _ACLS,
        "delete_acls": _ACLS,
        "describe_user_scram_credentials": _USERS,
        "alter_user_scram_credentials": _USERS,
        "set_sasl_credentials": _CREDENTIALS,
        "alter_partition_reassignments": _REASSIGNMENTS,
        "list_partition_reassignments": _REASSIGNMENTS,
        "alter_replica_log_dirs": _LOG_DIRS,
        "describe_log_dirs": _LOG_DIRS,
        "describe_features": _FEATURES,
        "update_features": _FEATURES,
        "describe_metadata_quorum": _tool("kafka-metadata-quorum.sh"),
        "api_versions": _VERSIONS,
        "get_broker_version_data": _VERSIONS,
    },
}
"""Replacement of a method, by the class here and the name there."""

_LISTENER: Final = "give listener=RebalanceListener(on_assigned=, on_revoked=, on_lost=)"
_SECONDS: Final = "the time is timeout, in seconds"
_GROUPS: Final = "give groups, a list of names"
_FOUND_BY_ITSELF: Final = "leave it out: the broker is found by itself"
_PERMISSIONS: Final = "leave it out: permissions are not listed"

KEYWORDS_INSTEAD: Final = {
    "timeout_ms": _SECONDS,
    "request_timeout": _SECONDS,
    "operation_timeout": _SECONDS,
    # Consumer
    "num_messages": "give max_records",
    "update_offsets": "leave it out: poll moves positions; seek(partition, offset) moves them back",
    "message": "give the record, as the first argument",
    "asynchronous": "commit() waits, and commit_async() does not",
    "autocommit": "leave it out, or set enable_auto_commit",
    "on_assign": _LISTENER,
    "on_revoke": _LISTENER,
    "on_lost": _LISTENER,
    "partition": "give partitions, a list",
    "metadata": "leave it out: what is returned has offset and metadata",
    "timestamps": "give timestamps_ms",
    "cached": "leave it out: brokers are asked each time",
    # Producer
    "callback": "give on_delivery",
    "messages": "give values, and keys",
    "batch": "give values, and keys",
    "in_queue": "give queued",
    "blocking": "leave it out: records of a transaction are purged as all others",
    "null_logger": "leave it out",
    "positions": "give offsets, by TopicPartition",
    # Admin
    "new_topics": "give topics, a list of NewTopic",
    "topic": "leave it out, or use describe_topics(topics)",
    "topic_partitions": "give new_partitions, a dict of NewPartitions by topic",
    "config_resources": "give resources, a list of ConfigResource",
    "config_filter": "leave it out: all settings are returned",
    "broker": _FOUND_BY_ITSELF,
    "broker_id": _FOUND_BY_ITSELF,
    "broker_ids": "leave it out: all brokers are asked",
    "group_id": "give group, or a consumer's group_metadata",
    "group_ids": _GROUPS,
    "group_specs": "give group and partitions, one call for each group",
    "group_coordinator_id": _FOUND_BY_ITSELF,
    "include_authorized_operations": _PERMISSIONS,
    "raise_errors": "leave it out: errors are raised",
    "validate_only": "leave it out: this call has no dry run",
    "wait_for_metadata": "leave it out: it waits until every broker knows the topics",
    "states_filter": "give states",
    "state_filters": "give states",
    "types_filter": "give types",
    "producer_id_filters": "give producer_ids",
    "duration_filter_ms": "give open_for, in seconds",
    "transactional_id_pattern": "give id_pattern",
    "raw": "leave it out",
}
"""Replacement of an argument, by its name there."""
