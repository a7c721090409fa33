"""Decisions about what is read: which lines are plain."""
