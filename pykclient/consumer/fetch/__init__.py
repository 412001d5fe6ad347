"""What brings records: requests to leaders, fetch sessions, what has arrived, and reading it."""
