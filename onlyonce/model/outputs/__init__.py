"""Decisions about windows that are computed again, and rows that are released."""
