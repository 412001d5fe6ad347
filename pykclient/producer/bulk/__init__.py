"""Sending many rows at once, from lists or from Arrow."""
