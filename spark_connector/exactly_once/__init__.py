"""The exactly-once sink: its names, its record, and the steps of driver and tasks.

`names`, `record` and `protocol` neither import Spark nor do input and output; `cluster` runs the
steps on brokers.
"""

from spark_connector.exactly_once.cluster import SinkCluster
from spark_connector.exactly_once.protocol import SinkProtocol

__all__ = ["SinkCluster", "SinkProtocol"]
