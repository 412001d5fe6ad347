"""The layer that all clients share, between their own logic and the sockets.

It does not know about producers or consumers.
"""
