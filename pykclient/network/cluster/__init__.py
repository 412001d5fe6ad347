"""The client's view of the cluster: metadata, leaders, coordinators."""
