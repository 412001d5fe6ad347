"""The settings of transactions, and of how long producers are remembered.

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
    """Settings with Kafka's defaults. Times are in ms.

    A transaction whose time is over is aborted at once; Kafka looks every ten seconds.

    Raises:
        UsageError: a number is out of its range.
    """

    transaction_version: int = 2
    """Kafka's feature ``transaction.version``: from 2 on each transaction has an epoch of its own,
    and brokers add partitions themselves (KIP-890); 1 and 0 are the protocol of before."""
    transaction_max_timeout_ms: int = 900_000
    transaction_state_log_num_partitions: int = 50
    transaction_partition_verification_enable: bool = True
    """Whether a partition's leader looks whether the partition is in the transaction."""
    transactional_id_expiration_ms: int = 604_800_000
    producer_id_expiration_ms: int = 86_400_000
    unstable_api_versions_enable: bool = False
    """Whether brokers have versions that Kafka calls unstable: here that of InitProducerId, 6."""
    transaction_two_phase_commit_enable: bool = False
    """Whether producers may take part in two-phase commits (KIP-939): then their transactions have
    no time-out. Only the version above lets them request it."""
    marker_delay_ms: int = 0
    """How long after EndTxn the markers are written. No setting of Kafka's, where it depends on
    the brokers; producers get CONCURRENT_TRANSACTIONS meanwhile."""

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
