"""``pykclient groups``: groups, their members and offsets."""
