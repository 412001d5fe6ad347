"""Groups of a fake cluster: who is in them, who coordinates them, and what they have committed.

Owner: the cluster.
"""
