"""A standalone Spark cluster for tests: a master, two workers on separate hosts, and drivers."""
