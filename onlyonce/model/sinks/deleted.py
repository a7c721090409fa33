"""The table beside a sink's table that remembers what was deleted: its name, and the comment by which it is known as the platform's. Pure."""

from __future__ import annotations

NOTE = "onlyonce: keys of rows that were deleted from the table beside"
"""A table of that name without it is somebody else's: never written to, never dropped."""


def deleted(table: str) -> str:
    """The name of the table that keeps the keys of what was deleted."""
    return f"{table}_deleted"
