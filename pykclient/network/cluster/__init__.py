"""What is known of the cluster: metadata, leaders, coordinators."""
