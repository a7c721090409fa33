"""Docstrings and pages use plain words: CONTRIBUTING.md says what to write instead."""

from __future__ import annotations

import ast
import re

from tests.support.platform import ROOT

AVOIDED = re.compile(
    r"\b(tells?|told|beside|whoever|nobody|somebody|anew|mends?|of which|the same of|lets go|go on|in earnest|drains?|"
    r"parcels?|couriers?|witness(es)?|folded in|taken back)\b",
    re.IGNORECASE,
)
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def test_docstrings_and_pages_use_plain_words() -> None:
    """Names in code are no prose."""
    prose = {
        f"{path.relative_to(ROOT)}": path.read_text()
        for path in [*ROOT.glob("docs/**/*.md"), ROOT / "README.md"]
        if path.parent.name != "decisions" and path.name != "settings.md"  # one setting has the value nobody
    }
    for path in ROOT.glob("onlyonce/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                prose[f"{path.relative_to(ROOT)}:{getattr(node, 'name', '')}"] = ast.get_docstring(node) or ""

    found = [(where, word.group()) for where, text in prose.items() for word in AVOIDED.finditer(CODE.sub("", text))]
    assert found == []
