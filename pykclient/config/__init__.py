"""Settings of the clients: their types, checks and defaults, and unsupported keys."""
