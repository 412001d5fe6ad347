"""Real Kafka clusters for tests: jars, Java, processes, ports, data."""
