"""Fetching: requests to leaders, fetch sessions, buffered responses, and reading records."""
