"""``pykclient transactions``: show transactional ids and producers, abort hanging transactions."""
