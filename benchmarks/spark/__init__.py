"""What ``make bench-spark`` measures: the connector beside Spark's own Kafka source and sink."""
