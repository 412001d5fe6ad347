"""Offsets: positions, lookups, validation, processed records and commits."""
