"""The fault proxy between clients and brokers."""
