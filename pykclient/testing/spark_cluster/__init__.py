"""A standalone Spark cluster for tests: a master, two workers on hosts of their own, drivers."""
