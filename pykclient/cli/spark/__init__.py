"""``pykclient spark``: manage transactions of exactly-once sinks, and checkpoints of queries."""
