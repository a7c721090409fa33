"""Compares two texts of a function: they are the same code if only layout and comments differ. Pure."""

from __future__ import annotations

import ast


def same_code(one: str, other: str) -> bool:
    """Whether two functions differ in layout and comments at most."""
    return one == other or _plain(one) == _plain(other)


def _plain(source: str) -> str:
    try:
        tree = ast.parse(source.strip())
    except SyntaxError:  # a method or lambda, cut out of its line
        return source
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)
