"""``pykclient consume``: print records of topics as lines, in a format, or as JSON."""
