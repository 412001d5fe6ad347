"""Settings of transactions and of producer expiration.

Owner: none; it holds no state.
Source: Kafka's broker configuration (``transaction*``, ``producer.id*``).
"""

from __future__ import annotations

from dataclasses import dataclass

from pykclient.arguments import check_number
from pykclient.config.setting import INT_MAX

TRANSACTION_VERSION_MAX = 2


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Broker settings with Kafka's defaults. Times are in ms.

    A transaction is aborted exactly at its timeout; Kafka checks every ten seconds.

    Raises:
        UsageError: a number is out of range.
    """

    transaction_version: int = 2
    """Kafka's feature ``transaction.version``. From 2 on each transaction has its own epoch, and
    brokers add partitions themselves (KIP-890); 0 and 1 are the older protocol."""
    transaction_max_timeout_ms: int = 900_000
    transaction_state_log_num_partitions: int = 50
    transaction_partition_verification_enable: bool = True
    """True to make partition leaders verify that a partition is in the transaction."""
    transactional_id_expiration_ms: int = 604_800_000
    producer_id_expiration_ms: int = 86_400_000
    unstable_api_versions_enable: bool = False
    """True to support API versions that Kafka calls unstable: here InitProducerId 6."""
    transaction_two_phase_commit_enable: bool = False
    """True to allow two-phase commits (KIP-939), whose transactions do not time out. Producers also
    need the unstable version above."""
    marker_delay_ms: int = 0
    """Delay of the markers after EndTxn; meanwhile producers get CONCURRENT_TRANSACTIONS. Not a
    setting of Kafka, where it depends on the brokers."""

    def __post_init__(self) -> None:
        check_number(self.transaction_version, "transaction_version", 0, TRANSACTION_VERSION_MAX)
        for name, least in (
            ("transaction_max_timeout_ms", 1),
            ("transaction_state_log_num_partitions", 1),
            ("transactional_id_expiration_ms", 1),
            ("producer_id_expiration_ms", 1),
            ("marker_delay_ms", 0),
        ):
            check_number(getattr(self, name), name, least, INT_MAX)
