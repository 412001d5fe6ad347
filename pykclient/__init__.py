"""A Kafka client in Python, from the sockets up."""
