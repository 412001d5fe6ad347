"""Sockets, name look-ups and selectors: the implementation of the port."""
