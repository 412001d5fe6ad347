"""Connections to brokers, their handshake and state, and the client over them."""
