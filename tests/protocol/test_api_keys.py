"""The table of APIs equals the classes that it leads to."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pykclient.errors.base import UnsupportedVersionError
from pykclient.protocol.api_keys import APIS, ApiKey, request_type, response_type
from tools.protogen.apis import DATA

FULL_CLIENT = (
    *("PRODUCE", "FETCH", "LIST_OFFSETS", "METADATA", "OFFSET_FOR_LEADER_EPOCH", "API_VERSIONS"),
    *("OFFSET_COMMIT", "OFFSET_FETCH", "OFFSET_DELETE", "FIND_COORDINATOR"),
    *("JOIN_GROUP", "SYNC_GROUP", "HEARTBEAT", "LEAVE_GROUP"),
    *("CONSUMER_GROUP_HEARTBEAT", "CONSUMER_GROUP_DESCRIBE"),
    *("DESCRIBE_GROUPS", "LIST_GROUPS", "DELETE_GROUPS"),
    *("SASL_HANDSHAKE", "SASL_AUTHENTICATE"),
    *("INIT_PRODUCER_ID", "ADD_PARTITIONS_TO_TXN", "ADD_OFFSETS_TO_TXN", "END_TXN"),
    *("TXN_OFFSET_COMMIT", "DESCRIBE_TRANSACTIONS", "LIST_TRANSACTIONS", "DESCRIBE_PRODUCERS"),
    *("CREATE_TOPICS", "DELETE_TOPICS", "CREATE_PARTITIONS", "DELETE_RECORDS"),
    *("DESCRIBE_CONFIGS", "INCREMENTAL_ALTER_CONFIGS"),
    *("DESCRIBE_ACLS", "CREATE_ACLS", "DELETE_ACLS"),
    *("DESCRIBE_USER_SCRAM_CREDENTIALS", "ALTER_USER_SCRAM_CREDENTIALS"),
    *("DESCRIBE_CLIENT_QUOTAS", "ALTER_CLIENT_QUOTAS"),
    *("CREATE_DELEGATION_TOKEN", "RENEW_DELEGATION_TOKEN", "EXPIRE_DELEGATION_TOKEN"),
    "DESCRIBE_DELEGATION_TOKEN",
    *("ALTER_PARTITION_REASSIGNMENTS", "LIST_PARTITION_REASSIGNMENTS"),
    *("DESCRIBE_LOG_DIRS", "ALTER_REPLICA_LOG_DIRS", "DESCRIBE_QUORUM", "DESCRIBE_CLUSTER"),
    *("DESCRIBE_TOPIC_PARTITIONS", "GET_TELEMETRY_SUBSCRIPTIONS", "PUSH_TELEMETRY"),
    *("SHARE_GROUP_HEARTBEAT", "SHARE_GROUP_DESCRIBE", "SHARE_FETCH", "SHARE_ACKNOWLEDGE"),
)
"""By now, or once all that is planned is built."""

OWN_TOPICS_RECORDS = (
    *("OffsetCommitKey", "OffsetCommitValue", "GroupMetadataKey", "GroupMetadataValue"),
    *("ConsumerGroupMetadataValue", "ConsumerGroupCurrentMemberAssignmentValue"),
    *("ShareGroupMetadataValue", "ShareSnapshotValue", "ShareUpdateValue"),
    *("ConsumerProtocolSubscription", "ConsumerProtocolAssignment"),
)


def test_table_and_classes_agree() -> None:
    for key, api in APIS.items():
        request, response = request_type(key), response_type(key)
        assert request.response_type is response
        for message, name in ((request, f"{api.name}Request"), (response, f"{api.name}Response")):
            assert message.__name__ == name
            assert message.api_key is key
            assert (message.min_version, message.max_version) == (api.min_version, api.max_version)
            assert message.flexible_from == api.flexible_from


def test_every_request_of_a_full_client_is_built() -> None:
    assert {name for name in FULL_CLIENT if ApiKey[name] not in APIS} == set()


def test_records_of_the_brokers_own_topics_can_be_read() -> None:
    missing = set(OWN_TOPICS_RECORDS) - {name for names in DATA.values() for name in names}
    assert missing == set()


@pytest.mark.parametrize("number", [ApiKey.LEADER_AND_ISR, 4, -1, 999])
def test_api_that_is_not_spoken_is_refused(number: int) -> None:
    with pytest.raises(UnsupportedVersionError, match=f"API {int(number)}"):
        request_type(number)
    with pytest.raises(UnsupportedVersionError, match=f"API {int(number)}"):
        response_type(number)


@pytest.mark.parametrize("module", ["pykclient", "pykclient.protocol.message"])
def test_importing_the_package_or_the_table_loads_no_message(module: str) -> None:
    code = (
        f"import sys, {module};print([name for name in sys.modules if 'protocol.messages' in name])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
