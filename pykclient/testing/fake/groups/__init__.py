"""Groups of a fake cluster: their members, coordinators and committed offsets.

Owner: the cluster.
"""
