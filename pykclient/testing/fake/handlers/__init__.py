"""Request handlers, one module for each API.

To support another API, write its module and add it here. A handler takes the cluster, the call and
the request. It returns the response, or returns None and ends the call later (`Call.respond`), with
the help of `cluster.purgatory` and `cluster.timers`.

Owner: none; handlers hold no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_producers,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)

if TYPE_CHECKING:
    from pykclient.protocol.message import Request
    from pykclient.testing.fake.handlers.handler import Handler

__all__ = ["HANDLERS"]

HANDLERS: dict[ApiKey, Handler[Request]] = {
    ApiKey.PRODUCE: produce.HANDLER,
    ApiKey.FETCH: fetch.HANDLER,
    ApiKey.LIST_OFFSETS: list_offsets.HANDLER,
    ApiKey.METADATA: metadata.HANDLER,
    ApiKey.FIND_COORDINATOR: find_coordinator.HANDLER,
    ApiKey.API_VERSIONS: api_versions.HANDLER,
    ApiKey.CREATE_PARTITIONS: create_partitions.HANDLER,
    ApiKey.CREATE_TOPICS: create_topics.HANDLER,
    ApiKey.DELETE_TOPICS: delete_topics.HANDLER,
    ApiKey.DELETE_RECORDS: delete_records.HANDLER,
    ApiKey.INIT_PRODUCER_ID: init_producer_id.HANDLER,
    ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn.HANDLER,
    ApiKey.ADD_OFFSETS_TO_TXN: add_offsets_to_txn.HANDLER,
    ApiKey.END_TXN: end_txn.HANDLER,
    ApiKey.WRITE_TXN_MARKERS: write_txn_markers.HANDLER,
    ApiKey.TXN_OFFSET_COMMIT: txn_offset_commit.HANDLER,
    ApiKey.DESCRIBE_PRODUCERS: describe_producers.HANDLER,
    ApiKey.DESCRIBE_TRANSACTIONS: describe_transactions.HANDLER,
    ApiKey.LIST_TRANSACTIONS: list_transactions.HANDLER,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.HANDLER,
    ApiKey.DESCRIBE_CONFIGS: describe_configs.HANDLER,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.HANDLER,
    ApiKey.DESCRIBE_CLUSTER: describe_cluster.HANDLER,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat.HANDLER,
    ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_group_describe.HANDLER,
    ApiKey.JOIN_GROUP: join_group.HANDLER,
    ApiKey.SYNC_GROUP: sync_group.HANDLER,
    ApiKey.HEARTBEAT: heartbeat.HANDLER,
    ApiKey.LEAVE_GROUP: leave_group.HANDLER,
    ApiKey.OFFSET_COMMIT: offset_commit.HANDLER,
    ApiKey.OFFSET_FETCH: offset_fetch.HANDLER,
    ApiKey.OFFSET_DELETE: offset_delete.HANDLER,
    ApiKey.DESCRIBE_GROUPS: describe_groups.HANDLER,
    ApiKey.LIST_GROUPS: list_groups.HANDLER,
    ApiKey.DELETE_GROUPS: delete_groups.HANDLER,
    ApiKey.SASL_HANDSHAKE: sasl_handshake.HANDLER,
    ApiKey.SASL_AUTHENTICATE: sasl_authenticate.HANDLER,
}
