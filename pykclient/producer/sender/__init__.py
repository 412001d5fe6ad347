"""Produce requests, sequences, transactions and the sender thread itself."""
