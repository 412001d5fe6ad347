"""``pykclient transactions``: who writes transactionally, and which transactions hang."""
