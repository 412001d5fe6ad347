"""Methods of other clients, by the class here.

A class needs their names, because `__getattr__` would slow each look-up of a method.
`other_clients` has what takes their place, and is read when one is looked up.

Owner: none; it holds a table.
Source: ours.
"""

from __future__ import annotations

from typing import Final

METHODS: Final[dict[str, tuple[str, ...]]] = {
    "Producer": (
        *("produce", "produce_batch", "create_batch", "send_and_wait", "poll", "list_topics"),
        *("cluster_id", "set_sasl_credentials", "bootstrap_connected"),
        *("max_usable_produce_magic", "start", "stop"),
    ),
    "Consumer": (
        *("consume", "getone", "getmany", "get_watermark_offsets", "topics", "highwater"),
        *("last_stable_offset", "last_poll_timestamp", "partitions_for_topic", "store_offsets"),
        *("seek_to_committed", "incremental_assign", "incremental_unassign", "unassign"),
        *("memberid", "consumer_group_metadata", "cluster_id", "set_sasl_credentials"),
        *("bootstrap", "bootstrap_connected", "start", "stop"),
    ),
    "Admin": (
        *("poll", "start", "list_consumer_groups", "describe_consumer_groups"),
        *("delete_consumer_groups", "list_consumer_group_offsets"),
        *("alter_consumer_group_offsets", "reset_group_offsets", "remove_group_members"),
        *("find_coordinator", "alter_configs", "reset_configs", "list_config_resources"),
        *("list_offsets", "list_partition_offsets", "describe_topic_partitions"),
        *("wait_for_topics", "find_hanging_transactions", "delete_records", "elect_leaders"),
        *("describe_cluster", "cluster_id", "create_acls", "describe_acls", "delete_acls"),
        *("describe_user_scram_credentials", "alter_user_scram_credentials"),
        *("set_sasl_credentials", "alter_partition_reassignments"),
        *("list_partition_reassignments", "alter_replica_log_dirs", "describe_log_dirs"),
        *("describe_features", "update_features", "describe_metadata_quorum", "api_versions"),
        *("get_broker_version_data",),
    ),
}
"""Names of methods; the same as in ``other_clients.toml``."""
