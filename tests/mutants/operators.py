"""Operators that break one named function, module constant or SQL statement.

An operator names a scope and code, never lines of a file. The scope is the qualified name of a function or class
(`Writer.claim`); "" is the module without the bodies of its functions. The code is compared as a syntax tree (libcst):
spaces, line breaks, comments, quotation marks and redundant parentheses do not count. The code must occur exactly once
in its scope. SQL is compared word by word within its named statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache
from textwrap import dedent
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import libcst as cst


class NotFound(AssertionError):
    """The scope or the code is missing, or the code occurs more than once."""


@dataclass(frozen=True)
class Replace:
    """Replace an expression, or a sequence of statements, within one scope. No code in its place deletes it."""

    scope: str
    before: str
    after: str

    def apply(self, text: str) -> str:
        """Return the broken text of the module. Raise NotFound if the code does not occur exactly once."""
        return _replaced(text, self.scope, self.before, self.after)


@dataclass(frozen=True)
class Delete:
    """Delete a sequence of statements within one scope."""

    scope: str
    statements: str

    def apply(self, text: str) -> str:
        """Return the broken text of the module. Raise NotFound if the code does not occur exactly once."""
        return _replaced(text, self.scope, self.statements, "")


@dataclass(frozen=True)
class Never:
    """Replace a condition within one scope by False."""

    scope: str
    condition: str

    def apply(self, text: str) -> str:
        """Return the broken text of the module. Raise NotFound if the code does not occur exactly once."""
        return _replaced(text, self.scope, self.condition, "False")


@dataclass(frozen=True)
class Always:
    """Replace a condition within one scope by True."""

    scope: str
    condition: str

    def apply(self, text: str) -> str:
        """Return the broken text of the module. Raise NotFound if the code does not occur exactly once."""
        return _replaced(text, self.scope, self.condition, "True")


@dataclass(frozen=True)
class Negate:
    """Negate a condition within one scope."""

    scope: str
    condition: str

    def apply(self, text: str) -> str:
        """Return the broken text of the module. Raise NotFound if the code does not occur exactly once."""
        return _replaced(text, self.scope, self.condition, f"(not ({self.condition}))")


@dataclass(frozen=True)
class ReplaceSql:
    """Replace words within one named statement of an SQL file. `statement` is "" in a file without names."""

    statement: str
    before: str
    after: str

    def apply(self, text: str) -> str:
        """Return the broken text of the file. Raise NotFound if the words do not occur exactly once."""
        begin, end = _statement(text, self.statement)
        words = r"\s+".join(re.escape(word) for word in self.before.split())
        part, count = re.subn(words, lambda _: self.after, text[begin:end])
        if count != 1:
            raise NotFound(f"statement {self.statement!r} has {count} times {self.before!r}")
        return text[:begin] + part + text[end:]


Operator = Replace | Delete | Never | Always | Negate | ReplaceSql


def _statement(text: str, name: str) -> tuple[int, int]:
    """Return where a named statement begins and ends."""
    if not name:
        return 0, len(text)
    found = re.search(rf"^-- {re.escape(name)} --$(.*?)(?=^-- \w+ --$|\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise NotFound(f"there is no statement {name!r}")
    return found.span(1)


def _replaced(text: str, name: str, before: str, after: str) -> str:
    import libcst as cst

    module = _parsed(text)
    scope = _scope(module, name)
    one, other = _expression(before), _expression(after)
    if one is not None and other is not None:
        matching = [node for node in _within(scope) if _same(node, one)]
        _check_once(len(matching), name, before)
        instead = other.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        return _code(module.deep_replace(matching[0], instead))
    wanted, others = _statements(before), _statements(after) or _statements("pass")
    places = [(node, start) for node in _within(scope) for start in _sequences(node, wanted)]
    _check_once(len(places), name, before)
    block, start = places[0]
    body: Sequence[Any] = block.body  # type: ignore[attr-defined]
    changed = block.with_changes(body=[*body[:start], *others, *body[start + len(wanted) :]])
    return _code(changed if block is module else module.deep_replace(block, changed))


@cache
def _parsed(text: str) -> cst.Module:
    import libcst as cst

    return cst.parse_module(text)


def _code(module: Any) -> str:
    return str(module.code)


def _check_once(count: int, name: str, code: str) -> None:
    if count != 1:
        raise NotFound(f"{name or 'the module'} has {count} times {code!r}")


@cache
def _scope(module: cst.Module, name: str) -> cst.CSTNode:
    """Return the function or class of a qualified name, or the module."""
    import libcst as cst

    scope: cst.CSTNode = module
    for part in name.split(".") if name else ():
        inner = [n for n in _within(scope) if isinstance(n, cst.FunctionDef | cst.ClassDef) and n.name.value == part]
        if len(inner) != 1:
            raise NotFound(f"there are {len(inner)} of {name!r}: no function or class {part!r}")
        scope = inner[0]
    return scope


def _within(scope: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield the nodes of a scope. A module has all but the insides of its functions and classes."""
    import libcst as cst

    stack = [scope]
    while stack:
        node = stack.pop()
        yield node
        if not (isinstance(scope, cst.Module) and isinstance(node, cst.FunctionDef | cst.ClassDef)):
            stack.extend(node.children)


def _expression(code: str) -> Any:
    """Return code as an expression; None if it is none, but statements."""
    import libcst as cst

    try:
        return cst.parse_expression(f"({dedent(code).strip()}\n)") if code.strip() else None
    except cst.ParserSyntaxError:
        return None


def _statements(code: str) -> list[Any]:
    import libcst as cst

    return list(cst.parse_module(dedent(code).strip("\n") + "\n").body)


def _sequences(node: Any, wanted: list[Any]) -> Iterator[int]:
    """Yield where these statements follow each other in a block."""
    import libcst as cst

    if isinstance(node, cst.IndentedBlock | cst.Module):
        for start in range(len(node.body) - len(wanted) + 1):
            if all(map(_same, node.body[start:], wanted)):
                yield start


_LAYOUT = (
    "whitespace",
    "leading_lines",
    "lines_after",
    "header",
    "footer",
    "lpar",
    "rpar",
    "comma",
    "semicolon",
    "trailing",
    "indent",
)


def _same(one: Any, other: Any) -> bool:
    """Return whether two trees are the same code, however it is laid out."""
    import libcst as cst

    if type(one) is not type(other):
        return False
    if isinstance(one, cst.SimpleString):
        return bool(one.evaluated_value == other.evaluated_value)
    if isinstance(one, cst.CSTNode):
        names = [field.name for field in fields(one) if not field.name.startswith(_LAYOUT)]  # type: ignore[arg-type]
        return all(_same(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
