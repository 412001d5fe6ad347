"""Bulk sending: many rows in one call, from lists or from Arrow."""
