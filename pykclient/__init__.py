"""A Kafka client in Python, from the sockets up.

Everything that users import stands here, in `pykclient.errors` or in `pykclient.testing`; other
modules are internal. A name is loaded at its first use: a program that only produces never loads
the consumer.

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
    from pykclient.admin.groups import GroupDescription, GroupListing, MemberDescription
    from pykclient.admin.topics import CreatedTopic, NewTopic, TopicDescription, TopicListing
    from pykclient.consumer.consumer import Consumer
    from pykclient.consumer.group.assignors import (
        Assignment,
        Assignor,
        GroupMember,
        RebalanceProtocol,
        TopicRacks,
    )
    from pykclient.consumer.group.history import Rebalance
    from pykclient.consumer.group.metadata import GroupMetadata
    from pykclient.consumer.group.rebalance import RebalanceListener
    from pykclient.consumer.record import ConsumerRecords
    from pykclient.metrics import MetricName
    from pykclient.network.cluster.cluster import PartitionInfo
    from pykclient.producer.bulk.delivery import RecordMetadataRange
    from pykclient.producer.producer import Producer
    from pykclient.producer.record import ProducerRecord, RecordMetadata
    from pykclient.types import (
        Node,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        TimestampType,
        TopicPartition,
    )

__all__ = [
    "Admin",
    "Assignment",
    "Assignor",
    "Consumer",
    "ConsumerRecord",
    "ConsumerRecords",
    "CreatedTopic",
    "Delivery",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupMetadata",
    "MemberDescription",
    "MetricName",
    "NewTopic",
    "Node",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionInfo",
    "Producer",
    "ProducerRecord",
    "Rebalance",
    "RebalanceListener",
    "RebalanceProtocol",
    "RecordMetadata",
    "RecordMetadataRange",
    "TimestampType",
    "TopicDescription",
    "TopicListing",
    "TopicPartition",
    "TopicRacks",
    "__version__",
    "errors",
]

_HOME = {
    "Admin": "pykclient.admin.admin",
    "Assignment": "pykclient.consumer.group.assignors",
    "Assignor": "pykclient.consumer.group.assignors",
    "Consumer": "pykclient.consumer.consumer",
    "ConsumerRecord": "pykclient.accel",
    "ConsumerRecords": "pykclient.consumer.record",
    "CreatedTopic": "pykclient.admin.topics",
    "Delivery": "pykclient.accel",
    "GroupDescription": "pykclient.admin.groups",
    "GroupListing": "pykclient.admin.groups",
    "GroupMember": "pykclient.consumer.group.assignors",
    "GroupMetadata": "pykclient.consumer.group.metadata",
    "MemberDescription": "pykclient.admin.groups",
    "MetricName": "pykclient.metrics",
    "NewTopic": "pykclient.admin.topics",
    "Node": "pykclient.types",
    "OffsetAndMetadata": "pykclient.types",
    "OffsetAndTimestamp": "pykclient.types",
    "PartitionInfo": "pykclient.network.cluster.cluster",
    "Producer": "pykclient.producer.producer",
    "ProducerRecord": "pykclient.producer.record",
    "Rebalance": "pykclient.consumer.group.history",
    "RebalanceListener": "pykclient.consumer.group.rebalance",
    "RebalanceProtocol": "pykclient.consumer.group.assignors",
    "RecordMetadata": "pykclient.producer.record",
    "RecordMetadataRange": "pykclient.producer.bulk.delivery",
    "TimestampType": "pykclient.types",
    "TopicDescription": "pykclient.admin.topics",
    "TopicListing": "pykclient.admin.topics",
    "TopicPartition": "pykclient.types",
    "TopicRacks": "pykclient.consumer.group.assignors",
}


if not TYPE_CHECKING:  # a type checker would take it for a promise of any name

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value  # later uses find it without coming here
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
