"""Rename an identifier everywhere: `python -m tests.mutants.rename OLD NEW`, on a clean checkout.

In Python each name OLD becomes NEW, also an attribute, a keyword and a part of an import; words in comments, docstrings
and strings stay. In the mutants the code that operators name is renamed too, and the tests behind `::`. In Markdown a
word in backticks is. It knows no scopes: a name that two things have is renamed in both, so read the diff.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import libcst as cst

ROOT = Path(__file__).resolve().parents[2]
OPERATORS = {"Replace", "Delete", "Never", "Always", "Negate"}
CODE_SPAN = re.compile(r"`[^`\n]+`")


def in_python(text: str, old: str, new: str) -> str:
    """Return a module with its names renamed, and the code that operators of mutants name."""
    import libcst as cst

    word = re.compile(rf"\b{re.escape(old)}\b")

    class Renamer(cst.CSTTransformer):
        """Renames names, and words of the strings that are code."""

        def __init__(self) -> None:
            self.operators = 0

        def visit_Call(self, node: cst.Call) -> None:
            self.operators += _is_operator(node)

        def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
            self.operators -= _is_operator(original_node)
            return updated_node

        def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
            return updated_node.with_changes(value=new) if updated_node.value == old else updated_node

        def leave_SimpleString(
            self, original_node: cst.SimpleString, updated_node: cst.SimpleString
        ) -> cst.SimpleString:
            value = updated_node.value
            renamed = word.sub(new, value) if self.operators else re.sub(rf"::{re.escape(old)}\b", f"::{new}", value)
            return updated_node.with_changes(value=renamed)

    return cst.parse_module(text).visit(Renamer()).code


def _is_operator(node: cst.Call) -> bool:
    return getattr(node.func, "value", None) in OPERATORS


def in_markdown(text: str, old: str, new: str) -> str:
    """Return a page with the words in backticks renamed."""
    return CODE_SPAN.sub(lambda span: re.sub(rf"\b{re.escape(old)}\b", new, span[0]), text)


def rename(root: Path, files: list[str], old: str, new: str) -> list[str]:
    """Rename in these files; return those that changed. Raise SystemExit if the new name is taken."""
    found = {name: (root / name).read_text() for name in files if name.endswith((".py", ".md"))}
    if taken := [name for name, text in found.items() if name.endswith(".py") and in_python(text, new, old) != text]:
        raise SystemExit(f"rename: {new} is a name in {taken[0]}; nothing was changed")
    changed = []
    for name, text in found.items():
        renamed = (in_python if name.endswith(".py") else in_markdown)(text, old, new)
        if renamed != text:
            (root / name).write_text(renamed)
            changed.append(name)
    return changed


def main(old: str, new: str) -> None:
    """Rename in all files of the checkout, and name those that changed."""
    if not (old.isidentifier() and new.isidentifier()):
        raise SystemExit("rename: give two identifiers")
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    print(*rename(ROOT, files, old, new), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:3])
