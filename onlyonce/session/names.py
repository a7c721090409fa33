"""Names of columns, quoted for Spark."""

from __future__ import annotations


def quoted(name: str) -> str:
    """One part of a name, whatever signs it has: dots, quotes, backticks."""
    return f"`{name.replace('`', '``')}`"
