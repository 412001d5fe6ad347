"""The exactly-once sink: its names, its record, and the steps of the driver and of the tasks.

Nothing in `names`, `record` and `protocol` imports Spark, or does input and output; `cluster` runs
the steps on brokers.
"""

from spark_connector.exactly_once.cluster import SinkCluster
from spark_connector.exactly_once.protocol import SinkProtocol

__all__ = ["SinkCluster", "SinkProtocol"]
