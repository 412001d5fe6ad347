"""``pykclient broker``: a broker for experiments and tests, without Java."""
