"""Transactions of a fake cluster: coordinators, states, and the markers that end them.

Owner: the cluster.
"""
