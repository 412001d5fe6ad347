"""``pykclient spark``: what exactly-once sinks of the Spark connector have open."""
