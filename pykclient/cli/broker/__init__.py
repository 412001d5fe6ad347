"""``pykclient broker``: a broker for trying and testing, without Java."""
