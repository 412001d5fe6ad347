"""Where reading begins and what was processed: positions, look-ups, validation, commits."""
