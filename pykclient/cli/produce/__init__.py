"""``pykclient produce``: records from lines, files or JSON into a topic."""
