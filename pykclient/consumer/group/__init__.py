"""Membership in a consumer group: the protocols by which members join, assign and heartbeat.

Owner: the core lock.
Source: KIP-62, KIP-345, KIP-394, KIP-429, KIP-800.
"""
