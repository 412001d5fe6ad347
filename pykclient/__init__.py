"""A Kafka client in Python, from the sockets up.

All public names are here, in `pykclient.errors`, `pykclient.serialization` or `pykclient.testing`;
other modules are internal. A name is imported at its first use: a program that only produces never
imports the consumer.

Owner: none; it holds no state.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from pykclient import errors
from pykclient.version import __version__

if TYPE_CHECKING:
    from pykclient.accel import ConsumerRecord, Delivery
    from pykclient.admin.admin import Admin
    from pykclient.admin.configs import (
        AlterConfigOp,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ConfigResourceType,
        ConfigSource,
        ConfigSynonym,
        ConfigType,
    )
    from pykclient.admin.groups import GroupDescription, GroupListing, MemberDescription
    from pykclient.admin.topics import (
        CreatedTopic,
        NewPartitions,
        NewTopic,
        TopicDescription,
        TopicListing,
    )
    from pykclient.admin.transactions import (
        AbortTransactionSpec,
        ProducerState,
        TransactionDescription,
        TransactionListing,
    )
    from pykclient.config.client_properties import from_properties
    from pykclient.config.keywords import AdminSettings, ConsumerSettings, ProducerSettings
    from pykclient.consumer.consumer import Consumer
    from pykclient.consumer.group.assignors import (
        Assignment,
        Assignor,
        GroupMember,
        PartitionReplicas,
        RebalanceProtocol,
        TopicRacks,
        TopicReplicas,
    )
    from pykclient.consumer.group.history import Rebalance
    from pykclient.consumer.group.rebalance import RebalanceListener
    from pykclient.consumer.interceptors import ConsumerInterceptor
    from pykclient.consumer.record import ConsumerRecords
    from pykclient.exactly_once import ExactlyOnce, ExactlyOnceBatch
    from pykclient.metrics import MetricName
    from pykclient.network.cluster.cluster import PartitionInfo
    from pykclient.network.sasl.mechanism import SaslMechanism, register_sasl_mechanism
    from pykclient.network.sasl.token import OAuthToken
    from pykclient.producer.bulk.delivery import RecordMetadataRange
    from pykclient.producer.interceptors import ProducerInterceptor
    from pykclient.producer.producer import Producer
    from pykclient.producer.record import ProducerRecord, RecordMetadata
    from pykclient.types import (
        GroupMetadata,
        Node,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        PreparedTransaction,
        TimestampType,
        TopicPartition,
    )

__all__ = [
    "AbortTransactionSpec",
    "Admin",
    "AdminSettings",
    "AlterConfigOp",
    "AlterConfigOpType",
    "Assignment",
    "Assignor",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "Consumer",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "ConsumerRecords",
    "ConsumerSettings",
    "CreatedTopic",
    "Delivery",
    "ExactlyOnce",
    "ExactlyOnceBatch",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupMetadata",
    "MemberDescription",
    "MetricName",
    "NewPartitions",
    "NewTopic",
    "Node",
    "OAuthToken",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionInfo",
    "PartitionReplicas",
    "PreparedTransaction",
    "Producer",
    "ProducerInterceptor",
    "ProducerRecord",
    "ProducerSettings",
    "ProducerState",
    "Rebalance",
    "RebalanceListener",
    "RebalanceProtocol",
    "RecordMetadata",
    "RecordMetadataRange",
    "SaslMechanism",
    "TimestampType",
    "TopicDescription",
    "TopicListing",
    "TopicPartition",
    "TopicRacks",
    "TopicReplicas",
    "TransactionDescription",
    "TransactionListing",
    "__version__",
    "errors",
    "from_properties",
    "register_sasl_mechanism",
]

_HOME = {
    name: module
    for module, names in {
        ".accel": "ConsumerRecord Delivery",
        ".admin.admin": "Admin",
        ".admin.configs": "AlterConfigOp AlterConfigOpType ConfigEntry ConfigResource "
        "ConfigResourceType ConfigSource ConfigSynonym ConfigType",
        ".admin.groups": "GroupDescription GroupListing MemberDescription",
        ".admin.topics": "CreatedTopic NewPartitions NewTopic TopicDescription TopicListing",
        ".admin.transactions": "AbortTransactionSpec ProducerState TransactionDescription "
        "TransactionListing",
        ".config.keywords": "AdminSettings ConsumerSettings ProducerSettings",
        ".config.client_properties": "from_properties",
        ".consumer.consumer": "Consumer",
        ".consumer.group.assignors": "Assignment Assignor GroupMember PartitionReplicas "
        "RebalanceProtocol TopicRacks TopicReplicas",
        ".consumer.group.history": "Rebalance",
        ".consumer.group.rebalance": "RebalanceListener",
        ".consumer.interceptors": "ConsumerInterceptor",
        ".consumer.record": "ConsumerRecords",
        ".exactly_once": "ExactlyOnce ExactlyOnceBatch",
        ".metrics": "MetricName",
        ".network.cluster.cluster": "PartitionInfo",
        ".network.sasl.mechanism": "SaslMechanism register_sasl_mechanism",
        ".network.sasl.token": "OAuthToken",
        ".producer.bulk.delivery": "RecordMetadataRange",
        ".producer.interceptors": "ProducerInterceptor",
        ".producer.producer": "Producer",
        ".producer.record": "ProducerRecord RecordMetadata",
        ".types": "GroupMetadata Node OffsetAndMetadata OffsetAndTimestamp PreparedTransaction "
        "TimestampType TopicPartition",
    }.items()
    for name in names.split()
}


_INSTEAD = {
    **dict.fromkeys(("AdminClient", "KafkaAdminClient"), "Admin"),
    **dict.fromkeys(("DeserializingConsumer", "KafkaConsumer"), "Consumer"),
    **dict.fromkeys(("KafkaProducer", "SerializingProducer"), "Producer"),
    **dict.fromkeys(("KafkaException", "KafkaError"), "errors.KafkaError"),
    "Message": "ConsumerRecord",
}
"""Names of other clients, with their replacement. `from ... import` does not show the text of an
AttributeError."""


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name in _INSTEAD:
            raise ImportError(
                f"pykclient has no {name}; use pykclient.{_INSTEAD[name]}: see the "
                f"pages on coming from confluent-kafka and from kafka-python",
                name=__name__,
            )
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOME[name], __name__), name)
        globals()[name] = value  # later uses find it directly
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
