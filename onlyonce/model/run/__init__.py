"""Decisions about a run: a long one, and one in which an output fails."""
