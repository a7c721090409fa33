"""Cells of tables in Markdown."""


def cell(text: str) -> str:
    """Return a text as a cell: a bar ends no cell, and nothing in it is HTML."""
    return text.replace("|", "\\|").replace("<", "&lt;")
