"""``pykclient log``: show a broker's segment files."""
