"""The checkpoint directory of a query of Spark: read, checked and mended.

Nothing here imports Spark, and nothing speaks to brokers: what partitions hold is given.
"""
