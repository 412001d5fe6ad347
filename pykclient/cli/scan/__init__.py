"""``pykclient scan``: what is in topics, partition by partition."""
