"""``pykclient scan``: count the contents of topics by partition."""
