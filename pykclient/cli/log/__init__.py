"""``pykclient log``: segment files of a broker, and how they are shown."""
