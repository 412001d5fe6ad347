"""Connections to brokers, with their handshake and state, and the client that uses them."""
