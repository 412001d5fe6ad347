"""``pykclient spark``: transactions of exactly-once sinks, and checkpoints of queries."""
