"""The benchmark of ``make bench-spark``: the connector beside Spark's own Kafka source and sink."""
