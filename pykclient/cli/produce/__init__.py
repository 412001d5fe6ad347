"""``pykclient produce``: send records from lines, files or JSON to a topic."""
