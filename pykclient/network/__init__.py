"""What all clients share, between their own logic and the sockets.

Knows no producer and no consumer.
"""
