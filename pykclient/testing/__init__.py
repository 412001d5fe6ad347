"""Kafka and Spark clusters for tests and demos, and the means to break them on purpose.

Names are imported at first use: pytest imports this package at every start for its plugin
(`pykclient.testing.fixtures`), even in runs that start no broker.

Owner: none; it holds no state.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykclient.protocol.api_keys import ApiKey
    from pykclient.testing.clock import ManualClock
    from pykclient.testing.cluster.acls import Acl
    from pykclient.testing.cluster.certificates import Certificate, CertificateAuthority
    from pykclient.testing.cluster.cluster import KafkaCluster
    from pykclient.testing.cluster.java import MissingPrerequisiteError
    from pykclient.testing.cluster.processes import BrokerFailedError
    from pykclient.testing.cluster.security import ClusterSecurity
    from pykclient.testing.fake import faults
    from pykclient.testing.fake.cluster import FakeCluster
    from pykclient.testing.fake.groups.group import GroupSettings
    from pykclient.testing.fake.server import FakeKafka
    from pykclient.testing.fake.transactions.settings import TransactionSettings
    from pykclient.testing.proxy.faults import (
        Blackhole,
        Cut,
        Delay,
        Direction,
        Double,
        Fault,
        Flip,
        ForgeLength,
        Lose,
        Refuse,
    )
    from pykclient.testing.proxy.proxy import FaultProxy
    from pykclient.testing.spark_cluster.application import SparkApplication
    from pykclient.testing.spark_cluster.cluster import SparkCluster

__all__ = [
    "Acl",
    "ApiKey",
    "Blackhole",
    "BrokerFailedError",
    "Certificate",
    "CertificateAuthority",
    "ClusterSecurity",
    "Cut",
    "Delay",
    "Direction",
    "Double",
    "FakeCluster",
    "FakeKafka",
    "Fault",
    "FaultProxy",
    "Flip",
    "ForgeLength",
    "GroupSettings",
    "KafkaCluster",
    "Lose",
    "ManualClock",
    "MissingPrerequisiteError",
    "Refuse",
    "SparkApplication",
    "SparkCluster",
    "TransactionSettings",
    "faults",
]

_HOME = {
    "Acl": "pykclient.testing.cluster.acls",
    "ApiKey": "pykclient.protocol.api_keys",
    "BrokerFailedError": "pykclient.testing.cluster.processes",
    "Certificate": "pykclient.testing.cluster.certificates",
    "CertificateAuthority": "pykclient.testing.cluster.certificates",
    "ClusterSecurity": "pykclient.testing.cluster.security",
    "FakeCluster": "pykclient.testing.fake.cluster",
    "FakeKafka": "pykclient.testing.fake.server",
    "GroupSettings": "pykclient.testing.fake.groups.group",
    "TransactionSettings": "pykclient.testing.fake.transactions.settings",
    "ManualClock": "pykclient.testing.clock",
    "faults": "pykclient.testing.fake",
    "KafkaCluster": "pykclient.testing.cluster.cluster",
    "MissingPrerequisiteError": "pykclient.testing.cluster.java",
    "FaultProxy": "pykclient.testing.proxy.proxy",
    "SparkApplication": "pykclient.testing.spark_cluster.application",
    "SparkCluster": "pykclient.testing.spark_cluster.cluster",
    **dict.fromkeys(
        (
            *("Blackhole", "Cut", "Delay", "Direction", "Double", "Fault", "Flip", "ForgeLength"),
            *("Lose", "Refuse"),
        ),
        "pykclient.testing.proxy.faults",
    ),
}


if not TYPE_CHECKING:  # a type checker would then accept any name

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value  # later uses do not call `__getattr__`
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
