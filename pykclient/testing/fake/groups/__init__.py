"""Groups of a fake cluster: members, coordinators and committed offsets.

Owner: the cluster.
"""
