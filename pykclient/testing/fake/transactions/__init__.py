"""Transactions of a fake cluster: their coordinators, their states, and the markers that end them.

Owner: the cluster.
"""
